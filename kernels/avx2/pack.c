#include "kernels/isa.h"

#if defined(HA_VECTORS)
#include "kernels/packed.h"

#include <immintrin.h>

/* K of a block is the transpose of its keys' rows, of 16-bit numbers in f16 and of 32-bit words else: 4 keys go at once
 * where they begin at a multiple of 4. Words and numbers are moved 8 columns at a time elsewhere: a head dimension is a
 * multiple of 8. */
enum { GROUP = 4, COLS = 8, WORD = 4 };

static inline __m256i load(const char *p) { return _mm256_loadu_si256((const __m256i_u *)(const void *)p); }
static inline void store(char *p, __m256i x) { _mm256_storeu_si256((__m256i_u *)(void *)p, x); }
static inline __m128i load_half(const char *p) { return _mm_loadu_si128((const __m128i_u *)(const void *)p); }
static inline void store_half(char *p, __m128i x) { _mm_storeu_si128((__m128i_u *)(void *)p, x); }

/* 4 x 4 words, rows so many bytes apart: word j of row i of `from` becomes word i of row j */
static inline void transpose(char *const *to, const char *const *from)
{
    const __m128i a = load_half(from[0]), b = load_half(from[1]), c = load_half(from[2]), d = load_half(from[3]);
    const __m128i ab = _mm_unpacklo_epi32(a, b), cd = _mm_unpacklo_epi32(c, d);
    const __m128i ab2 = _mm_unpackhi_epi32(a, b), cd2 = _mm_unpackhi_epi32(c, d);
    store_half(to[0], _mm_unpacklo_epi64(ab, cd));
    store_half(to[1], _mm_unpackhi_epi64(ab, cd));
    store_half(to[2], _mm_unpacklo_epi64(ab2, cd2));
    store_half(to[3], _mm_unpackhi_epi64(ab2, cd2));
}

static inline size_t words(size_t dim, enum ha_dtype t) { return dim * ha_dtype_bytes(t) / WORD; }
static inline size_t word_at(size_t word, size_t key) { return (word * HA_PACK_KEYS + key) * WORD; }

/* 4 keys of 8 elements, rows of f16, to where K has them, and back */
static inline void transpose_f16(char *block, size_t j, size_t d, const char *const *from)
{
    const __m128i ab = _mm_unpacklo_epi16(load_half(from[0]), load_half(from[1])),
                  ab2 = _mm_unpackhi_epi16(load_half(from[0]), load_half(from[1]));
    const __m128i cd = _mm_unpacklo_epi16(load_half(from[2]), load_half(from[3])),
                  cd2 = _mm_unpackhi_epi16(load_half(from[2]), load_half(from[3]));
    const __m128i two[] = { _mm_unpacklo_epi32(ab, cd), _mm_unpackhi_epi32(ab, cd), _mm_unpacklo_epi32(ab2, cd2),
                            _mm_unpackhi_epi32(ab2, cd2) };
    for (size_t i = 0; i < COLS; i++) {
        const __m128i x = i % 2 == 0 ? two[i / 2] : _mm_unpackhi_epi64(two[i / 2], two[i / 2]);
        _mm_storel_epi64((__m128i_u *)(void *)(block + ha_packed_k(j, d + i, HA_F16) * 2), x);
    }
}
static inline void transpose_back_f16(char *const *to, const char *block, size_t j, size_t d)
{
    __m128i low[4], high[4]; /* two elements of 4 keys, then 4 of two */
    for (size_t i = 0; i < COLS; i += 2) {
        const __m128i a = _mm_loadl_epi64((const __m128i_u *)(const void *)(block + ha_packed_k(j, d + i, HA_F16) * 2));
        const __m128i b = _mm_loadl_epi64(
            (const __m128i_u *)(const void *)(block + ha_packed_k(j, d + i + 1, HA_F16) * 2));
        low[i / 2] = _mm_unpacklo_epi16(a, b);
    }
    for (size_t i = 0; i < 2; i++) {
        high[i] = _mm_unpacklo_epi32(low[2 * i], low[2 * i + 1]);
        high[2 + i] = _mm_unpackhi_epi32(low[2 * i], low[2 * i + 1]);
    }
    for (size_t i = 0; i < GROUP; i += 2) {
        store_half(to[i], _mm_unpacklo_epi64(high[i], high[i + 1]));
        store_half(to[i + 1], _mm_unpackhi_epi64(high[i], high[i + 1]));
    }
}

