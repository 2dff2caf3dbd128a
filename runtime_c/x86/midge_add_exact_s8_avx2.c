/* midge_add_exact_s8_avx2.c - elementwise sum by the definition, 32 codes at once. */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_avx2.h"

#define STEP 32u
#define BOUND 1024.0f /* codes saturate long before, and int32 holds it */

/* What does not change from code to code. */
typedef struct sums {
    __m256 ra, rb, c, bound;
    __m256i offset;
} sums;

/* rint( fma(a, ra, fma(b, rb, c)) ) - offset of 8 codes. */
static inline __m256i sum_8(const sums *p, __m128i a, __m128i b) {
    const __m256i wide_a = _mm256_add_epi32(_mm256_cvtepi8_epi32(a), p->offset);
    const __m256i wide_b = _mm256_add_epi32(_mm256_cvtepi8_epi32(b), p->offset);
    __m256 v = _mm256_fmadd_ps(_mm256_cvtepi32_ps(wide_b), p->rb, p->c);
    v = _mm256_fmadd_ps(_mm256_cvtepi32_ps(wide_a), p->ra, v);
    v = _mm256_max_ps(_mm256_min_ps(v, p->bound), _mm256_sub_ps(_mm256_setzero_ps(), p->bound));
    return _mm256_sub_epi32(_mm256_cvtps_epi32(v), p->offset);
}

/* The codes of 32 sums; y may be a or b. */
static inline void sum_32(const sums *p, const int8_t *a, const int8_t *b, int8_t *y) {
    __m256i part[2];
    for (size_t i = 0; i < 2; ++i) {
        const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(a + 16 * i));
        const __m128i z = _mm_loadu_si128((const __m128i *)(const void *)(b + 16 * i));
        const __m256i low = sum_8(p, x, z);
        const __m256i high = sum_8(p, _mm_srli_si128(x, 8), _mm_srli_si128(z, 8));
        part[i] = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
    }
    const __m256i codes = _mm256_permute4x64_epi64(_mm256_packs_epi16(part[0], part[1]), 0xD8);
    _mm256_storeu_si256((__m256i *)(void *)y, codes);
}

void midge_add_exact_s8_avx2(const midge_strip *strip, const midge_op *op) {
    const size_t count = op->word[MIDGE_ADD_COUNT], whole = count / STEP * STEP;
    const midge_add_rows rows = midge_add_rows_at(strip, op);
    sums p;
    p.ra = _mm256_set1_ps(midge_float(op->word[MIDGE_ADD_RA]));
    p.rb = _mm256_set1_ps(midge_float(op->word[MIDGE_ADD_RB]));
    p.c = _mm256_set1_ps(midge_float(op->word[MIDGE_ADD_C]));
    p.bound = _mm256_set1_ps(BOUND);
    p.offset = _mm256_set1_epi32(midge_signed(op->word[MIDGE_ADD_OFFSET]));
    for (uint32_t row = strip->first; row < strip->last; ++row) {
        const int8_t *a = midge_row(&rows.a, row), *b = midge_row(&rows.b, row);
        int8_t *y = midge_row(&rows.y, row);
        for (size_t i = 0; i < whole; i += STEP)
            sum_32(&p, a + i, b + i, y + i);
        if (whole < count) {
            int8_t rest_a[STEP] = {0}, rest_b[STEP] = {0};
            memcpy(rest_a, a + whole, count - whole);
            memcpy(rest_b, b + whole, count - whole);
            sum_32(&p, rest_a, rest_b, rest_a);
            memcpy(y + whole, rest_a, count - whole);
        }
    }
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
