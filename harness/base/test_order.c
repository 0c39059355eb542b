#include "harness/base/order.h"

#include "harness/base/operands.h"
#include "harness/base/test.h"
#include "harness/base/why.h"
#include "harness/base/worker.h"

static struct ha_order *order;
static size_t host, main_stream, link;
static unsigned char memory[4096];
static struct ha_why why;

static int start(void **state)
{
    if (ha_order_create(&order, &why) != HA_OK) return 1;
    host = ha_order_actor(order, "0", true);
    main_stream = ha_order_actor(order, "main", false);
    link = ha_order_actor(order, "link", false);
    ha_order_memory(order, "device", memory, sizeof memory);
    return 0;
}

static int finish(void **state)
{
    ha_order_destroy(order);
    return 0;
}

/* ---- hand-written histories -------------------------------------------------------------------------------------- */

static void access_rows(size_t actor, enum ha_access access, size_t at, size_t rows, size_t stride, size_t bytes)
{
    ha_order_access(order, actor, access == HA_WRITE ? "put" : "get", "x", access,
                    (struct ha_range){ memory + at, rows, stride, bytes });
}
static void put(size_t actor, size_t at, size_t bytes) { access_rows(actor, HA_WRITE, at, 1, 0, bytes); }

static void assert_ordered(void)
{
    if (ha_order_verdict(order, &why) != HA_OK) fail_msg("%s", why.text);
}
static void assert_conflict(const char *text)
{
    assert_int_equal(ha_order_verdict(order, &why), HA_FAIL);
    if (!strstr(why.text, text)) fail_msg("'%s' does not say '%s'", why.text, text);
}

TEST_WITH(an_index_names_what_was_said, start, finish)
{
    const struct ha_range some[] = { { memory + 64, 2, 32, 16 }, { memory + 256, 1, 0, 64 } };
    const struct ha_range all = { memory, 1, 0, SIZE_MAX }, none = { memory, 1, 0, 0 };
    ha_order_names(order, memory, &none);
    ha_order_access(order, main_stream, "get", "x", HA_READ, all);
    put(link, 0, 1);
    for (size_t i = 0; i < 2; i++) ha_order_names(order, memory + 10, &some[i]);
    ha_order_access(order, main_stream, "get", "x", HA_READ, all);
    put(link, 80, 16);
    put(link, 112, 144);
    put(link, 320, 64);
    assert_ordered();
    ha_order_names(order, memory, NULL);
    ha_order_names(order, memory, &some[1]);
    ha_order_access(order, host, "get", "x", HA_READ, all);
    put(link, 96, 1);
    assert_conflict("bytes [96, 97)");
}

/* A history of the host thread, the stream "main" and the stream "link" (h, m, l), word by word; AT+COUNT are bytes of
 * the device's memory:
 *     m!0+64  it writes them; m!0+16x8/64: 8 rows of them, 64 bytes apart
 *     m?0+64  it reads them
 *     m^2     it signals 2: records the event, or writes the flag
 *     m~2     it waits for a signal of 2 at least; m-2: the same, of which there is none
 *     m<l     it follows the other: what that one did is over
 *     m*      from now on nothing is known of it; m.: and from now on again
 *     m#, m+  the memory is freed, and is there again
 *     @3/7    step 3 and layer 7 from now on
 *     =       all of it was in order so far */
static void play(const char *history)
{
    static const int signal;
    for (const char *at = history; *at; at += *at == ' ') {
        const size_t actor = *at == 'h'   ? host
                             : *at == 'm' ? main_stream
                                          : link,
                     other = at[2] == 'h' ? host : main_stream;
        unsigned n[4] = { 0, 0, 1, 0 };
        const char what = *at == '=' || *at == '@' ? *at : at[1];
        sscanf(at + (what == '@' ? 1 : 2), what == '@' ? "%u/%u" : "%u+%ux%u/%u", &n[0], &n[1], &n[2], &n[3]);
        switch (what) {
        case '!': access_rows(actor, HA_WRITE, n[0], n[2], n[3], n[1]); break;
        case '?': access_rows(actor, HA_READ, n[0], n[2], n[3], n[1]); break;
        case '^': ha_order_signal(order, actor, &signal, n[0]); break;
        case '~': assert_true(ha_order_await(order, actor, &signal, n[0])); break;
        case '-': assert_false(ha_order_await(order, actor, &signal, n[0])); break;
        case '<': ha_order_follow(order, actor, other); break;
        case '*': ha_order_unknown(order, actor, true); break;
        case '.': ha_order_unknown(order, actor, false); break;
        case '@': ha_order_at(order, n[0], n[1]); break;
        case '=': assert_ordered(); break;
        case '#': ha_order_freed(order, actor, memory); break;
        case '+': ha_order_memory(order, "device", memory, sizeof memory); break;
        default: fail_msg("%s", at);
        }
        at += strcspn(at, " ");
    }
}