/* key j of a block */
static void put_k(char *block, size_t j, const char *row, size_t dim, enum ha_dtype t)
{
    for (size_t d = 0; t == HA_F16 && d < dim; d++) memcpy(block + ha_packed_k(j, d, t) * 2, row + d * 2, 2);
    if (t == HA_F16) return;
    for (size_t w = 0; w < words(dim, t); w++) memcpy(block + word_at(w, j), row + w * WORD, WORD);
}
static void get_k(const char *block, size_t j, char *row, size_t dim, enum ha_dtype t)
{
    for (size_t d = 0; t == HA_F16 && d < dim; d++) memcpy(row + d * 2, block + ha_packed_k(j, d, t) * 2, 2);
    if (t == HA_F16) return;
    for (size_t w = 0; w < words(dim, t); w++) memcpy(row + w * WORD, block + word_at(w, j), WORD);
}

static void put_v(char *block, size_t j, const char *row, size_t dim, enum ha_dtype t)
{
    const size_t size = ha_dtype_bytes(t);
    for (size_t d = 0; d < dim; d += COLS) {
        const char *from = row + d * size;
        if (t != HA_BF16) {
            memcpy(block + ha_packed_v(dim, j, d, t) * size, from, COLS * size);
            continue;
        }
        char *pair = block + ha_packed_v(dim, j / 2 * 2, d, t) * size;
        const __m256i x = _mm256_cvtepu16_epi32(load_half(from)), low = _mm256_set1_epi32(0xffff);
        if (j % 2 == 0) store(pair, _mm256_or_si256(_mm256_andnot_si256(low, load(pair)), x));
        else store(pair, _mm256_or_si256(_mm256_and_si256(low, load(pair)), _mm256_slli_epi32(x, 16)));
    }
}
static void get_v(const char *block, size_t j, char *row, size_t dim, enum ha_dtype t)
{
    const size_t size = ha_dtype_bytes(t);
    for (size_t d = 0; d < dim; d += COLS) {
        char *to = row + d * size;
        if (t != HA_BF16) {
            memcpy(to, block + ha_packed_v(dim, j, d, t) * size, COLS * size);
            continue;
        }
        const __m256i pair = load(block + ha_packed_v(dim, j / 2 * 2, d, t) * size);
        const __m256i x = j % 2 == 0 ? _mm256_and_si256(pair, _mm256_set1_epi32(0xffff)) : _mm256_srli_epi32(pair, 16);
        store_half(to, _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
    }
}

/* keys [j, j + 4) of a block */
static void put_group(char *block, size_t j, const char *const *k, const char *const *v, size_t dim, enum ha_dtype t)
{
    for (size_t d = 0; t == HA_F16 && d < dim; d += COLS) {
        const char *const from[] = { k[0] + d * 2, k[1] + d * 2, k[2] + d * 2, k[3] + d * 2 };
        transpose_f16(block, j, d, from);
    }
    for (size_t w = 0; t != HA_F16 && w < words(dim, t); w += 4) {
        char *const to[] = { block + word_at(w, j), block + word_at(w + 1, j), block + word_at(w + 2, j),
                             block + word_at(w + 3, j) };
        const char *const from[] = { k[0] + w * WORD, k[1] + w * WORD, k[2] + w * WORD, k[3] + w * WORD };
        transpose(to, from);
    }
    if (t != HA_BF16) {
        for (size_t i = 0; i < GROUP; i++) put_v(block, j + i, v[i], dim, t);
        return;
    }
    for (size_t i = 0; i < GROUP; i += 2)
        for (size_t d = 0; d < dim; d += COLS) {
            const __m256i even = _mm256_cvtepu16_epi32(load_half(v[i] + d * 2)),
                          odd = _mm256_cvtepu16_epi32(load_half(v[i + 1] + d * 2));
            store(block + ha_packed_v(dim, j + i, d, t) * 2, _mm256_or_si256(even, _mm256_slli_epi32(odd, 16)));
        }
}
static void get_group(const char *block, size_t j, char *const *k, char *const *v, size_t dim, enum ha_dtype t)
{
    for (size_t d = 0; t == HA_F16 && d < dim; d += COLS) {
        char *const to[] = { k[0] + d * 2, k[1] + d * 2, k[2] + d * 2, k[3] + d * 2 };
        transpose_back_f16(to, block, j, d);
    }
    for (size_t w = 0; t != HA_F16 && w < words(dim, t); w += 4) {
        const char *const from[] = { block + word_at(w, j), block + word_at(w + 1, j), block + word_at(w + 2, j),
                                     block + word_at(w + 3, j) };
        char *const to[] = { k[0] + w * WORD, k[1] + w * WORD, k[2] + w * WORD, k[3] + w * WORD };
        transpose(to, from);
    }
    for (size_t i = 0; i < GROUP; i++) get_v(block, j + i, v[i], dim, t);
}

/* keys [j, 32) of a block become zeros */
static void clear(char *block, size_t j, size_t dim, enum ha_dtype t)
{
    static const char zeros[HA_PACK_DIM_MAX * 4];
    for (; j % GROUP != 0; j++) {
        put_k(block, j, zeros, dim, t);
        put_v(block, j, zeros, dim, t);
    }
    if (j == HA_PACK_KEYS) return;
    for (size_t d = 0; t == HA_F16 && d < dim; d++)
        for (size_t i = j; i < HA_PACK_KEYS; i += GROUP) memset(block + ha_packed_k(i, d, t) * 2, 0, GROUP * 2);
    for (size_t w = 0; t != HA_F16 && w < words(dim, t); w++)
        for (size_t i = j; i < HA_PACK_KEYS; i += GROUP) store_half(block + word_at(w, i), _mm_setzero_si128());
    for (size_t d = 0; d < dim; d += HA_PACK_COLS)
        memset(block + ha_packed_v(dim, j, d, t) * ha_dtype_bytes(t), 0,
               (HA_PACK_KEYS - j) * ha_packed_cols(dim, d) * ha_dtype_bytes(t));
}

void ha_avx2_pack(const struct ha_pack *p)
{
    const size_t bytes = ha_packed_block_bytes(p->head_dim, p->dtype), end = p->at + p->rows.keys;
    if (p->rows.keys == 0) return;
    for (size_t key = p->at; key < end;) {
        char *block = (char *)p->blocks + key / HA_PACK_KEYS * bytes;
        const size_t n = key % GROUP == 0 && end - key >= GROUP ? GROUP : 1, j = key % HA_PACK_KEYS;
        const char *k[GROUP], *v[GROUP];
        for (size_t i = 0; i < n; i++) {
            k[i] = ha_row_k(&p->rows, key - p->at + i);
            v[i] = ha_row_v(&p->rows, key - p->at + i);
        }
        if (n == GROUP) put_group(block, j, k, v, p->head_dim, p->dtype);
        else {
            put_k(block, j, k[0], p->head_dim, p->dtype);
            put_v(block, j, v[0], p->head_dim, p->dtype);
        }
        key += n;
    }
    if (end % HA_PACK_KEYS != 0)
        clear((char *)p->blocks + end / HA_PACK_KEYS * bytes, end % HA_PACK_KEYS, p->head_dim, p->dtype);
}

static size_t key_of(const struct ha_unpack *u, size_t i) { return u->index ? u->index[i] : u->first + i; }

void ha_avx2_unpack(const struct ha_unpack *u)
{
    const size_t bytes = ha_packed_block_bytes(u->head_dim, u->dtype);
    for (size_t i = 0; i < u->keys;) {
        const size_t key = key_of(u, i), j = key % HA_PACK_KEYS;
        const char *block = (const char *)u->blocks + key / HA_PACK_KEYS * bytes;
        size_t n = key % GROUP == 0 && u->keys - i >= GROUP ? GROUP : 1;
        char *k[GROUP], *v[GROUP];
        for (size_t g = 0; g < n; g++) {
            if (key_of(u, i + g) != key + g) n = 1;
            k[g] = (char *)u->k + (i + g) * u->k_stride_bytes;
            v[g] = (char *)u->v + (i + g) * u->v_stride_bytes;
        }
        if (n == GROUP) get_group(block, j, k, v, u->head_dim, u->dtype);
        else {
            get_k(block, j, k[0], u->head_dim, u->dtype);
            get_v(block, j, v[0], u->head_dim, u->dtype);
        }
        i += n;
    }
}
#endif
