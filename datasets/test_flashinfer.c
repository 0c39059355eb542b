/* Workloads written to the schema of FlashInfer Trace, and spoilt ones. */
#include "datasets/test_workload.h"
#include "harness/base/numeric.h"

#include <math.h>

extern const struct ha_dataset ha_dataset_flashinfer;
static const struct ha_dataset *const set = &ha_dataset_flashinfer;
static struct ha_why why;

/* ---- what comes back --------------------------------------------------------------------------------------------- */

static void expect_kv(struct ha_source *src, const struct ha_shape *s, size_t b, size_t of)
{
    const size_t first = keys_of[of] / 3, count = keys_of[of] - first;
    char k[80 * DIM * 4], v[80 * DIM * 4];
    for (size_t head = 0; head < KV_HEADS; head++) {
        set->kv(src, b, 0, head, first, count, k, NULL);
        set->kv(src, b, 0, head, first, count, NULL, v);
        for (size_t i = 0; i < count * DIM; i++) {
            const size_t t = first + i / DIM, j = i % DIM;
            assert_true(ha_load(k, i, s->dtype) == ha_round(workload_value(K, of, t, head, j), s->dtype));
            assert_true(ha_load(v, i, s->dtype) == ha_round(workload_value(V, of, t, head, j), s->dtype));
        }
    }
    for (size_t head = 0; head < Q_HEADS; head++)
        for (size_t t = 0; t < made.fresh; t++) {
            float q[DIM];
            set->query(src, b, 0, head, s->ctx[b] + t, q);
            for (size_t j = 0; j < DIM; j++) assert_true(q[j] == ha_round(workload_value(Q, of, t, head, j), s->dtype));
        }
}

static void expect_shape(const struct ha_shape *s)
{
    assert_true(s->layers == 1 && s->steps == 1 && s->observed == 0 && s->model_dim == 0);
    assert_true(s->q_heads == Q_HEADS && s->kv_heads == KV_HEADS && s->head_dim == DIM && s->scale == 0.25f);
    assert_int_equal(s->q_len, made.fresh);
}

static const struct {
    enum workload_kind kind;
    size_t page_size;
} forms[] = { { DECODE, 1 },   { DECODE, 16 },  { DECODE, 64 }, { PREFILL, 1 },
              { PREFILL, 16 }, { PREFILL, 64 }, { RAGGED, 1 } };

TEST(lengths_and_values_come_back)
{
    static const enum ha_tensor_type types[] = { HA_T_F32, HA_T_F16, HA_T_BF16 };
    for (size_t i = 0; i < COUNT(forms) * COUNT(types); i++) {
        struct ha_shape s = { .dtype = i % 2 ? HA_F32 : HA_F16 };
        workload_make(forms[i % COUNT(forms)].kind, forms[i % COUNT(forms)].page_size, types[i / COUNT(forms)]);
        workload_write();
        struct ha_source *src = workload_open("", &s, 1);
        expect_shape(&s);
        assert_int_equal(s.batch, SEQS);
        for (size_t b = 0; b < SEQS; b++) {
            assert_int_equal(s.ctx[b], keys_of[b] - made.fresh);
            expect_kv(src, &s, b, b);
        }
        set->close(src);
    }
}

TEST(a_workload_and_sequences_are_chosen)
{
    workload_make(PREFILL, 16, HA_T_BF16);
    strcpy(made.line, "{\"definition\": \"other\", \"workload\": {\"uuid\": \"ab-0\"}}\n\n");
    workload_write();
    static const struct {
        const char *selector;
        size_t batch, of[SEQS];
    } choices[] = { { "@3", 3, { 0, 1, 2 } },  { "@ab-1", 3, { 0, 1, 2 } }, { "@ab-1:1", 1, { 1 } },
                    { "@3:0+2", 2, { 0, 2 } }, { "@3:1-2", 2, { 1, 2 } },   { "@3:0-1+2", 3, { 0, 1, 2 } } };
    for (size_t i = 0; i < COUNT(choices); i++) {
        struct ha_shape s = { .dtype = HA_F32 };
        struct ha_source *src = workload_open(choices[i].selector, &s, 1);
        assert_int_equal(s.batch, choices[i].batch);
        for (size_t b = 0; b < s.batch; b++) {
            assert_int_equal(s.ctx[b], keys_of[choices[i].of[b]] - made.fresh);
            expect_kv(src, &s, b, choices[i].of[b]);
        }
        set->close(src);
    }
}

