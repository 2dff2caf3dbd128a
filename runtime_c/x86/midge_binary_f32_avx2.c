/* midge_binary_f32_avx2.c - y = a op b, 8 elements at once, axes of size 1 repeated. */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_kernel_f32.h"
#include "midge_target.h"

MIDGE_TARGET_BEGIN("avx2,fma")
#include MIDGE_INTRINSICS

/* One function gives the bits of the portable kernel for every kind, NaN and zeros included. */
MIDGE_INLINE __m256 apply(uint32_t kind, __m256 u, __m256 v) {
    const __m256 u_is_nan = _mm256_cmp_ps(u, u, _CMP_UNORD_Q);
    switch (kind) {
    case MIDGE_BINARY_ADD:
        return _mm256_add_ps(u, v);
    case MIDGE_BINARY_SUB:
        return _mm256_sub_ps(u, v);
    case MIDGE_BINARY_MUL:
        return _mm256_mul_ps(u, v);
    case MIDGE_BINARY_DIV:
        return _mm256_div_ps(u, v);
    case MIDGE_BINARY_MAX:
        return _mm256_blendv_ps(v, u, _mm256_or_ps(u_is_nan, _mm256_cmp_ps(u, v, _CMP_GE_OQ)));
    case MIDGE_BINARY_MIN:
        return _mm256_blendv_ps(v, u, _mm256_or_ps(u_is_nan, _mm256_cmp_ps(u, v, _CMP_LE_OQ)));
    default: /* MIDGE_BINARY_PRELU */
        return _mm256_blendv_ps(u, _mm256_mul_ps(u, v),
                                _mm256_cmp_ps(u, _mm256_setzero_ps(), _CMP_LT_OQ));
    }
}

/* The elements 0..7 of an operand, or its only one. `step` is 0 or 1. */
MIDGE_INLINE __m256 next_8(const midge_real *from, size_t step) {
    return step ? _mm256_loadu_ps((const float *)from) : _mm256_set1_ps(*from);
}

/* A row, for one kind. y may lie where a or b does. */
MIDGE_INLINE void row_of(uint32_t kind, midge_real *y, const midge_real *a, size_t a_step,
                         const midge_real *b, size_t b_step, size_t count) {
    size_t i = 0;
    if (a_step <= 1 && b_step <= 1)
        for (; i + 8 <= count; i += 8) {
            const __m256 u = next_8(a + i * a_step, a_step), v = next_8(b + i * b_step, b_step);
            _mm256_storeu_ps((float *)(y + i), apply(kind, u, v));
        }
    for (; i < count; ++i) {
        const __m256 u = _mm256_set1_ps(a[i * a_step]), v = _mm256_set1_ps(b[i * b_step]);
        y[i] = _mm256_cvtss_f32(apply(kind, u, v));
    }
}

#define ROW(name, kind)                                                                            \
    static void name##_row(midge_real *y, const midge_real *a, size_t a_step, const midge_real *b, \
                           size_t b_step, size_t count) {                                          \
        row_of(kind, y, a, a_step, b, b_step, count);                                              \
    }

ROW(add, MIDGE_BINARY_ADD)
ROW(sub, MIDGE_BINARY_SUB)
ROW(mul, MIDGE_BINARY_MUL)
ROW(div, MIDGE_BINARY_DIV)
ROW(max, MIDGE_BINARY_MAX)
ROW(min, MIDGE_BINARY_MIN)
ROW(prelu, MIDGE_BINARY_PRELU)

void midge_binary_f32_avx2(const midge_strip *strip, const midge_op *op) {
    static const midge_row_function rows[] = {add_row, sub_row, mul_row,  div_row,
                                              max_row, min_row, prelu_row};
    midge_each_row(strip, op, rows[op->word[MIDGE_BINARY_KIND] & 0xFFFFu]);
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
