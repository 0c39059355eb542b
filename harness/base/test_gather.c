/* Rows that an index names come where they belong, byte for byte, in parts and from and to any address, and nothing
 * else is written: what lies behind the source and the destination may not be touched. */

#include "harness/base/gather.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"

enum { ENTRIES = 7, BLOCKS = 12, SHIFTS = 3, BLANK = 0x55 };

/* of the size that is asked for, so that a sanitizer sees a byte too far */
static unsigned char *bytes_of(size_t bytes, size_t shift)
{
    void *at;
    assert_int_equal(posix_memalign(&at, 64, bytes + shift), 0);
    return at;
}

static void check(enum ha_gather_by by, size_t row, size_t unit, bool slots, size_t apart, size_t shift)
{
    const size_t stride = row + apart, rows = ENTRIES * unit, src_bytes = (BLOCKS * unit - 1) * stride + row,
                 dst_bytes = (BLOCKS * unit - 1) * stride + row;
    unsigned char *src = bytes_of(src_bytes, shift), *dst = bytes_of(dst_bytes, shift), *want = malloc(dst_bytes);
    uint32_t index[ENTRIES], slot[ENTRIES];
    assert_non_null(want);
    for (size_t i = 0; i < src_bytes; i++) src[shift + i] = (unsigned char)ha_rng_bits(1, row, i);
    memset(dst, BLANK, dst_bytes + shift);
    memset(want, BLANK, dst_bytes);
    for (uint32_t i = 0; i < ENTRIES; i++) {
        index[i] = (i * 5 + 1) % BLOCKS;
        slot[i] = BLOCKS - 1 - (i * 7) % BLOCKS;
    }
    for (size_t i = 0; i < rows; i++) {
        const size_t from = index[i / unit] * unit + i % unit, to = slots ? slot[i / unit] * unit + i % unit : i;
        memcpy(want + to * stride, src + shift + from * stride, row);
    }
    const struct ha_gather g = { .dst = dst + shift,
                                 .src = src + shift,
                                 .index = index,
                                 .slot = slots ? slot : NULL,
                                 .unit = unit,
                                 .row_bytes = row,
                                 .dst_stride_bytes = stride,
                                 .src_stride_bytes = stride };
    const size_t cut = rows / 3;
    ha_gather_rows(&g, by, cut, rows);
    ha_gather_rows(&g, by, cut, cut);
    ha_gather_rows(&g, by, 0, cut);
    ha_gather_fence();
    ha_gather_arrived(dst);
    for (size_t i = 0; i < dst_bytes; i++)
        if (dst[shift + i] != want[i])
            fail_msg("by %d, rows of %zu, blocks of %zu, %s, %zu apart, shift %zu: byte %zu of row %zu", (int)by, row,
                     unit, slots ? "slots" : "dense", stride, shift, i % stride, i / stride);
    for (size_t i = 0; i < shift; i++) assert_int_equal(dst[i], BLANK);
    free(src);
    free(dst);
    free(want);
}

TEST(rows_come_where_they_belong)
{
    static const size_t row[] = { 1, 15, 16, 20, 32, 48, 64, 80, 128, 256, 272, 4096 }, unit[] = { 1, 4, 5 },
                        apart[] = { 0, 16, 12 }, shift[SHIFTS] = { 0, 16, 4 };
    for (int by = HA_GATHER_COPY; by <= HA_GATHER_STORE; by++)
        for (size_t r = 0; r < COUNT(row); r++)
            for (size_t u = 0; u < COUNT(unit); u++)
                for (int slots = 0; slots < 2; slots++)
                    for (size_t a = 0; a < COUNT(apart); a++)
                        for (size_t s = 0; s < SHIFTS; s++)
                            check((enum ha_gather_by)by, row[r], unit[u], slots, apart[a], shift[s]);
}