/* What is not asked for is not looked at: neither values of other sequences nor their pages. */
TEST(other_sequences_are_not_read)
{
    struct ha_shape s = { .dtype = HA_F16 };
    workload_make(DECODE, 16, HA_T_F32);
    for (size_t t = 0; t < 16; t++)
        ha_store(made.stored[K], ((size_t)made.index[KV_INDICES][0] * 16 + t) * KV_HEADS * DIM, HA_F32, NAN);
    made.index[KV_INDICES][1] = 1 << 20;
    made.index[LAST_PAGE_LEN][0] = 99;
    workload_write();
    struct ha_source *src = workload_open("@1:1-2", &s, 1);
    expect_kv(src, &s, 0, 1);
    expect_kv(src, &s, 1, 2);
    set->close(src);
    expect_refused("kv_last_page_len[0] is 99; from 1 to 16");
}

TEST(random_values_lie_in_the_cache)
{
    enum { SIZE = 16 };
    float k[2][SIZE * DIM], v[SIZE * DIM], tail[2 * DIM], q[2][DIM];
    workload_make(DECODE, SIZE, HA_T_OTHER);
    made.index[KV_INDICES][3] = made.index[KV_INDICES][0]; /* the first page of sequences 0 and 1 is the same */
    workload_write();
    for (size_t seed = 1; seed < 3; seed++) {
        struct ha_shape s = { .dtype = HA_F32 };
        struct ha_source *src = workload_open("", &s, seed);
        expect_shape(&s);
        for (size_t b = 0; b < 2; b++) {
            set->kv(src, b, 0, 1, 0, SIZE, k[b], NULL);
            set->query(src, b, 0, 1, s.ctx[b], q[b]);
        }
        assert_memory_equal(k[0], k[1], sizeof k[0]);
        assert_memory_not_equal(q[0], q[1], sizeof q[0]);
        set->kv(src, 0, 0, 1, 0, SIZE, NULL, v);
        assert_memory_not_equal(k[0], v, sizeof v);
        assert_memory_not_equal(k[0], k[0] + DIM, DIM * sizeof(float));
        set->kv(src, 1, 0, 1, SIZE - 2, 2, tail, NULL);
        assert_memory_equal(tail, k[1] + (SIZE - 2) * DIM, sizeof tail);
        set->kv(src, 1, 0, 0, 0, SIZE, k[1], NULL);
        assert_memory_not_equal(k[0], k[1], sizeof k[0]);
        set->kv(src, 1, 0, 1, SIZE, SIZE, k[1], NULL);
        assert_memory_not_equal(k[0], k[1], sizeof k[0]);
        set->close(src);
        src = workload_open("", &s, seed == 1 ? 2 : 1);
        set->kv(src, 0, 0, 1, 0, SIZE, k[1], NULL);
        assert_memory_not_equal(k[0], k[1], sizeof k[0]);
        set->close(src);
    }
}

TEST(definition_and_tensors_may_lie_beside_the_workload)
{
    struct ha_shape s = { .dtype = HA_F16 };
    workload_make(RAGGED, 1, HA_T_F16);
    workload_folder("flat");
    workload_folder("flat/blob");
    test_write("flat/w@2.jsonl", made.workload, strlen(made.workload));
    test_write("flat/some.json", made.definition, strlen(made.definition));
    if (ha_safetensors_write(test_path("flat/blob/x.safetensors"), made.tensor, TENSORS, NULL, &why) != HA_OK)
        fail_msg("%s", why.text);
    struct ha_source *src;
    if (set->open(set, &src, &s, 0, 1, test_path("flat/w@2.jsonl"), &why) != HA_OK) fail_msg("%s", why.text);
    expect_kv(src, &s, 1, 1);
    set->close(src);
}

