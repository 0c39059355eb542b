/* Ids: what is printed reads back the same; what is wrong is named, with the nearest right word. */

#include "suites/merge/id.h"

#include "harness/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct ha_merge_id parsed(const char *text)
{
    struct ha_merge_id id;
    struct ha_why why = { "" };
    memset(&id, 0xA5, sizeof id);
    if (ha_merge_id_parse(text, &id, &why) != HA_OK) fail_msg("'%s': %s", text, why.text);
    return id;
}

static void every_key(void **state)
{
    (void)state;
    static const char text[] =
        "lse_merge:case=empty_both,by=avx2,form=base2,dtype=f16,head_dim=80,states=7,order=chain,alias=first,"
        "layout=padded,rows=3x4,seed=4,row=2";
    const struct ha_merge_id id = parsed(text);
    char out[HA_MERGE_ID_MAX];
    assert_string_equal(id.what, "empty_both");
    assert_string_equal(id.by, "avx2");
    assert_int_equal(id.set, (1u << (HA_KEY_ROW + 1)) - 1);
    assert_int_equal(id.shape.form, HA_FORM_BASE2);
    assert_int_equal(id.shape.dtype, HA_F16);
    assert_int_equal(id.shape.dim, 80);
    assert_int_equal(id.shape.states, 7);
    assert_int_equal(id.shape.order, HA_ORDER_CHAIN);
    assert_int_equal(id.shape.alias, HA_ALIAS_FIRST);
    assert_int_equal(id.shape.layout, HA_LAYOUT_PADDED);
    assert_int_equal(id.shape.tokens, 3);
    assert_int_equal(id.shape.heads, 4);
    assert_int_equal(id.seed, 4);
    assert_int_equal(id.row, 2);
    ha_merge_id_print(&id, out);
    assert_string_equal(out, text);
}

static void the_word_alone(void **state)
{
    (void)state;
    const struct ha_merge_id id = parsed("lse_merge");
    char out[HA_MERGE_ID_MAX];
    assert_string_equal(id.what, "");
    assert_string_equal(id.by, "");
    assert_int_equal(id.set, 0);
    ha_merge_id_print(&id, out);
    assert_string_equal(out, "lse_merge");
}

static void any_order(void **state)
{
    (void)state;
    const struct ha_merge_id id = parsed("lse_merge:row=3,seed=18446744073709551615,case=x");
    char out[HA_MERGE_ID_MAX];
    assert_int_equal(id.set, 1u << HA_KEY_SEED | 1u << HA_KEY_ROW);
    assert_true(id.seed == UINT64_MAX);
    ha_merge_id_print(&id, out);
    assert_string_equal(out, "lse_merge:case=x,seed=18446744073709551615,row=3");
}

/* any subset of the keys with any values reads back as it was */
static void round_trip(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 4000; i++) {
        struct ha_merge_id id = { .set = (unsigned)ha_rng_below(7, 0, i, 1u << (HA_KEY_ROW + 1)) };
        char text[HA_MERGE_ID_MAX], again[HA_MERGE_ID_MAX];
        if (ha_rng_below(7, 1, i, 2)) snprintf(id.what, sizeof id.what, "case_%u", (unsigned)i);
        if (ha_rng_below(7, 2, i, 2)) memset(id.by, 'b', 1 + ha_rng_below(7, 3, i, 63));
        if (id.set & 1u << HA_KEY_FORM) id.shape.form = (enum ha_form)ha_rng_below(7, 4, i, HA_FORM_COUNT);
        if (id.set & 1u << HA_KEY_DTYPE) id.shape.dtype = (enum ha_dtype)ha_rng_below(7, 5, i, HA_DTYPE_COUNT);
        if (id.set & 1u << HA_KEY_DIM) id.shape.dim = 1 + ha_rng_below(7, 6, i, 1024);
        if (id.set & 1u << HA_KEY_STATES) id.shape.states = 1 + ha_rng_below(7, 7, i, 4096);
        if (id.set & 1u << HA_KEY_ORDER) id.shape.order = (enum ha_order)ha_rng_below(7, 8, i, HA_ORDER_COUNT);
        if (id.set & 1u << HA_KEY_ALIAS) id.shape.alias = (enum ha_alias)ha_rng_below(7, 9, i, HA_ALIAS_COUNT);
        if (id.set & 1u << HA_KEY_LAYOUT) id.shape.layout = (enum ha_layout)ha_rng_below(7, 10, i, HA_LAYOUT_COUNT);
        if (id.set & 1u << HA_KEY_ROWS) {
            id.shape.tokens = 1 + ha_rng_below(7, 11, i, 64);
            id.shape.heads = 1 + ha_rng_below(7, 12, i, 64);
        }
        const size_t rows = id.set & 1u << HA_KEY_ROWS ? id.shape.tokens * id.shape.heads : 4096;
        if (id.set & 1u << HA_KEY_SEED) id.seed = ha_rng_bits(7, 13, i);
        if (id.set & 1u << HA_KEY_ROW) id.row = ha_rng_below(7, 14, i, rows);
        ha_merge_id_print(&id, text);
        const struct ha_merge_id back = parsed(text);
        ha_merge_id_print(&back, again);
        assert_string_equal(text, again);
        assert_memory_equal(&id.shape, &back.shape, sizeof id.shape);
        assert_string_equal(id.what, back.what);
        assert_string_equal(id.by, back.by);
        assert_true(id.set == back.set && id.seed == back.seed && id.row == back.row);
    }
}

