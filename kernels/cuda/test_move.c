/* move and blend, beside plain loops: every byte of the destination, those between the rows too; read, spin and waits
 * by kernels. */

#include "harness/base/clock.h"
#include "harness/base/rng.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/test_launch.h"
#include "kernels/test_data.h"

/* ---- move */

struct problem {
    struct ha_device_move m;
    size_t pool; /* rows on a side that has an index */
    char *dst, *src, *want;
    size_t dst_bytes, src_bytes;
    uint32_t *index[2]; /* or NULL */
};

/* with_index: 1 the destination has one, 2 the source, 3 both */
static void make(struct problem *p, size_t rows, size_t row_bytes, size_t gap, unsigned with_index, size_t shift,
                 uint64_t seed)
{
    p->pool = rows + rows / 2 + 1;
    const size_t dst_rows = with_index & 1 ? p->pool : rows, src_rows = with_index & 2 ? p->pool : rows;
    p->m = (struct ha_device_move){ .rows = rows,
                                    .row_bytes = row_bytes,
                                    .dst_stride_bytes = row_bytes + gap,
                                    .src_stride_bytes = row_bytes + 2 * gap };
    /* the last row ends where the memory does */
    p->dst_bytes = shift + (dst_rows - 1) * p->m.dst_stride_bytes + row_bytes;
    p->src_bytes = shift + (src_rows - 1) * p->m.src_stride_bytes + row_bytes;
    p->dst = test_alloc(p->dst_bytes);
    p->want = test_alloc(p->dst_bytes);
    p->src = test_alloc(p->src_bytes);
    for (size_t i = 0; i < p->src_bytes; i++) p->src[i] = (char)ha_rng_bits(seed, 1, i);
    for (unsigned side = 0; side < 2; side++) {
        p->index[side] = with_index >> side & 1 ? test_alloc(rows * sizeof(uint32_t)) : NULL;
        if (p->index[side]) ha_test_choose(p->index[side], rows, p->pool, false, seed + side, 5);
    }
    p->m.dst = p->dst + shift;
    p->m.src = p->src + shift;
    p->m.dst_index = p->index[0];
    p->m.src_index = p->index[1];
    for (size_t i = 0; i < rows; i++)
        memcpy(p->want + shift + (p->index[0] ? p->index[0][i] : i) * p->m.dst_stride_bytes,
               p->src + shift + (p->index[1] ? p->index[1][i] : i) * p->m.src_stride_bytes, row_bytes);
}

static void drop(struct problem *p) { free(p->dst), free(p->src), free(p->want), free(p->index[0]), free(p->index[1]); }

static void moved(const struct problem *p, unsigned multiprocessors)
{
    memset(p->dst, 0xff, p->dst_bytes);
    test_done(ha_cuda_move(multiprocessors, NULL, &p->m));
    assert_memory_equal(p->dst, p->want, p->dst_bytes);
}

/* sizes that 16, 8, 4, 2 and 1 byte divide; strides and pointers that spoil it; one piece a thread, and eight */
TEST(every_shape)
{
    static const size_t bytes[] = { 1, 16, 6, 256, 3, 8, 2, 4, 12, 24, 48, 80, 100, 1000, 4112 },
                        rows[] = { 1, 2, 7, 300, 2100 };
    static const size_t gaps[] = { 0, 16, 8, 4, 2, 1 }, shifts[] = { 0, 8, 1, 4, 2 };
    size_t n = 0;
    for (size_t b = 0; b < COUNT(bytes); b++)
        for (size_t r = 0; r < COUNT(rows) && bytes[b] * rows[r] < 700000; r++)
            for (unsigned with_index = 0; with_index < 4; with_index++, n++) {
                if (test_small && n % 3) continue;
                struct problem p;
                make(&p, rows[r], bytes[b], gaps[n % COUNT(gaps)], with_index, shifts[n / 2 % COUNT(shifts)], n);
                test_order(n);
                moved(&p, n % 2 ? 132 : 1);
                drop(&p);
            }
}

