/* midge_mul_s8_avx2.c - elementwise product, axes of size 1 repeated, 16 codes at once. */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_avx2.h"

#define CODES 16 /* at once */

/* What does not change from one row to the next; steps are 0 or 1. */
typedef struct product {
    size_t a_step, b_step, count;
    __m256i a_zero_point, b_zero_point, y_zero_point; /* int16 */
    __m256 m, high;
    __m128i low;
} product;

/* 16 codes less their zero point, or the first of them 16 times. */
static inline __m256i centred(const int8_t *x, size_t step, __m256i zero_point) {
    const __m128i codes =
        step ? _mm_loadu_si128((const __m128i *)(const void *)x) : _mm_set1_epi8(x[0]);
    return _mm256_sub_epi16(_mm256_cvtepi8_epi16(codes), zero_point);
}

/* y[i] = requantize((a[i * a_step] - a_zero_point) * (b[i * b_step] - b_zero_point)), all read
 * before one is written. */
static inline void multiply_codes(const product *p, const int8_t *a, const int8_t *b, int8_t *y) {
    const __m256i u = centred(a, p->a_step, p->a_zero_point);
    const __m256i v = centred(b, p->b_step, p->b_zero_point);
    const __m256i lower = _mm256_mullo_epi16(u, v), upper = _mm256_mulhi_epi16(u, v);
    /* Products 0..3 and 8..11, then 4..7 and 12..15; packing joins them in order. */
    const __m256i some = midge_scale_avx2(_mm256_unpacklo_epi16(lower, upper), p->m, p->high);
    const __m256i others = midge_scale_avx2(_mm256_unpackhi_epi16(lower, upper), p->m, p->high);
    const __m256i sum = _mm256_adds_epi16(_mm256_packs_epi32(some, others), p->y_zero_point);
    const __m128i codes =
        _mm_packs_epi16(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    _mm_storeu_si128((__m128i *)(void *)y, _mm_max_epi8(codes, p->low));
}

static inline void multiply_row(const product *p, int8_t *y, const int8_t *a, const int8_t *b) {
    size_t i = 0;
    for (; i + CODES <= p->count; i += CODES)
        multiply_codes(p, a + i * p->a_step, b + i * p->b_step, y + i);
    if (i < p->count) {
        const size_t left = p->count - i;
        int8_t last_a[CODES] = {0}, last_b[CODES] = {0}, last_y[CODES];
        memcpy(last_a, a + i * p->a_step, p->a_step ? left : 1);
        memcpy(last_b, b + i * p->b_step, p->b_step ? left : 1);
        multiply_codes(p, last_a, last_b, last_y);
        memcpy(y + i, last_y, left);
    }
}

static product product_of(const midge_op *op, const uint32_t *data) {
    const uint32_t codes = data[MIDGE_MUL_CODES];
    product p;
    p.a_step = (size_t)midge_low(op->word[MIDGE_MUL_STEP]);
    p.b_step = (size_t)midge_high(op->word[MIDGE_MUL_STEP]);
    p.count = op->word[MIDGE_MUL_SHAPE + 3];
    p.a_zero_point = _mm256_set1_epi16((int16_t)midge_code(codes, 0));
    p.b_zero_point = _mm256_set1_epi16((int16_t)midge_signed(data[MIDGE_MUL_B_ZERO_POINT]));
    p.y_zero_point = _mm256_set1_epi16((int16_t)midge_code(codes, 1));
    p.m = _mm256_set1_ps(midge_float(data[MIDGE_MUL_MULTIPLIER]));
    p.high = _mm256_set1_ps((float)(midge_code(codes, 3) - midge_code(codes, 1)));
    p.low = _mm_set1_epi8((int8_t)midge_code(codes, 2));
    return p;
}

/* y may lie where an operand of its shape does, or below it. */
void midge_mul_s8_avx2(const midge_strip *strip, const midge_op *op) {
    const uint32_t *data = strip->data + op->word[MIDGE_OP_DATA];
    const uint32_t *shape = &op->word[MIDGE_MUL_SHAPE];
    const uint32_t *a_pitch = &op->word[MIDGE_MUL_A_PITCH];
    const uint32_t *b_pitch = &op->word[MIDGE_MUL_B_PITCH];
    const product p = product_of(op, data);
    if (p.a_step > 1 || p.b_step > 1) {
        midge_mul_s8(strip, op);
        return;
    }
    const int8_t *a = midge_codes_at(strip, op, MIDGE_OP_X);
    const int8_t *b = data[MIDGE_MUL_CONSTANT] ? (const int8_t *)(data + MIDGE_MUL_DATA_WORDS)
                                               : midge_codes_at(strip, op, MIDGE_MUL_B);
    int8_t *y = midge_codes_at(strip, op, MIDGE_OP_Y);
    for (size_t i = 0; i < shape[0]; ++i)
        for (size_t j = 0; j < shape[1]; ++j)
            for (size_t k = 0; k < shape[2]; ++k, y += p.count)
                multiply_row(&p, y, a + (i * a_pitch[0] + j * a_pitch[1] + k * a_pitch[2]),
                             b + (i * b_pitch[0] + j * b_pitch[1] + k * b_pitch[2]));
}

MIDGE_TARGET_END

#endif
