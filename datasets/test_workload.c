#include "datasets/test_workload.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"

#include <math.h>
#include <sys/stat.h>

extern const struct ha_dataset ha_dataset_flashinfer;
static const struct ha_dataset *const set = &ha_dataset_flashinfer;
static struct ha_why why;

const size_t keys_of[SEQS] = { 37, 1 + 64, 16 };
struct workload made;

static enum ha_dtype dtype(void) { return made.type == HA_T_F16 ? HA_F16 : made.type == HA_T_BF16 ? HA_BF16 : HA_F32; }

float workload_value(size_t part, size_t b, size_t t, size_t head, size_t j)
{
    return ha_round(ha_rng_normal(part, b * Q_HEADS + head, t * DIM + j), dtype());
}

static void put(size_t part, size_t row, size_t b, size_t t)
{
    const size_t heads = part == Q ? Q_HEADS : KV_HEADS;
    for (size_t head = 0; head < heads; head++)
        for (size_t j = 0; j < DIM; j++)
            ha_store(made.stored[part], (row * heads + head) * DIM + j, dtype(), workload_value(part, b, t, head, j));
}

static void tensor(size_t i, const char *name, enum ha_tensor_type type, size_t dims, const size_t *dim)
{
    struct ha_tensor *t = &made.tensor[i];
    *t = (struct ha_tensor){ .name = name, .type = type, .dims = dims };
    t->bytes = type == HA_T_I32 || type == HA_T_F32 ? 4 : 2;
    for (size_t d = 0; d < dims; d++) t->bytes *= t->dim[d] = dim[d];
    t->data = i < QO_INDPTR ? (const void *)made.stored[i] : made.index[i];
}

/* Tokens of a sequence lie in pages that are taken all over the cache; every slot that is no token is NaN. */
static void make_tensors(void)
{
    const size_t size = made.page_size;
    size_t entries = 0;
    for (size_t part = 0; part < 3; part++)
        for (size_t i = 0; i < (size_t)ROWS_MAX * Q_HEADS * DIM; i++) ha_store(made.stored[part], i, dtype(), NAN);
    for (size_t b = 0; b < SEQS; b++) entries += (keys_of[b] + size - 1) / size;
    made.pages = made.kind == RAGGED ? entries : entries + 2;
    while (made.pages % 7 == 0) made.pages++;
    made.rows = made.pages * size;
    assert_true(made.rows <= ROWS_MAX && entries < PAGES_MAX);
    entries = 0;
    for (size_t b = 0; b < SEQS; b++) {
        for (size_t t = 0; t < made.fresh; t++) put(Q, b * made.fresh + t, b, t);
        for (size_t t = 0; t < keys_of[b]; t++) {
            const size_t page = made.kind == RAGGED ? entries : (entries * 7 + 3) % made.pages,
                         row = page * size + t % size;
            put(K, row, b, t);
            put(V, row, b, t);
            made.index[KV_INDICES][entries] = (int32_t)page;
            entries += t % size == size - 1 || t == keys_of[b] - 1;
        }
        made.index[KV_INDPTR][b + 1] = (int32_t)entries;
        made.index[QO_INDPTR][b + 1] = (int32_t)((b + 1) * made.fresh);
        made.index[LAST_PAGE_LEN][b] = (int32_t)((keys_of[b] - 1) % size + 1);
    }
    const bool paged = made.kind != RAGGED;
    const size_t rest = paged ? 1 : 0;
    tensor(Q, "q", made.type, 3, (const size_t[]){ SEQS * made.fresh, Q_HEADS, DIM });
    const size_t kv[] = { made.pages, size, KV_HEADS, DIM }, flat[] = { made.pages, KV_HEADS, DIM };
    tensor(K, "key of k", made.type, 3 + rest, paged ? kv : flat);
    tensor(V, "key of v", made.type, 3 + rest, paged ? kv : flat);
    tensor(QO_INDPTR, "qo", HA_T_I32, 1, (const size_t[]){ SEQS + 1 });
    tensor(KV_INDPTR, "kv", HA_T_I32, 1, (const size_t[]){ SEQS + 1 });
    tensor(KV_INDICES, "indices", HA_T_I32, 1, (const size_t[]){ entries });
    tensor(LAST_PAGE_LEN, "last", HA_T_I32, 1, (const size_t[]){ SEQS });
}