/* of five things that must be aligned, one at a time is not: the sanitizers see what is accessed in too large pieces */
TEST(one_thing_unaligned)
{
    enum { ROWS = 3, BYTES = 32, STRIDE = 64, ROOM = 1024 };
    for (size_t thing = 0; thing < 5; thing++)
        for (size_t by = 1; by <= 16; by *= 2) {
            char *dst = test_alloc(ROOM), *src = test_alloc(ROOM);
            size_t add[5] = { 0 };
            add[thing] = by;
            const struct ha_device_move m = { .dst = dst + add[0],
                                              .src = src + add[1],
                                              .rows = ROWS,
                                              .row_bytes = BYTES + add[2],
                                              .dst_stride_bytes = STRIDE + add[3],
                                              .src_stride_bytes = STRIDE + add[4] };
            for (size_t i = 0; i < ROOM; i++) src[i] = (char)ha_rng_bits(thing, by, i);
            test_done(ha_cuda_move(1, NULL, &m));
            for (size_t i = 0; i < ROWS; i++)
                assert_memory_equal((char *)m.dst + i * m.dst_stride_bytes,
                                    (const char *)m.src + i * m.src_stride_bytes, m.row_bytes);
            free(dst), free(src);
        }
}

/* of every width, whatever way the threads take turns */
TEST(deep_and_shallow_agree)
{
    for (size_t width = 1; width <= 16; width *= 2)
        for (size_t order = 0; order < TEST_ORDERS; order++) {
            struct problem p;
            make(&p, 2333, 3 * width, 2 * width, 3, width, width);
            test_order(order);
            moved(&p, 1); /* 6999 pieces: more than 2048 */
            moved(&p, 1000);
            drop(&p);
        }
}

TEST(nothing_to_move)
{
    test_done(ha_cuda_move(2, NULL, &(struct ha_device_move){ .row_bytes = 16 }));
    test_done(ha_cuda_move(2, NULL, &(struct ha_device_move){ .rows = 16 }));
}

/* rows that lie further apart, and further on, than 32 bits count */
TEST(far_rows)
{
    enum { ROWS = 3, BYTES = 32 };
    const size_t stride = ((size_t)5 << 30) + 16, bytes = ROWS * stride;
    char *dst = test_sparse(bytes), *src = test_sparse(bytes);
    static const uint32_t back[ROWS] = { 2, 1, 0 };
    const struct ha_device_move m = { .dst = dst,
                                      .src = src,
                                      .dst_index = back,
                                      .rows = ROWS,
                                      .row_bytes = BYTES,
                                      .dst_stride_bytes = stride,
                                      .src_stride_bytes = stride };
    for (size_t i = 0; i < ROWS * BYTES; i++) src[i / BYTES * stride + i % BYTES] = (char)(i + 1);
    test_done(ha_cuda_move(1, NULL, &m));
    for (size_t i = 0; i < ROWS; i++) assert_memory_equal(dst + back[i] * stride, src + i * stride, BYTES);
    munmap(dst, bytes);
    munmap(src, bytes);
}

/* ---- blend */

static void blended(struct ha_device_blend *b, float *want, const float *before, size_t y_floats)
{
    memcpy(want, before, y_floats * sizeof *want);
    for (size_t r = 0; r < b->rows; r++)
        for (size_t i = 0; i < b->cols; i++) {
            float *y = want + r * b->y_stride + i;
            const float x = b->x[r * b->x_stride + i];
            if (b->a != 0.0f) {
                const float kept = b->a * *y, added = b->b * x;
                *y = kept + added;
            } else *y = b->b * x;
        }
    test_done(ha_cuda_blend(NULL, b));
    assert_memory_equal(b->y, want, y_floats * sizeof *want);
}

