/* midge_add_lanes.h - elementwise sum by the float32 definition, 32 codes at once. Private.
 *
 *     y = rint( fma(a, RA, fma(b, RB, C)) )
 *
 * The integer forms of the portable kernels equal it on every pair of codes: one form serves all.
 */
#ifndef MIDGE_ADD_LANES_H
#define MIDGE_ADD_LANES_H

#include "midge_avx2.h"

#define CODES 32 /* at once */

/* The coefficients, each in every lane. */
typedef struct sum {
    __m256 ra, rb, c;
    __m256i offset, minus_offset; /* int32, int16 */
} sum;

static inline sum sum_of(const midge_op *op) {
    const int32_t offset = midge_signed(op->word[MIDGE_ADD_OFFSET]);
    sum s;
    s.ra = _mm256_set1_ps(midge_float(op->word[MIDGE_ADD_RA]));
    s.rb = _mm256_set1_ps(midge_float(op->word[MIDGE_ADD_RB]));
    s.c = _mm256_set1_ps(midge_float(op->word[MIDGE_ADD_C]));
    s.offset = _mm256_set1_epi32(offset);
    s.minus_offset = _mm256_set1_epi16((int16_t)-offset);
    return s;
}

static inline __m256 real_codes(const sum *s, const int8_t *x) {
    const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)x));
    return _mm256_cvtepi32_ps(_mm256_add_epi32(wide, s->offset));
}

/* Eight sums as int32. What is far above 127 stays positive; what is far below -128 becomes the
 * lowest int32, or stays negative. */
static inline __m256i add_8(const sum *s, const int8_t *a, const int8_t *b) {
    const __m256 inner = _mm256_fmadd_ps(real_codes(s, b), s->rb, s->c);
    const __m256 outer = _mm256_fmadd_ps(real_codes(s, a), s->ra, inner);
    return _mm256_cvtps_epi32(_mm256_min_ps(outer, _mm256_set1_ps(1024.0f)));
}

/* CODES codes; all are read before one is written. */
static inline void add_codes(const sum *s, const int8_t *a, const int8_t *b, int8_t *y) {
    const __m256i low = _mm256_packs_epi32(add_8(s, a, b), add_8(s, a + 8, b + 8));
    const __m256i high = _mm256_packs_epi32(add_8(s, a + 16, b + 16), add_8(s, a + 24, b + 24));
    const __m256i codes = _mm256_packs_epi16(_mm256_adds_epi16(low, s->minus_offset),
                                             _mm256_adds_epi16(high, s->minus_offset));
    /* Packing works on halves of registers. */
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256((__m256i *)(void *)y, _mm256_permutevar8x32_epi32(codes, order));
}

/* Every row of a strip. y may be a or b, or lie below them. */
static inline void add_rows(const midge_strip *strip, const midge_op *op) {
    const sum s = sum_of(op);
    const size_t count = op->word[MIDGE_ADD_COUNT];
    const midge_add_rows rows = midge_add_rows_at(strip, op);
    for (uint32_t row = strip->first; row < strip->last; ++row) {
        const int8_t *a = midge_row(&rows.a, row), *b = midge_row(&rows.b, row);
        int8_t *y = midge_row(&rows.y, row);
        size_t i = 0;
        for (; i + CODES <= count; i += CODES)
            add_codes(&s, a + i, b + i, y + i);
        if (i < count) {
            int8_t last_a[CODES] = {0}, last_b[CODES] = {0}, last_y[CODES];
            memcpy(last_a, a + i, count - i);
            memcpy(last_b, b + i, count - i);
            add_codes(&s, last_a, last_b, last_y);
            memcpy(y + i, last_y, count - i);
        }
    }
}

#endif