void workload_make(enum workload_kind kind, size_t page_size, enum ha_tensor_type type)
{
    static const char constant[] = "\"%s\": {\"type\": \"const\", \"value\": %zu}, ";
    const bool paged = kind != RAGGED, random = type == HA_T_OTHER;
    memset(&made, 0, sizeof made);
    made.kind = kind;
    made.page_size = page_size;
    made.type = random ? HA_T_F32 : type;
    made.fresh = kind == DECODE ? 1 : 5;
    make_tensors();
    char *d = made.definition, *w = made.workload;
    const char *rows = kind == DECODE ? "batch_size" : "total_q", *cache = paged ? "num_pages" : "total_kv";
    size_t n = (size_t)snprintf(d, TEXT, "{\"name\": \"some\", \"op_type\": \"%s\", \"axes\": {",
                                paged ? "gqa_paged" : "gqa_ragged");
    const struct {
        const char *name;
        size_t value;
    } constants[] = {
        { "num_qo_heads", Q_HEADS }, { "num_kv_heads", KV_HEADS }, { "head_dim", DIM }, { "page_size", page_size }
    };
    for (size_t i = 0; i < (paged ? 4 : 3); i++)
        n += (size_t)snprintf(d + n, TEXT - n, constant, constants[i].name, constants[i].value);
    n += (size_t)snprintf(d + n, TEXT - n,
                          "\"%s\": {\"type\": \"var\"}, \"%s\": {\"type\": \"var\"}}, \"inputs\": {"
                          "\"q\": {\"shape\": [\"%s\", \"num_qo_heads\", \"head_dim\"], \"dtype\": \"bfloat16\"}, ",
                          rows, cache, rows);
    for (size_t i = 0; i < 2; i++)
        n += (size_t)snprintf(d + n, TEXT - n, "\"%c%s\": {\"shape\": [\"%s\", %s\"num_kv_heads\", \"head_dim\"]}, ",
                              "kv"[i], paged ? "_cache" : "", cache, paged ? "\"page_size\", " : "");
    n += (size_t)snprintf(d + n, TEXT - n,
                          "%s\"kv_indptr\": {\"shape\": [\"len_indptr\"]}, %s%s\"sm_scale\": {\"shape\": null}}}",
                          kind == DECODE ? "" : "\"qo_indptr\": {\"shape\": [\"len_indptr\"]}, ",
                          paged ? "\"kv_indices\": {\"shape\": [\"num_kv_indices\"]}, " : "",
                          paged && page_size > 1 ? "\"kv_last_page_len\": {\"shape\": [\"batch\"]}, " : "");
    assert_true(n < TEXT);
    n = (size_t)snprintf(w, TEXT,
                         "{\"definition\": \"some\", \"solution\": null, \"workload\": {\"uuid\": \"ab-1\", "
                         "\"axes\": {\"%s\": %zu, \"%s\": %zu, \"len_indptr\": %d}, \"inputs\": {",
                         rows, SEQS * made.fresh, cache, made.pages, SEQS + 1);
    const char *const names[TENSORS] = { "q",
                                         paged ? "k_cache" : "k",
                                         paged ? "v_cache" : "v",
                                         kind == DECODE ? NULL : "qo_indptr",
                                         "kv_indptr",
                                         paged ? "kv_indices" : NULL,
                                         paged && page_size > 1 ? "kv_last_page_len" : NULL };
    for (size_t i = 0; i < TENSORS; i++) {
        if (names[i] && i < QO_INDPTR && random)
            n += (size_t)snprintf(w + n, TEXT - n, "\"%s\": {\"type\": \"random\"}, ", names[i]);
        else if (names[i])
            n += (size_t)snprintf(
                w + n, TEXT - n,
                "\"%s\": {\"type\": \"safetensors\", \"path\": \"./blob/x.safetensors\", \"tensor_key\": \"%s\"}, ",
                names[i], made.tensor[i].name);
    }
    n += (size_t)snprintf(w + n, TEXT - n,
                          "\"sm_scale\": {\"type\": \"scalar\", \"value\": 0.25}}}, \"evaluation\": null}\n");
    assert_true(n < TEXT);
}

void workload_replace(char text[TEXT], const char *from, const char *to)
{
    char rest[TEXT], *at = strstr(text, from);
    if (!at) fail_msg("no %s in %s", from, text);
    strcpy(rest, at + strlen(from));
    assert_true((size_t)(at - text) + strlen(to) + strlen(rest) < TEXT);
    strcpy(at, to);
    strcat(at, rest);
}

void workload_folder(const char *name)
{
    if (mkdir(test_path(name), 0700) != 0 && access(test_path(name), F_OK) != 0) fail_msg("%s", test_path(name));
}

void workload_write_tensors(void)
{
    if (ha_safetensors_write(test_path("blob/x.safetensors"), made.tensor, TENSORS, NULL, &why) != HA_OK)
        fail_msg("%s", why.text);
}

void workload_write_texts(void)
{
    char lines[2 * TEXT];
    snprintf(lines, sizeof lines, "%s%s", made.line, made.workload);
    test_write("workloads/gqa/w.jsonl", lines, strlen(lines));
    test_write("definitions/gqa/some.json", made.definition, strlen(made.definition));
}

void workload_write(void)
{
    workload_write_tensors();
    workload_write_texts();
}

const char *workload_file(const char *selector)
{
    static char name[TEST_PATH_MAX + 64];
    snprintf(name, sizeof name, "%s%s", test_path("workloads/gqa/w.jsonl"), selector);
    return name;
}

struct ha_source *workload_open(const char *selector, struct ha_shape *shape, uint64_t seed)
{
    struct ha_source *src = NULL;
    if (set->find(workload_file(selector), &why) != HA_OK
        || set->open(set, &src, shape, 0, seed, workload_file(selector), &why) != HA_OK)
        fail_msg("%s", why.text);
    return src;
}

void expect_refused_as(const char *selector, struct ha_shape shape, const char *reason)
{
    const struct ha_shape before = shape;
    struct ha_source *src;
    *why.text = 0;
    assert_int_equal(set->open(set, &src, &shape, 0, 1, workload_file(selector), &why), HA_ERROR);
    assert_null(src);
    assert_memory_equal(&shape, &before, sizeof shape);
    if (!strstr(why.text, reason) || strchr(why.text, '\n'))
        fail_msg("reason is '%s', expected '%s'", why.text, reason);
}
void expect_refused(const char *reason) { expect_refused_as("", (struct ha_shape){ .dtype = HA_F16 }, reason); }

int workload_setup(void **state)
{
    if (test_folder_make(state)) return 1;
    workload_folder("workloads");
    workload_folder("workloads/gqa");
    workload_folder("definitions");
    workload_folder("definitions/gqa");
    workload_folder("blob");
    return 0;
}