TEST(what_nothing_orders_is_a_conflict)
{
    static const struct {
        const char *history, *conflict; /* NULL: none */
    } each[] = {
        { "m!0+64 m?0+64 m!32+64", NULL },
        { "m!0+64 l?64+64 = l?63+2",
          "write of x by put on main, read of x by get on link: nothing orders them; bytes [63, 64) of 4096, device "
          "memory; event_record on main behind the one, stream_wait on link before the other" },
        { "m?0+64 l?0+64", NULL },
        { "m?0+64 l!0+1", "read of x by get on main, write of x by put on link" },
        /* every read since the write counts */
        { "m?0+64 h?0+64 h^0 l~0 l!0+64", "read of x by get on main, write of x by put on link" },
        /* an event orders what is before its record, if there was one: the latest before the wait */
        { "m!0+64 m^0 m!64+64 l~0 l?0+64 = l?64+1", "bytes [64, 65)" },
        { "m!0+64 l-0 l?0+64", "nothing orders them" },
        { "m^0 m!0+64 l~0 m^0 l?0+64", "nothing orders them" },
        { "m^0 m!0+64 m^0 l~0 l?0+64", NULL },
        /* order is passed on: by a sync, by what is enqueued then, by an event */
        { "m!0+64 h<m l<h l!0+64 l^0 m~0 m?0+64 = h!0+64", "write of x by put on link, write of x by put on thread 0" },
        { "m<h m!0+64 h?0+64", "event_record on main behind the one, event_sync before the other" },
        { "m!0+64 h<m h?0+64 = m!64+64 h?64+64", "read of x by get on thread 0" },
        /* A wait is over with any of the writes that are enough: only what they have in common is ordered. */
        { "m!0+64 m^1 m!64+64 m^2 h-3 l~1 l?0+64 = h~2 h?64+64 = l?64+64", "read of x by get on link" },
        { "m!0+16x8/64 l!16+48x8/64 = h?15+1", "bytes [15, 16)" },
        { "m!0+64 h<m h# l?0+64 h+ l!0+64", NULL }, /* what is freed is nobody's, and what comes back is new */
        { "l* l!0+64 m!0+64 = l. l!0+64", "put on link" },
        { "@3/7 m!0+64 @4/0 l?0+64", "put on main (step 3 layer 7), read of x by get on link (step 4 layer 0)" },
    };
    for (size_t i = 0; i < COUNT(each); i++) {
        assert_int_equal(start(NULL), 0);
        play(each[i].history);
        if (each[i].conflict) assert_conflict(each[i].conflict);
        else assert_ordered();
        finish(NULL);
    }
}

/* Against a byte for a byte: who wrote it last, of two streams that nothing orders. */
TEST_WITH(intervals_are_as_bytes_would_be, start, finish)
{
    uint32_t x = 1;
    for (size_t round = 0; round < 300; round++) {
        unsigned char owner[256] = { 0 };
        bool expected = false;
        finish(NULL);
        assert_int_equal(start(NULL), 0);
        for (size_t i = 0; i < 12; i++) {
            size_t draw[5];
            for (size_t k = 0; k < 5; k++) draw[k] = (x = x * 1664525 + 1013904223) >> 16;
            const size_t at = draw[0] % 100, rows = 1 + draw[1] % 5, bytes = 1 + draw[2] % 12,
                         stride = bytes + draw[3] % 15, who = 1 + draw[4] % 8 / 7;
            for (size_t r = 0; r < rows; r++)
                for (size_t b = 0; b < bytes; b++) {
                    unsigned char *o = &owner[at + r * stride + b];
                    expected |= *o && *o != who;
                    *o = (unsigned char)who;
                }
            access_rows(who == 1 ? main_stream : link, HA_WRITE, at, rows, stride, bytes);
            assert_int_equal(ha_order_verdict(order, &why), expected ? HA_FAIL : HA_OK);
        }
    }
}