TEST(blend)
{
    static const size_t cols[] = { 1, 3, 4, 64, 130, 1028 }, rows[] = { 1, 2, 33 }, gaps[] = { 0, 4, 1 };
    static const float factors[][2] = { { 0.3f, 0.7f }, { 0, 1.1f }, { -0.0f, 3 }, { 1, -1 } };
    for (size_t n = 0; n < COUNT(cols) * COUNT(rows) * COUNT(gaps) * COUNT(factors) * 2; n++) {
        const size_t shift = n % 2, x_shift = n / 3 % 2; /* off 16 bytes */
        const float *f = factors[n / 2 % 4];
        struct ha_device_blend b = { .cols = cols[n / 8 % 6], .rows = rows[n / 48 % 3], .a = f[0], .b = f[1] };
        b.y_stride = b.cols + gaps[n / 144];
        b.x_stride = b.cols + 2 * gaps[n / 144];
        const size_t y_floats = (b.rows - 1) * b.y_stride + b.cols, x_floats = (b.rows - 1) * b.x_stride + b.cols;
        float *y = test_alloc((y_floats + shift) * sizeof *y), *x = test_alloc((x_floats + x_shift) * sizeof *x);
        float *want = test_alloc(y_floats * sizeof *want), *before = test_alloc(y_floats * sizeof *before);
        for (size_t i = 0; i < x_floats; i++) x[x_shift + i] = ha_rng_normal(n, 1, i);
        /* a = 0 does not read y: it is NaN then */
        for (size_t i = 0; i < y_floats && b.a != 0.0f; i++) y[shift + i] = ha_rng_normal(n, 2, i);
        memcpy(before, y + shift, y_floats * sizeof *before);
        b.y = y + shift;
        b.x = x + x_shift;
        test_order(n);
        blended(&b, want, before, y_floats);
        free(y), free(x), free(want), free(before);
    }
    test_done(ha_cuda_blend(NULL, &(struct ha_device_blend){ .rows = 3 }));
}

/* ---- read, spin and waits */

static void read_at(const uint32_t *word, size_t words, unsigned multiprocessors)
{
    uint32_t *sum = test_alloc(sizeof *sum), want = *sum = 0xfffffff0u; /* it is added to */
    for (size_t i = 0; i < words; i++) want += word[i];
    test_done(ha_cuda_read(multiprocessors, NULL, word, words * sizeof *word, sum));
    assert_int_equal(*sum, want);
    free(sum);
}

/* any offset from a 16-byte boundary, any length, on fewer blocks than there are stretches and on more */
TEST(read_sums_every_word)
{
    enum { STRETCH = 256 * 8 * 4 };
    static const size_t around[] = { 0, 1024, STRETCH, 5 * STRETCH, 9 * STRETCH, 40 * STRETCH };
    for (size_t a = 0; a < COUNT(around) - test_small; a++)
        for (size_t shift = 0; shift < 4; shift++)
            for (size_t more = a ? 2 : 0; more < (a ? 8 : 40); more++) {
                const size_t words = around[a] + more - (a ? 4 : 0);
                uint32_t *memory = test_alloc((shift + words) * sizeof *memory);
                for (size_t i = 0; i < words; i++) memory[shift + i] = (uint32_t)ha_rng_bits(a, shift, i);
                test_order(more);
                read_at(memory + shift, words, more % 2 ? 1 : 132);
                free(memory);
            }
}

TEST(spin_lasts)
{
    for (uint64_t ns = 0; ns < 2000000; ns = 2 * ns + 100000)
        for (int again = 0; again < 5; again++) { /* some of them on time */
            const uint64_t begin = ha_now_ns();
            test_done(ha_cuda_spin(NULL, ns));
            assert_true(ha_now_ns() - begin >= ns);
        }
}

/* That others are, and how such a wait ends, is tested with the streams (kernels/host/test_streams.c, run with waits by
 * kernels in cuda_device_memops). */
TEST(a_flag_that_is_up_is_not_waited_for)
{
    static const uint32_t give_up,
        up[][2] = { { 7, 7 }, { 7, 6 }, { 7, 0 }, { 0x80000001u, 1 } /* no negative number */ };
    for (size_t i = 0; i < COUNT(up); i++) test_done(ha_cuda_flag_wait(NULL, &up[i][0], up[i][1], &give_up));
}

TEST_MAIN { return test_all("tests", test_begin, NULL); }
