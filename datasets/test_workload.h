#ifndef HA_DATASETS_TEST_WORKLOAD_H
#define HA_DATASETS_TEST_WORKLOAD_H

/* A workload of FlashInfer Trace (datasets/README.md) to write, and to spoil: `made` is made, changed and written. Its
 * files lie in the folder of the test as they do in the data: definitions/gqa/some.json, workloads/gqa/w.jsonl and
 * blob/x.safetensors. */

#include "harness/api/dataset.h"
#include "harness/base/safetensors.h"
#include "harness/base/test_folder.h"

enum { Q_HEADS = 4, KV_HEADS = 2, DIM = 8, SEQS = 3, PAGES_MAX = 160, ROWS_MAX = 640, TEXT = 4096 };
enum { Q, K, V, QO_INDPTR, KV_INDPTR, KV_INDICES, LAST_PAGE_LEN, TENSORS };

enum workload_kind { DECODE, PREFILL, RAGGED };

/* keys of each sequence, the new ones included */
extern const size_t keys_of[SEQS];

extern struct workload {
    enum workload_kind kind;
    size_t page_size, fresh, rows, pages; /* fresh: new tokens of each sequence */
    enum ha_tensor_type type;
    char definition[TEXT], workload[TEXT], line[TEXT]; /* line: what stands before the workload in its file */
    struct ha_tensor tensor[TENSORS];
    int32_t index[TENSORS][PAGES_MAX];
    char stored[3][ROWS_MAX * Q_HEADS * DIM * 4]; /* q, k, v */
} made;

/* The folder of the test, with those of the files. */
int workload_setup(void **state);
void workload_folder(const char *name);

/* type F32 and so on: values are in the file, and every slot of the cache that is no token is NaN; OTHER: they are
 * random */
void workload_make(enum workload_kind kind, size_t page_size, enum ha_tensor_type type);
/* what is in q (of new token t), k or v of a sequence, at its token t; rounded to the file's type */
float workload_value(size_t part, size_t b, size_t t, size_t head, size_t j);
/* the first `from` of a text becomes `to` */
void workload_replace(char text[TEXT], const char *from, const char *to);

void workload_write_tensors(void);
void workload_write_texts(void);
void workload_write(void); /* both */

/* FILE of dataset=flashinfer/FILE, with this behind the path; until the next call */
const char *workload_file(const char *selector);
struct ha_source *workload_open(const char *selector, struct ha_shape *shape, uint64_t seed);
/* That is HA_ERROR in one line with these words, and leaves the shape as it was. */
void expect_refused_as(const char *selector, struct ha_shape shape, const char *reason);
void expect_refused(const char *reason); /* nothing chosen, nothing asked */

#endif