TEST_WITH(memory_is_freed_behind_all_that_used_it, start, finish)
{
    static unsigned char other[64];
    ha_order_memory(order, "pinned", other, sizeof other);
    ha_order_access(order, link, "copy", "source", HA_READ, (struct ha_range){ other, 1, 0, 64 });
    put(main_stream, 0, 64);
    ha_order_follow(order, host, main_stream);
    ha_order_freed(order, host, memory);
    assert_ordered();
    ha_order_freed(order, host, other);
    assert_conflict("read of source by copy on link, the end of that memory: nothing orders them");
}

TEST_WITH(the_place_of_one_that_is_over_is_taken, start, finish)
{
    for (size_t i = 0; i < 4 * HA_ORDER_ACTORS; i++) {
        const size_t a = ha_order_actor(order, "for a while", false);
        ha_order_follow(order, a, host);
        put(a, 0, 64);
        ha_order_retire(order, a, host);
        put(host, 0, 64);
        ha_order_follow(order, main_stream, host);
    }
    assert_ordered();
    for (size_t i = 0; i < HA_ORDER_ACTORS; i++) ha_order_actor(order, "for good", false);
    assert_int_equal(ha_order_verdict(order, &why), HA_ERROR);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static void store(void *arg) { ha_order_thread_access("store", "x", HA_WRITE, memory, 1, 0, 64); }

static enum ha_status background(bool waits)
{
    struct ha_worker *worker;
    assert_int_equal(ha_order_begin(&why), HA_OK);
    ha_order_thread_memory(memory, sizeof memory);
    assert_int_equal(ha_worker_create(&worker, &why), HA_OK);
    store(NULL);
    const uint64_t ticket = ha_worker_submit(worker, "store", store, NULL);
    if (waits) ha_worker_wait(worker, ticket);
    store(NULL);
    ha_worker_destroy(worker);
    const enum ha_status status = ha_order_verdict(ha_order_now(), &why);
    ha_order_end();
    return status;
}

TEST(a_background_thread_is_ordered_by_its_queue)
{
    for (size_t i = 0; i < 50; i++) {
        assert_int_equal(background(true), HA_OK);
        assert_int_equal(background(false), HA_FAIL); /* whichever came first */
    }
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

struct seen {
    size_t count, rows[16], stride[16], bytes[16];
    const void *at[16];
    const char *role[16];
    enum ha_access access[16];
};

static void see(void *arg, const char *role, enum ha_access access, struct ha_range range)
{
    struct seen *s = arg;
    assert_true(s->count < 16);
    s->role[s->count] = role;
    s->access[s->count] = access;
    s->at[s->count] = range.at;
    s->rows[s->count] = range.rows;
    s->stride[s->count] = range.stride;
    s->bytes[s->count++] = range.bytes;
}

static void assert_seen(const struct seen *s, size_t i, const char *role, enum ha_access access, const void *at,
                        size_t rows, size_t stride, size_t bytes)
{
    assert_true(i < s->count);
    assert_string_equal(s->role[i], role);
    assert_int_equal(s->access[i], access);
    assert_ptr_equal(s->at[i], at);
    assert_int_equal(s->rows[i], rows);
    if (rows > 1) assert_int_equal(s->stride[i], stride);
    assert_int_equal(s->bytes[i], bytes);
}

TEST(attention_reads_all_heads_of_all_rows)
{
    float q[64], o[64], lse[4];
    /* tokens of 2 KV heads of 8 halves side by side: one stretch; then heads one after the other, tokens further apart
     */
    const struct ha_device_seq seq[2] = {
        { .q = q,
          .o = o,
          .lse = lse,
          .runs = { { memory, memory + 1024, 32, 32, NULL, 5 } },
          .runs_count = 1,
          .k_head_bytes = 16,
          .v_head_bytes = 16 },
        { .q = q,
          .o = o,
          .lse = lse,
          .runs = { { memory, memory + 2048, 48, 16, NULL, 3 } },
          .runs_count = 1,
          .k_head_bytes = 512,
          .v_head_bytes = 512 },
    };
    struct ha_device_attend a = {
        .batch = 1, .q_len = 1, .q_heads = 4, .kv_heads = 2, .head_dim = 8, .dtype = HA_F16, .seqs = seq
    };
    struct seen s = { 0 };
    ha_operands_device_attend(&a, see, &s);
    assert_int_equal(s.count, 5);
    assert_seen(&s, 0, "q", HA_READ, q, 1, 0, 128);
    assert_seen(&s, 1, "K", HA_READ, memory, 5, 32, 32);
    assert_seen(&s, 2, "V", HA_READ, memory + 1024, 5, 32, 32);
    assert_seen(&s, 3, "o", HA_WRITE, o, 1, 0, 128);
    assert_seen(&s, 4, "lse", HA_WRITE, lse, 1, 0, 16);
    a.seqs = seq + 1;
    s = (struct seen){ 0 };
    ha_operands_device_attend(&a, see, &s);
    assert_int_equal(s.count, 6);
    assert_seen(&s, 1, "K", HA_READ, memory, 3, 48, 16);
    assert_seen(&s, 2, "K", HA_READ, memory + 512, 3, 48, 16);
    assert_seen(&s, 3, "V", HA_READ, memory + 2048, 2, 512, 48);
}

/* Queries head by head; a list of blocks of two keys for each query head, further apart than it is long. */
TEST(attention_reads_each_head_s_list)
{
    float q[76], o[76], lse[8];
    uint32_t index[15], all[2], list_keys[4];
    const struct ha_device_seq seq = {
        .q = q,
        .o = o,
        .lse = lse,
        .runs = { { memory, memory + 1024, 32, 32, index, 5 }, { memory, memory + 1024, 32, 32, all, 3 } },
        .runs_count = 2,
        .k_head_bytes = 16,
        .v_head_bytes = 16,
        .list_stride = 4,
        .list_keys = list_keys,
    };
    const struct ha_device_attend a = { .batch = 1,
                                        .q_len = 2,
                                        .q_heads = 4,
                                        .kv_heads = 2,
                                        .head_dim = 8,
                                        .dtype = HA_F16,
                                        .seqs = &seq,
                                        .block = 2,
                                        .lists = 4,
                                        .q_token_stride = 8,
                                        .q_head_stride = 20 };
    struct seen s = { 0 };
    ha_operands_device_attend(&a, see, &s);
    assert_int_equal(s.count, 10);
    assert_seen(&s, 0, "q", HA_READ, q, 4, 80, 64);
    assert_seen(&s, 1, "list_keys", HA_READ, list_keys, 1, 0, 16);
    assert_seen(&s, 2, "K", HA_READ, memory, 1, 0, SIZE_MAX);
    assert_seen(&s, 3, "V", HA_READ, memory + 1024, 1, 0, SIZE_MAX);
    assert_seen(&s, 4, "index", HA_READ, index, 4, 16, 12);
    assert_seen(&s, 7, "index", HA_READ, all, 1, 0, 8);
    assert_seen(&s, 8, "o", HA_WRITE, o, 4, 80, 64);
    assert_seen(&s, 9, "lse", HA_WRITE, lse, 1, 0, 32);
}

TEST(a_merge_reads_its_states_and_writes_its_result)
{
    float o[2][64], lse[2][8], out[64], out_lse[8];
    const struct ha_merge_state states[2] = { { o[0], lse[0], NULL, 16, 8, 2, 1 },
                                              { o[1], lse[1], NULL, 16, 8, 1, 4 } };
    const struct ha_merge m = { .form = HA_FORM_NATURAL,
                                .dtype = HA_F32,
                                .states = states,
                                .states_count = 2,
                                .tokens = 4,
                                .heads = 2,
                                .dim = 8,
                                .out = { out, out_lse, NULL, 16, 8, 2, 1 } };
    struct seen s = { 0 };
    ha_operands_device_merge(&m, see, &s);
    assert_int_equal(s.count, 6);
    assert_seen(&s, 0, "o of a state", HA_READ, o[0], 4, 64, 64);
    assert_seen(&s, 1, "lse of a state", HA_READ, lse[0], 4, 8, 8);
    assert_seen(&s, 3, "lse of a state", HA_READ, lse[1], 2, 16, 16); /* heads before tokens */
    assert_seen(&s, 4, "o", HA_WRITE, out, 4, 64, 64);
    assert_seen(&s, 5, "lse", HA_WRITE, out_lse, 4, 8, 8);
}

TEST(lists_are_written_as_far_as_they_may_reach)
{
    float x[60];
    uint32_t index[20], keys[3], only[3], slot[24], here[20], missing[20], count[2][3];
    const struct ha_device_topk_seq most[2] = {
        { .x = x, .n = 9, .k = 4, .stride = 10, .index = index, .index_stride = 5, .keys = keys, .only = only },
        { .x = x, .n = 3, .k = 4, .stride = 10, .index = index, .index_stride = 5 },
    };
    struct seen s = { 0 };
    ha_operands_device_topk(&(struct ha_device_topk){ 2, 3, 2, most }, see, &s);
    assert_int_equal(s.count, 6);
    assert_seen(&s, 0, "x", HA_READ, x, 6, 40, 36);
    assert_seen(&s, 1, "index", HA_WRITE, index, 3, 20, 16);
    assert_seen(&s, 2, "keys", HA_WRITE, keys, 1, 0, 12);
    assert_seen(&s, 3, "only", HA_READ, only, 1, 0, 12);
    assert_seen(&s, 5, "index", HA_WRITE, index, 3, 20, 12);

    struct ha_device_split_seq part[2] = { { .index = index,
                                             .count = 4,
                                             .index_stride = 5,
                                             .slot = slot,
                                             .blocks = 10,
                                             .slot_stride = 12,
                                             .here = here,
                                             .here_count = count[0],
                                             .missing = missing,
                                             .missing_count = count[1],
                                             .out_stride = 6 } };
    part[1] = part[0];
    part[1].count = 0;
    part[1].missing = part[1].missing_count = NULL;
    s.count = 0;
    ha_operands_device_split(&(struct ha_device_split){ 2, 3, 2, part }, see, &s);
    assert_int_equal(s.count, 7);
    assert_seen(&s, 0, "index", HA_READ, index, 3, 20, 16);
    assert_seen(&s, 1, "slot", HA_READ, slot, 2, 48, 40);
    assert_seen(&s, 2, "here", HA_WRITE, here, 3, 24, 16);
    assert_seen(&s, 3, "here_count", HA_WRITE, count[0], 1, 0, 12);
    assert_seen(&s, 4, "missing", HA_WRITE, missing, 3, 24, 16);
    assert_seen(&s, 5, "missing_count", HA_WRITE, count[1], 1, 0, 12);
    assert_seen(&s, 6, "here_count", HA_WRITE, count[0], 1, 0, 12); /* of no blocks */
}

/* Of blocks of codes that are not whole the rows that are named, and no others. */
TEST(codes_are_written_row_by_row)
{
    enum { WORD = 64, BLOCK = 3 * WORD }; /* of 64 bits and a norm */
    float x[200], a[2 * 64 * 4], scores[200];
    uint32_t only[2];
    char codes[2 * 1024], q[2 * 256];
    const struct ha_device_hash_seq made[2] = {
        { .x = x, .tokens = 20, .token_stride = 9, .codes = codes, .code_head_bytes = 1024, .first = 30 },
        { .x = x, .tokens = 2, .token_stride = 9, .codes = codes, .code_head_bytes = 1024, .first = 3 },
    };
    struct seen s = { 0 };
    ha_operands_device_hash(&(struct ha_device_hash){ 2, 2, 1, 4, 64, HA_F32, a, made }, see, &s);
    assert_int_equal(s.count, 11);
    assert_seen(&s, 0, "a", HA_READ, a, 1, 0, sizeof a);
    assert_seen(&s, 1, "x", HA_READ, x, 20, 36, 32);
    assert_seen(&s, 2, "codes", HA_WRITE, codes + BLOCK + 56, 3, WORD, 8); /* rows 30 and 31 */
    assert_seen(&s, 3, "codes", HA_WRITE, codes + 1024 + BLOCK + 56, 3, WORD, 8);
    assert_seen(&s, 4, "codes", HA_WRITE, codes + 2 * BLOCK, 1, 0, BLOCK); /* to 47 */
    assert_seen(&s, 6, "codes", HA_WRITE, codes + 3 * BLOCK, 3, WORD, 8);  /* 48 and 49 */
    assert_seen(&s, 8, "x", HA_READ, x, 2, 36, 32);
    assert_seen(&s, 9, "codes", HA_WRITE, codes + 12, 3, WORD, 8);
    assert_seen(&s, 10, "codes", HA_WRITE, codes + 1024 + 12, 3, WORD, 8);

    const struct ha_device_hamming_seq asked = { q, codes, 256, 1024, 33, scores, 40, only };
    s.count = 0;
    ha_operands_device_hamming(&(struct ha_device_hamming){ 1, 2, 2, 64, &asked }, see, &s);
    assert_int_equal(s.count, 8);
    assert_seen(&s, 0, "q", HA_READ, q, 2, WORD, 8); /* no norms */
    assert_seen(&s, 1, "q", HA_READ, q + 256, 2, WORD, 8);
    assert_seen(&s, 2, "codes", HA_READ, codes, 2, BLOCK, BLOCK);
    assert_seen(&s, 3, "codes", HA_READ, codes + 1024, 2, BLOCK, BLOCK);
    assert_seen(&s, 4, "codes", HA_READ, codes + 2 * BLOCK, 3, WORD, 4);
    assert_seen(&s, 6, "only", HA_READ, only, 1, 0, 8);
    assert_seen(&s, 7, "scores", HA_WRITE, scores, 4, 160, 132);
}

TEST(codes_of_the_cpu_are_written_row_by_row)
{
    float x[40], a[32 * 4], scores[40];
    char codes[1024], q[256];
    const uint32_t index[3] = { 5, 0, 2 };
    struct seen s = { 0 };
    ha_operands_hash(&(struct ha_hash){ a, 32, { x, NULL, 20, 0, index, 3 }, 4, HA_F32, codes, 14 }, see, &s);
    assert_int_equal(s.count, 6);
    assert_seen(&s, 0, "a", HA_READ, a, 1, 0, sizeof a);
    assert_seen(&s, 1, "x", HA_READ, (char *)x + 100, 1, 0, 16);
    assert_seen(&s, 4, "codes", HA_WRITE, codes + 56, 2, 64, 8);
    assert_seen(&s, 5, "codes", HA_WRITE, codes + 128, 2, 64, 4);
    s.count = 0;
    ha_operands_hamming(&(struct ha_hamming){ q, 2, 32, codes, 16, scores, 20, false }, see, &s);
    assert_int_equal(s.count, 3);
    assert_seen(&s, 0, "q", HA_READ, q, 1, 64, 8);
    assert_seen(&s, 1, "codes", HA_READ, codes, 1, 0, 128);
    assert_seen(&s, 2, "scores", HA_WRITE, scores, 2, 80, 64);
}

TEST(labels_are_written)
{
    float q[48], label[24], similar[2], importance[6], threshold[2];
    uint32_t missed[2];
    const struct ha_device_similarity_seq seq = { q, label, similar, missed };
    struct ha_device_similarity d = { 1, 2, 6, 2, 4, HA_SIMILAR_HARMONIC, importance, threshold, &seq };
    struct seen s = { 0 };
    ha_operands_device_similarity(&d, see, &s);
    assert_int_equal(s.count, 6);
    assert_seen(&s, 0, "importance", HA_READ, importance, 1, 0, 24);
    assert_seen(&s, 1, "threshold", HA_READ, threshold, 1, 0, 8);
    assert_seen(&s, 2, "q", HA_READ, q, 1, 0, sizeof q);
    assert_seen(&s, 3, "label", HA_WRITE, label, 1, 0, sizeof label);
    assert_seen(&s, 4, "similarity", HA_WRITE, similar, 1, 0, 8);
    assert_seen(&s, 5, "missed", HA_WRITE, missed, 1, 0, 8);
    s.count = 0;
    d.group = HA_SIMILAR_LEAST;
    ha_operands_device_similarity(&d, see, &s);
    assert_int_equal(s.count, 5);
    assert_seen(&s, 0, "threshold", HA_READ, threshold, 1, 0, 8);
}

/* 2 groups of 3 dimensions, codes of 3 bits: 12 bytes are the codes of a group of a block, and keys share bytes. */
static struct ha_pq pq_of(const float *centroid)
{
    return (struct ha_pq){ .centroid = centroid, .groups = 2, .dims = 3, .count = 5, .books = 2, .bits = 3 };
}

TEST(codes_of_groups_are_written_key_by_key)
{
    enum { GROUP = 12, BLOCK = 2 * GROUP, HEAD = 128 };
    float k[400], centroid[2 * 2 * 3 * 5], q[2 * 4 * 6], scores[4 * 80];
    char codes[2 * HEAD], table[2 * 256];
    uint32_t index[2];
    const struct ha_device_pq_encode_seq made[] = {
        { { k, NULL, 48, 0, NULL, 3 }, 24, codes, HEAD, 30 },  /* keys 30 to 32 */
        { { k, NULL, 24, 0, NULL, 66 }, 800, codes, HEAD, 0 }, /* to 65: two whole blocks, and 2 keys */
        { { k, NULL, 48, 0, index, 2 }, 24, codes, HEAD, 9 },
        { { k, NULL, 48, 0, NULL, 0 }, 24, codes, HEAD, 9 },
    };
    struct seen s = { 0 };
    ha_operands_device_pq_encode(&(struct ha_device_pq_encode){ 1, 2, pq_of(centroid), HA_F32, made }, see, &s);
    assert_int_equal(s.count, 6);
    assert_seen(&s, 0, "centroids", HA_READ, centroid, 1, 0, sizeof centroid);
    assert_seen(&s, 1, "K", HA_READ, k, 3, 48, 48);
    assert_seen(&s, 2, "codes", HA_WRITE, codes + 11, 2, GROUP, 1); /* bits 90 to 95 of each group */
    assert_seen(&s, 3, "codes", HA_WRITE, codes + HEAD + 11, 2, GROUP, 1);
    assert_seen(&s, 4, "codes", HA_WRITE, codes + BLOCK, 2, GROUP, 1); /* bits 0 to 2 */
    assert_seen(&s, 5, "codes", HA_WRITE, codes + HEAD + BLOCK, 2, GROUP, 1);
    s.count = 0;
    ha_operands_device_pq_encode(&(struct ha_device_pq_encode){ 1, 2, pq_of(centroid), HA_F32, made + 1 }, see, &s);
    assert_int_equal(s.count, 5);
    assert_seen(&s, 1, "K", HA_READ, k, 2, 800, 66 * 24);
    assert_seen(&s, 2, "codes", HA_WRITE, codes, 2, HEAD, 2 * BLOCK);
    assert_seen(&s, 3, "codes", HA_WRITE, codes + 2 * BLOCK, 2, GROUP, 1);
    s.count = 0;
    ha_operands_device_pq_encode(&(struct ha_device_pq_encode){ 2, 2, pq_of(centroid), HA_F32, made + 2 }, see, &s);
    assert_int_equal(s.count, 5);
    assert_seen(&s, 1, "K", HA_READ, k, 1, 0, SIZE_MAX);
    assert_seen(&s, 2, "index", HA_READ, index, 1, 0, sizeof index);
    assert_seen(&s, 3, "codes", HA_WRITE, codes + 3, 2, GROUP, 2); /* bits 27 to 32: they lie in two bytes */

    const struct ha_device_pq_table_seq asked = { q, table, 256 };
    s.count = 0;
    ha_operands_device_pq_table(&(struct ha_device_pq_table){ 1, 2, 4, 2, pq_of(centroid), HA_F16, &asked }, see, &s);
    assert_int_equal(s.count, 3);
    assert_seen(&s, 0, "centroids", HA_READ, centroid, 1, 0, sizeof centroid);
    assert_seen(&s, 1, "q", HA_READ, q, 1, 0, sizeof q);
    assert_seen(&s, 2, "table", HA_WRITE, table, 2, 256, 2 * 5 * 4 * 2); /* a group of 4 rows */

    const struct ha_device_pq_score_seq scored = { table, codes, 256, HEAD, 65, scores, 80 };
    s.count = 0;
    ha_operands_device_pq_score(&(struct ha_device_pq_score){ 1, 2, 2, pq_of(NULL), HA_F32, 1, &scored }, see, &s);
    assert_int_equal(s.count, 5);
    assert_seen(&s, 0, "table", HA_READ, table, 2, 256, 160);
    assert_seen(&s, 1, "codes", HA_READ, codes, 2, HEAD, 2 * BLOCK);
    assert_seen(&s, 2, "codes", HA_READ, codes + 2 * BLOCK, 2, GROUP, 1);
    assert_seen(&s, 4, "scores", HA_WRITE, scores, 4, 320, 260);
}

TEST(weights_and_lists_are_written)
{
    float x[6 * 40], lse[2 * 5], v[100], o[100];
    uint32_t keys[6], index[3 * 30];
    char w[2 * 6 * 32];
    struct seen s = { 0 };
    const struct ha_device_softmax_seq made[2] = { { x, 30, 40, lse, 5 }, { x, 30, 40, NULL, 0 } };
    ha_operands_device_softmax(&(struct ha_device_softmax){ 2, 3, 2, made }, see, &s);
    assert_int_equal(s.count, 3);
    assert_seen(&s, 0, "x", HA_WRITE, x, 6, 160, 120);
    assert_seen(&s, 1, "lse", HA_WRITE, lse, 2, 20, 12);

    const struct ha_device_topp_seq chosen = { x, 25, 40, keys, index, w, 30, 32 };
    s.count = 0;
    ha_operands_device_topp(&(struct ha_device_topp){ 1, 3, 2, 0.5, HA_F16, &chosen }, see, &s);
    assert_int_equal(s.count, 4);
    assert_seen(&s, 0, "x", HA_READ, x, 6, 160, 100);
    assert_seen(&s, 1, "keys", HA_WRITE, keys, 1, 0, 12);
    assert_seen(&s, 2, "index", HA_WRITE, index, 3, 120, 100);
    assert_seen(&s, 3, "weights", HA_WRITE, w, 6, 64, 50);

    const struct ha_device_weighted_sum_seq summed = { v, 8, 80, keys, index, w, 30, 32, o };
    s.count = 0;
    ha_operands_device_weighted_sum(&(struct ha_device_weighted_sum){ 1, 2, 3, 1, 4, HA_F16, HA_F16, &summed }, see,
                                    &s);
    assert_int_equal(s.count, 5);
    assert_seen(&s, 0, "V", HA_READ, v, 1, 0, SIZE_MAX);
    assert_seen(&s, 1, "keys", HA_READ, keys, 1, 0, 12);
    assert_seen(&s, 2, "index", HA_READ, index, 1, 0, sizeof index);
    assert_seen(&s, 3, "weights", HA_READ, w, 1, 0, sizeof w);
    assert_seen(&s, 4, "o", HA_WRITE, o, 1, 0, 96);
}

TEST(codes_of_groups_and_lists_of_the_cpu)
{
    float k[100], centroid[2 * 3 * 5], q[100], x[100], lse[2], o[40];
    char codes[64], table[256], w[256];
    uint32_t keys, index[3] = { 5, 0, 2 };
    struct seen s = { 0 };
    ha_operands_pq_encode(&(struct ha_pq_encode){ pq_of(centroid), { k, NULL, 28, 0, index, 3 }, HA_F32, codes, 4 },
                          see, &s);
    assert_int_equal(s.count, 5);
    assert_seen(&s, 0, "centroids", HA_READ, centroid, 1, 0, sizeof centroid);
    assert_seen(&s, 1, "K", HA_READ, (char *)k + 140, 1, 0, 24);
    assert_seen(&s, 4, "codes", HA_WRITE, codes + 1, 2, 12, 2); /* bits 12 to 20 */
    s.count = 0;
    ha_operands_pq_table(&(struct ha_pq_table){ pq_of(centroid), q, 2, 3, 30, 7, HA_F32, table }, see, &s);
    assert_int_equal(s.count, 4);
    assert_seen(&s, 1, "q", HA_READ, q, 3, 28, 24);
    assert_seen(&s, 2, "q", HA_READ, q + 30, 3, 28, 24);
    assert_seen(&s, 3, "table", HA_WRITE, table, 1, 0, 2 * 2 * 5 * 16);
    s.count = 0;
    ha_operands_pq_score(&(struct ha_pq_score){ pq_of(NULL), table, HA_F16, 3, codes, 33, 1, x, 40 }, see, &s);
    assert_int_equal(s.count, 4);
    assert_seen(&s, 0, "table", HA_READ, table, 1, 0, 80);
    assert_seen(&s, 1, "codes", HA_READ, codes, 1, 0, 24);
    assert_seen(&s, 2, "codes", HA_READ, codes + 24, 2, 12, 1);
    assert_seen(&s, 3, "scores", HA_WRITE, x, 3, 160, 132);
    s.count = 0;
    ha_operands_softmax(&(struct ha_softmax){ x, 2, 30, 40, lse }, see, &s);
    assert_int_equal(s.count, 2);
    assert_seen(&s, 0, "x", HA_WRITE, x, 2, 160, 120);
    assert_seen(&s, 1, "lse", HA_WRITE, lse, 1, 0, 8);
    s.count = 0;
    ha_operands_topp(&(struct ha_topp){ x, 2, 30, 40, 0.5, index, w, HA_F16, 50, &keys }, see, &s);
    assert_int_equal(s.count, 4);
    assert_seen(&s, 0, "x", HA_READ, x, 2, 160, 120);
    assert_seen(&s, 1, "keys", HA_WRITE, &keys, 1, 0, 4);
    assert_seen(&s, 2, "index", HA_WRITE, index, 1, 0, 120);
    assert_seen(&s, 3, "weights", HA_WRITE, w, 2, 100, 60);
    s.count = 0;
    ha_operands_weighted_sum(
        &(struct ha_weighted_sum){ { NULL, k, 0, 20, index, 3 }, 8, HA_F16, w, HA_F32, 2, 10, o, 9 }, see, &s);
    assert_int_equal(s.count, 6);
    assert_seen(&s, 0, "index", HA_READ, index, 1, 0, 12);
    assert_seen(&s, 1, "V", HA_READ, (char *)k + 100, 1, 0, 16);
    assert_seen(&s, 3, "V", HA_READ, (char *)k + 40, 1, 0, 16);
    assert_seen(&s, 4, "weights", HA_READ, w, 2, 40, 12);
    assert_seen(&s, 5, "o", HA_WRITE, o, 2, 36, 32);
}