TEST(indices_may_have_64_bits_and_the_scale_be_left_out)
{
    static int64_t wide[PAGES_MAX];
    struct ha_shape s = { .dtype = HA_F16 };
    workload_make(DECODE, 16, HA_T_F16);
    for (size_t i = 0; i < PAGES_MAX; i++) wide[i] = made.index[KV_INDICES][i];
    made.tensor[KV_INDICES].type = HA_T_I64;
    made.tensor[KV_INDICES].bytes *= 2;
    made.tensor[KV_INDICES].data = wide;
    workload_replace(made.definition, ", \"sm_scale\": {\"shape\": null}", "");
    workload_write();
    struct ha_source *src = workload_open("", &s, 1);
    expect_kv(src, &s, 1, 1);
    assert_true(s.scale == 1 / sqrtf(DIM));
    set->close(src);
    wide[5] = INT64_C(1) << 32;
    workload_write();
    expect_refused("kv_indices[5] is 4294967296, and there are 11 pages");
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

TEST(what_the_case_asks_must_agree)
{
    workload_make(PREFILL, 16, HA_T_OTHER);
    workload_write();
    const struct ha_shape same = { .layers = 1,
                                   .batch = 3,
                                   .q_heads = 4,
                                   .kv_heads = 2,
                                   .head_dim = 8,
                                   .ctx = { 32, 60, 11 },
                                   .q_len = 5,
                                   .steps = 1 };
    struct ha_shape s = same;
    set->close(workload_open("", &s, 1));
    const struct {
        size_t at, value;
        const char *reason;
    } asks[] = {
        { offsetof(struct ha_shape, layers), 2, "layers is 1 here, the case asks for 2: leave that key out" },
        { offsetof(struct ha_shape, batch), 2, "batch is 3 here" },
        { offsetof(struct ha_shape, q_heads), 8, "query heads is 4 here" },
        { offsetof(struct ha_shape, kv_heads), 4, "KV heads is 2 here" },
        { offsetof(struct ha_shape, head_dim), 16, "head_dim is 8 here" },
        { offsetof(struct ha_shape, q_len), 1, "q_len is 5 here" },
        { offsetof(struct ha_shape, steps), 8, "steps is 1 here" },
        { offsetof(struct ha_shape, observed), 16, "observed is 0 here" },
        { offsetof(struct ha_shape, ctx[1]), 61, "sequence 1: ctx is 60 here, the case asks for 61" },
    };
    for (size_t i = 0; i < COUNT(asks); i++) {
        struct ha_shape asked = same;
        *(size_t *)(void *)((char *)&asked + asks[i].at) = asks[i].value;
        expect_refused_as("", asked, asks[i].reason);
    }
}

TEST(names_that_choose_nothing_are_refused)
{
    static const struct {
        const char *selector, *reason;
    } names[] = {
        { ".nosuch", "there is no such file" },
        { "@", "behind the @ comes a line or a uuid" },
        { "@:1", "behind the @ comes a line or a uuid" },
        { "@1:", "behind the @ comes a line or a uuid" },
        { "@0", "there is no line 0: it has 1, and the first is 1" },
        { "@2", "there is no line 2: it has 1" },
        { "@99999999999999999999", "there is no line 99999999999999999999" },
        { "@ab", "no workload has the uuid 'ab'" },
        { "@1:3", "there is no sequence 3: it has 3, and the first is 0" },
        { "@1:0-9", "there is no sequence 9" },
        { "@1:99999999999999999999", "there is no sequence" },
        { "@1:1-0", "sequences '1-0' are not as 0-3+7" },
        { "@1:1+1", "are not as" },
        { "@1:+1", "are not as" },
        { "@1:1+", "are not as" },
        { "@1:1-", "are not as" },
        { "@1:-1", "are not as" },
        { "@1:x", "are not as" },
    };
    workload_make(DECODE, 1, HA_T_OTHER);
    workload_write();
    for (size_t i = 0; i < COUNT(names); i++)
        expect_refused_as(names[i].selector, (struct ha_shape){ .dtype = HA_F16 }, names[i].reason);
    struct ha_source *src;
    assert_int_equal(set->open(set, &src, &(struct ha_shape){ .dtype = HA_F16 }, 0, 1, NULL, &why), HA_ERROR);
    assert_int_equal(set->find(workload_file(".nosuch"), &why), HA_ERROR);
}

TEST(spoilt_texts_are_refused)
{
    static const struct {
        bool definition; /* or the workload */
        const char *from, *to, *reason;
    } texts[] = {
        { false, "}\n", "", "line 1 is not JSON: byte" },
        { false, "{\"definition\"", "[\"definition\"", "line 1 is not JSON" },
        { false, "\"definition\"", "\"def\"", "line 1 is no workload" },
        { false, "\"workload\"", "\"work\"", "line 1 is no workload" },
        { false, "\"some\"", "\"none\"",
          "definition none is neither in ../../definitions/gqa, seen from the workload, nor beside it" },
        { false, "\"some\"", "\"gqa/some\"", "definition 'gqa/some' is not the name of a file" },
        { false, "\"some\"", "\"\"", "definition '' is not the name of a file" },
        { true, "{", "[", "definition some is not JSON: line 1" },
        { true, "gqa_paged", "mla_paged", "op_type 'mla_paged' is neither gqa_paged nor gqa_ragged" },
        { true, "op_type", "op", "op_type '' is neither" },
        { true, "gqa_paged", "gqa_ragged", "the definition has no input k" },
        { true, "head_dim", "dim", "the definition has no constant axis head_dim" },
        { true, "\"value\": 8", "\"value\": 0", "axis head_dim is 0; from 1 to 1024" },
        { true, "\"value\": 8", "\"value\": 8.5", "axis head_dim is not a whole number" },
        { true, "\"value\": 16", "\"value\": 2000000", "axis page_size is 2000000; from 1 to" },
        { true, "\"value\": 2}", "\"value\": 3}", "4 query heads are not a multiple of 3 KV heads" },
        { true, "\"kv_indices\"", "\"k_scale\"", "the definition has no input kv_indices" },
        { true, "\"sm_scale\"", "\"k_scale\"", "the definition has an input 'k_scale', which is not read" },
        { true, "\"page_size\", \"num_kv_heads\"", "\"num_kv_heads\", \"page_size\"",
          "shape of k_cache is not [* page_size num_kv_heads head_dim]" },
        { true, "\"page_size\", \"num_kv_heads\"", "\"page_size\"", "shape of k_cache is not" },
        { true, "\"page_size\", \"num_kv_heads\"", "\"page_size\", \"num_qo_heads\"", "shape of k_cache is not" },
        { true, "\"num_qo_heads\", \"head_dim\"]", "\"num_qo_heads\", \"head_dim\", \"head_dim\"]",
          "shape of q has 4 axes, not 3" },
        { true, "\"kv_last_page_len\"", "\"other\"", "which is not read" },
        { true, ", \"kv_last_page_len\": {\"shape\": [\"batch\"]}", "",
          "pages have 16 tokens, and there is no kv_last_page_len" },
        { false, "\"q\"", "\"p\"", "the workload has no input q" },
        { false, "\"kv_indptr\"", "\"kv\"", "the workload has no input kv_indptr" },
        { false, "\"type\": \"random\"", "\"type\": \"scalar\", \"value\": 1", "input q is of type 'scalar'" },
        { false, "\"type\": \"safetensors\", \"path\": \"./blob/x.safetensors\", \"tensor_key\": \"kv\"",
          "\"type\": \"random\"",
          "input kv_indptr is of type 'random', and has to be safetensors: without it no length is known" },
        { false, "\"scalar\"", "\"random\"", "input sm_scale is of type 'random', and has to be scalar" },
        { false, "0.25", "\"0.25\"", "has to be scalar with a number" },
        { false, "0.25", "0", "sm_scale=0 is not" },
        { false, "0.25", "-1", "sm_scale=-1 is not" },
        { false, "0.25", "1e300", "sm_scale=1e+300 is not" },
        { false, "\"path\"", "\"paths\"", "a tensor has a path and a tensor_key" },
        { false, "./blob/x.safetensors", "/dev/null", "path '/dev/null' leaves the folder" },
        { false, "./blob/x.safetensors", "../x.safetensors", "path '../x.safetensors' leaves the folder" },
        { false, "./blob/x.safetensors", "blob/../../x", "leaves the folder" },
        { false, "./blob/x.safetensors", "blob/..", "leaves the folder" },
        { false, "./blob/x.safetensors", "./blob/y.safetensors", "cannot open: No such file" },
        { false, "./blob/x.safetensors", "workloads/gqa/w.jsonl", "not a safetensors file" },
        { false, "\"kv\"}", "\"kw\"}", "there is no tensor 'kw'" },
        { false, "\"kv\"}", "\"q\"}", "tensor kv_indptr is not of I32 or I64" },
        { false, "\"len_indptr\": 4", "\"len_indptr\": 5",
          "tensor kv_indptr has 4 in dimension 0, axis len_indptr says 5" },
        { false, "\"num_pages\"", "\"num_pages\": 3, \"pages\"", "and there are 3 pages" },
        { false, "\"num_pages\"", "\"num_pages\": -3, \"pages\"", "axis num_pages is not a whole number" },
        { false, "\"batch_size\": 3", "\"batch_size\": 2", "q has 2 rows for 3 sequences" },
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        workload_make(DECODE, 16, HA_T_OTHER);
        if (i == 0) workload_write_tensors();
        workload_replace(texts[i].definition ? made.definition : made.workload, texts[i].from, texts[i].to);
        workload_write_texts();
        expect_refused(texts[i].reason);
    }
}

TEST(spoilt_indices_are_refused)
{
    static const struct {
        size_t tensor, at;
        int32_t value;
        const char *reason;
    } indices[] = {
        { KV_INDPTR, 0, 1, "kv_indptr[0] is 1: it begins at 0 and never falls" },
        { KV_INDPTR, 1, -1, "kv_indptr[1] is -1: it begins" },
        { KV_INDPTR, 2, 1, "kv_indptr[2] is 1: it begins at 0 and never falls" },
        { KV_INDPTR, 3, 10, "kv_indptr[3] is 10, and there are 9 kv_indices" },
        { KV_INDPTR, 1, 0, "sequence 0 has 0 keys and 5 queries" },
        { QO_INDPTR, 0, 1, "qo_indptr[0] is 1" },
        { QO_INDPTR, 2, 3, "qo_indptr[2] is 3: it begins" },
        { QO_INDPTR, 3, 16, "qo_indptr[3] is 16, and there are 15 queries" },
        { QO_INDPTR, 1, 0, "sequence 0 has 37 keys and 0 queries" },
        { QO_INDPTR, 1, 6,
          "sequence 0 has 6 queries and sequence 1 has 4, and q_len is one for all: choose those of one "
          "length, as in FILE@1:0-0" },
        { KV_INDICES, 5, 11, "kv_indices[5] is 11, and there are 11 pages" },
        { KV_INDICES, 0, -1, "kv_indices[0] is -1, and" },
        { LAST_PAGE_LEN, 1, 0, "kv_last_page_len[1] is 0; from 1 to 16 is possible" },
        { LAST_PAGE_LEN, 2, 17, "kv_last_page_len[2] is 17; from 1 to 16" },
        { LAST_PAGE_LEN, 0, -1, "kv_last_page_len[0] is -1" },
        { LAST_PAGE_LEN, 2, 4, "sequence 2 has 4 keys and 5 queries" },
    };
    for (size_t i = 0; i < COUNT(indices); i++) {
        workload_make(PREFILL, 16, HA_T_F16);
        made.index[indices[i].tensor][indices[i].at] = indices[i].value;
        workload_write();
        expect_refused(indices[i].reason);
    }
}

TEST(spoilt_tensors_are_refused)
{
    workload_make(PREFILL, 16, HA_T_F32);
    made.tensor[V].dim[1] /= 2;
    made.tensor[V].bytes /= 2;
    workload_write();
    expect_refused("tensor v_cache has 8 in dimension 1, axis page_size says 16");
    workload_make(PREFILL, 16, HA_T_F32);
    made.tensor[KV_INDPTR].type = HA_T_F32;
    workload_write();
    expect_refused("tensor kv_indptr is not of I32 or I64");
    workload_make(PREFILL, 16, HA_T_F32);
    made.tensor[KV_INDPTR].dims = 2;
    made.tensor[KV_INDPTR].dim[1] = 1;
    workload_write();
    expect_refused("tensor kv_indptr has 2 dimensions, the definition 1");
    workload_make(PREFILL, 16, HA_T_F32);
    made.tensor[Q].type = HA_T_I32;
    workload_write();
    expect_refused("tensor q is not of F16, BF16, F32");
    workload_make(PREFILL, 16, HA_T_F32);
    made.tensor[QO_INDPTR].dim[0] = 3;
    made.tensor[QO_INDPTR].bytes = 12;
    workload_replace(made.workload, ", \"len_indptr\": 4", "");
    workload_write();
    expect_refused("qo_indptr has 3 entries, kv_indptr 4");
    made.tensor[KV_INDPTR].dim[0] = 1;
    made.tensor[KV_INDPTR].bytes = 4;
    workload_write();
    expect_refused("kv_indptr has 1 entries: there is no sequence");
    static const struct {
        size_t part;
        float value;
        const char *reason;
    } values[] = { { Q, NAN, "tensor q is nan in row" },
                   { K, INFINITY, "tensor k is inf in row 37, head 0, dimension 0" },
                   { V, 1e30f, "tensor v is 1e+30 in row 37, head 0, dimension 0, too large: use another dtype" } };
    for (size_t i = 0; i < COUNT(values); i++) {
        workload_make(RAGGED, 1, HA_T_F32);
        const size_t row = values[i].part == Q ? made.fresh : keys_of[0];
        ha_store(made.stored[values[i].part], row * (values[i].part == Q ? Q_HEADS : KV_HEADS) * DIM, HA_F32,
                 values[i].value);
        workload_write();
        expect_refused(values[i].reason);
    }
}

TEST(a_batch_has_at_most_256_sequences)
{
    static int32_t at[302];
    struct ha_shape s = { .dtype = HA_F16 };
    workload_make(DECODE, 1, HA_T_OTHER);
    for (size_t i = 0; i < COUNT(at); i++) at[i] = (int32_t)(i < 118 ? i : 118);
    made.tensor[KV_INDPTR].data = at;
    made.tensor[KV_INDPTR].bytes = sizeof at;
    made.tensor[KV_INDPTR].dim[0] = COUNT(at);
    workload_replace(made.workload, "\"len_indptr\": 4", "\"len_indptr\": 302");
    workload_replace(made.workload, "\"batch_size\": 3", "\"batch_size\": 301");
    workload_write();
    expect_refused("has 301 sequences, a batch at most 256: choose, as in FILE@1:0-255");
    expect_refused_as("@1:0-256", (struct ha_shape){ .dtype = HA_F16 }, "are more than the 256 of a batch");
    expect_refused_as("@1:0-255", (struct ha_shape){ .dtype = HA_F16 }, "sequence 118 has 0 keys and 1 queries");
    set->close(workload_open("@1:0-117", &s, 1));
    assert_int_equal(s.batch, 118);
    assert_int_equal(s.ctx[117], 0);
}

/* Whatever a byte of the texts becomes, there is a source or a reason. */
TEST(any_byte_may_be_wrong)
{
    const size_t step = HA_SANITIZED ? 13 : 2;
    static const char bytes[] = { '"', '}', '9', 0 };
    workload_make(PREFILL, 16, HA_T_OTHER);
    workload_write();
    for (size_t i = 0; i < 2; i++) {
        char *text = i ? made.workload : made.definition;
        for (size_t at = 0; at < strlen(text); at += step)
            for (size_t k = 0; k < COUNT(bytes); k++) {
                const char was = text[at];
                struct ha_shape s = { .dtype = HA_F16 };
                struct ha_source *src;
                if (bytes[k]) text[at] = bytes[k];
                else text[at] = (char)0x80;
                workload_write_texts();
                *why.text = 0;
                if (set->open(set, &src, &s, 0, 1, workload_file(""), &why) == HA_OK) set->close(src);
                else assert_true(*why.text && !src);
                text[at] = was;
            }
    }
}

TEST_MAIN { return test_all("flashinfer", workload_setup, test_folder_remove); }
