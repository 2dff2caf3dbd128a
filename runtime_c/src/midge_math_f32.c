/* midge_math_f32.c - further functions of one element that need the mathematical library. */
#include <math.h>

#include "midge_kernel_f32.h"

static float mathematical(uint32_t kind, float x) {
    switch (kind) {
    case MIDGE_UNARY_CEIL:
        return ceilf(x);
    case MIDGE_UNARY_ERF:
        return erff(x);
    case MIDGE_UNARY_FLOOR:
        return floorf(x);
    case MIDGE_UNARY_GELU:
        return 0.5f * x * (1.0f + erff(x * 0.70710678118654752440f));
    case MIDGE_UNARY_LOG:
        return logf(x);
    case MIDGE_UNARY_ROUND:
        return rintf(x); /* ties to even, in the default mode */
    default:
        return sqrtf(x); /* MIDGE_UNARY_SQRT */
    }
}

/* x and y may be the same. */
void midge_math_f32(const midge_strip *strip, const midge_op *op) {
    const uint32_t kind = op->word[MIDGE_UNARY_KIND];
    const midge_real *x = midge_reals_at(strip, op, MIDGE_OP_X);
    midge_real *y = midge_reals_at(strip, op, MIDGE_OP_Y);
    const size_t count = op->word[MIDGE_MAP_COUNT];
    for (size_t i = 0; i < count; ++i)
        y[i] = mathematical(kind, x[i]);
}
