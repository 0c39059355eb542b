#ifndef HA_MANUAL_H
#define HA_MANUAL_H

#include <stdbool.h>
#include <stdio.h>

/* The man page and the completions of shells, written from the option table (options.h), so that they cannot differ
 * from it. word: --print-man, or --print-completion=bash, zsh or fish. false: none of them, and nothing is printed. For
 * the build and scripts/install.sh; not part of the help. */
bool ha_manual_print(FILE *out, const char *word);

#endif
