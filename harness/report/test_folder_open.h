#ifndef HA_REPORT_TEST_FOLDER_OPEN_H
#define HA_REPORT_TEST_FOLDER_OPEN_H

/* For tests of the folder of a run: one that is open, into which the cases of a suite that is none are written. */

#include "harness/base/test_folder.h"
#include "harness/report/fake_suite.h"

#include <sys/resource.h>

extern struct ha_folder *f; /* the one that is open */
extern struct ha_why why;
extern struct fake_case c;

/* of a file in it */
bool there(const char *name);
size_t lines(const char *name);
void append(const char *name, const char *text);

/* The test fails where these do. */
void open_with(const struct ha_folder_options *options);
void open_it(bool resume);
void close_it(void);
void write_it(size_t n, enum ha_verdict verdict);
int open_new(void **state); /* a setup */
/* From now on no file becomes larger. */
void limit_files(rlim_t bytes);

#endif
