/* midge_simple_f32.c - functions of one element that need no library. */
#include "midge_kernel_f32.h"

/* x limited to 0..1. */
static float unit(float x) {
    x = x < 0.0f ? 0.0f : x;
    return x > 1.0f ? 1.0f : x;
}

static float magnitude(float x) {
    return x < 0.0f ? -x : x + 0.0f; /* -0 becomes 0 */
}

static float simple(uint32_t kind, float x, float alpha, float beta) {
    switch (kind) {
    case MIDGE_UNARY_ABS:
        return magnitude(x);
    case MIDGE_UNARY_HARD_SIGMOID:
        return unit(alpha * x + beta);
    case MIDGE_UNARY_HARD_SWISH:
        return x * unit(x / 6.0f + 0.5f);
    case MIDGE_UNARY_LEAKY_RELU:
        return x < 0.0f ? alpha * x : x;
    case MIDGE_UNARY_NEG:
        return -x;
    case MIDGE_UNARY_RECIPROCAL:
        return 1.0f / x;
    case MIDGE_UNARY_SHRINK:
        return x < -alpha ? x + beta : x > alpha ? x - beta : 0.0f;
    case MIDGE_UNARY_SOFTSIGN:
        return x / (1.0f + magnitude(x));
    case MIDGE_UNARY_SQUARE:
        return x * x;
    default:
        return x > alpha ? x : 0.0f; /* MIDGE_UNARY_THRESHOLDED_RELU */
    }
}

/* x and y may be the same. */
void midge_simple_f32(const midge_strip *strip, const midge_op *op) {
    const uint32_t kind = op->word[MIDGE_UNARY_KIND];
    const float alpha = midge_float(op->word[MIDGE_UNARY_ALPHA]);
    const float beta = midge_float(op->word[MIDGE_UNARY_BETA]);
    const midge_real *x = midge_reals_at(strip, op, MIDGE_OP_X);
    midge_real *y = midge_reals_at(strip, op, MIDGE_OP_Y);
    const size_t count = op->word[MIDGE_MAP_COUNT];
    for (size_t i = 0; i < count; ++i)
        y[i] = midge_as_float(simple(kind, x[i], alpha, beta));
}