static void the_longest_fits(void **state)
{
    (void)state;
    struct ha_merge_id id = { .set = (1u << (HA_KEY_ROW + 1)) - 1, .seed = UINT64_MAX, .row = 4095 };
    id.shape = (struct ha_merge_shape){
        4096, 64, 64, 1024, HA_FORM_NATURAL, HA_BF16, HA_ORDER_CHAIN, HA_ALIAS_FIRST, HA_LAYOUT_HEADS_FIRST, false
    };
    char out[HA_MERGE_ID_MAX];
    memset(id.what, 'w', sizeof id.what - 1);
    memset(id.by, 'b', sizeof id.by - 1);
    ha_merge_id_print(&id, out);
    assert_true(strlen(out) < HA_MERGE_ID_MAX - 1);
    assert_int_equal(parsed(out).row, 4095);
}

static const struct {
    const char *text, *says;
} wrong[] = {
    { "", "unknown family ''" },
    { "lse_merg", "did you mean 'lse_merge'?" },
    { "lse_merge2", "did you mean 'lse_merge'?" },
    { "hgca:ctx=4", "unknown family 'hgca'" },
    { "lse_merge:", "'' is not key=value" },
    { "lse_merge:form=natural,", "'' is not key=value" },
    { "lse_merge:form", "'form' is not key=value" },
    { "lse_merge:from=natural", "lse_merge: unknown key 'from'; did you mean 'form'?" },
    { "lse_merge:state=2", "did you mean 'states'?" },
    { "lse_merge:zzzzzz=2", "it is one of: case by form dtype head_dim states order alias layout rows seed row" },
    { "lse_merge:form=natral", "unknown form 'natral'; did you mean 'natural'?" },
    { "lse_merge:dtype=fp16", "did you mean 'f16'?" },
    { "lse_merge:order=tre", "did you mean 'tree'?" },
    { "lse_merge:alias=frist", "did you mean 'first'?" },
    { "lse_merge:layout=head_first", "did you mean 'heads_first'?" },
    { "lse_merge:layout=", "it is one of: packed padded heads_first window" },
    { "lse_merge:case=", "case: a name is missing" },
    { "lse_merge:by=a b", "a blank" },
    { "lse_merge:case=0123456789012345678901234567890123456789012345678901234567890123", "longer than 63" },
    { "lse_merge:head_dim=0", "not within 1 .. 1024" },
    { "lse_merge:head_dim=1025", "not within 1 .. 1024" },
    { "lse_merge:head_dim=64x", "not a whole number" },
    { "lse_merge:head_dim=-1", "not a whole number" },
    { "lse_merge:states=4097", "not within 1 .. 4096" },
    { "lse_merge:states=0", "not within 1 .. 4096" },
    { "lse_merge:seed=18446744073709551616", "not within" },
    { "lse_merge:seed=99999999999999999999999", "not within" },
    { "lse_merge:seed=", "not a whole number" },
    { "lse_merge:rows=3", "TOKENSxHEADS" },
    { "lse_merge:rows=3x", "not a whole number" },
    { "lse_merge:rows=0x3", "not within 1 .. 64" },
    { "lse_merge:rows=3x65", "not within 1 .. 64" },
    { "lse_merge:rows=3x4x5", "TOKENSxHEADS" },
    { "lse_merge:row=4096", "not within 0 .. 4095" },
    { "lse_merge:rows=3x4,row=12", "row: 12 of 12 rows" },
    { "lse_merge:row=12,rows=3x4", "row: 12 of 12 rows" },
    { "lse_merge:seed=1,seed=2", "seed is given twice" },
};

static void wrong_ids_are_explained(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct ha_merge_id id, before;
        struct ha_why why = { "" };
        memset(&id, 0x5A, sizeof id);
        before = id;
        if (ha_merge_id_parse(wrong[i].text, &id, &why) != HA_ERROR) fail_msg("'%s' was taken", wrong[i].text);
        if (!strstr(why.text, wrong[i].says)) fail_msg("'%s': %s, and not: %s", wrong[i].text, why.text, wrong[i].says);
        assert_memory_equal(&id, &before, sizeof id);
    }
}

/* Bytes at random, and right ids with some bytes changed: an error or an id, which then prints and reads back. */
static void garbage(void **state)
{
    (void)state;
    static const char good[] =
        "lse_merge:case=a,by=b,form=max_sum,dtype=bf16,head_dim=80,states=7,order=tree,alias=last,"
        "layout=window,rows=3x4,seed=4,row=2";
    size_t taken = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        char text[512], out[HA_MERGE_ID_MAX];
        size_t n = (size_t)ha_rng_below(3, 0, i, sizeof text);
        for (size_t k = 0; k < n; k++) text[k] = (char)(1 + ha_rng_below(3, 1 + i, k, 255));
        if (i % 2) {
            n = sizeof good - 1;
            memcpy(text, good, n);
            for (uint64_t k = 0; k < 1 + i % 5; k++)
                text[ha_rng_below(3, 1 + i, k, n)] = "=:,x0129az_\n\xff"[ha_rng_below(4, i, k, 13)];
        }
        text[n] = 0;
        /* exactly as large as it is, so that the sanitizer sees a read past its end */
        char *exact = strdup(text);
        struct ha_merge_id id;
        struct ha_why why = { "" };
        assert_non_null(exact);
        if (ha_merge_id_parse(exact, &id, &why) == HA_OK) {
            ha_merge_id_print(&id, out);
            const struct ha_merge_id back = parsed(out);
            assert_int_equal(id.set, back.set);
            taken++;
        } else {
            assert_true(why.text[0]);
        }
        free(exact);
    }
    printf("garbage: %zu of 20000 were ids\n", taken);
    assert_true(taken > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key),  cmocka_unit_test(the_word_alone),   cmocka_unit_test(any_order),
        cmocka_unit_test(round_trip), cmocka_unit_test(the_longest_fits), cmocka_unit_test(wrong_ids_are_explained),
        cmocka_unit_test(garbage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
