/* midge_clip_f32_avx2.c - Relu and Clip, 8 elements at once. */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_kernel_f32.h"
#include "midge_target.h"

MIDGE_TARGET_BEGIN("avx2,fma")
#include MIDGE_INTRINSICS

/* x and y may be the same. NaN passes: the second operand of both instructions wins then. */
void midge_clip_f32_avx2(const midge_strip *strip, const midge_op *op) {
    const midge_limits limits = midge_read_limits(op);
    const __m256 low = _mm256_set1_ps(limits.low), high = _mm256_set1_ps(limits.high);
    const midge_real *x = midge_reals_at(strip, op, MIDGE_OP_X);
    midge_real *y = midge_reals_at(strip, op, MIDGE_OP_Y);
    const size_t count = op->word[MIDGE_MAP_COUNT];
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        const __m256 v = _mm256_loadu_ps((const float *)(x + i));
        _mm256_storeu_ps((float *)(y + i), _mm256_min_ps(high, _mm256_max_ps(low, v)));
    }
    for (; i < count; ++i)
        y[i] = midge_limit(x[i], &limits);
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
