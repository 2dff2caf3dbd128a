/* midge_trig_f32.c - circular and hyperbolic functions of one element. */
#include <math.h>

#include "midge_kernel_f32.h"
#include "midge_model_general.h"

static float trigonometric(uint32_t kind, float x) {
    switch (kind) {
    case MIDGE_UNARY_ACOS:
        return acosf(x);
    case MIDGE_UNARY_ACOSH:
        return acoshf(x);
    case MIDGE_UNARY_ASIN:
        return asinf(x);
    case MIDGE_UNARY_ASINH:
        return asinhf(x);
    case MIDGE_UNARY_ATAN:
        return atanf(x);
    case MIDGE_UNARY_ATANH:
        return atanhf(x);
    case MIDGE_UNARY_COS:
        return cosf(x);
    case MIDGE_UNARY_COSH:
        return coshf(x);
    case MIDGE_UNARY_SIN:
        return sinf(x);
    case MIDGE_UNARY_SINH:
        return sinhf(x);
    default:
        return tanf(x); /* MIDGE_UNARY_TAN */
    }
}

/* x and y may be the same. */
void midge_trig_f32(const midge_strip *strip, const midge_op *op) {
    const midge_real *x = midge_reals_at(strip, op, MIDGE_OP_X);
    midge_real *y = midge_reals_at(strip, op, MIDGE_OP_Y);
    for (uint32_t i = 0; i < op->word[MIDGE_MAP_COUNT]; ++i)
        y[i] = trigonometric(op->word[MIDGE_UNARY_KIND], x[i]);
}
