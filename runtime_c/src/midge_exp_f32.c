/* midge_exp_f32.c - functions of one element that are made of exponentials. */
#include <math.h>

#include "midge_kernel_f32.h"

/* 1 / (1 + exp(-x)) from exp(-|x|), which cannot overflow. */
static float sigmoid(float x) {
    const float e = expf(x < 0.0f ? x : -x);
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

static float softplus(float x) {
    return (x > 0.0f ? x : 0.0f) + log1pf(expf(x < 0.0f ? x : -x));
}

static float elu(float x, float alpha, float scale) {
    return x > 0.0f ? x : alpha * expm1f(x / scale);
}

static float gelu_tanh(float x) {
    const float inner = 0.79788456080286535588f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + tanhf(inner));
}

static float exponential(uint32_t kind, float x, float alpha, float beta) {
    switch (kind) {
    case MIDGE_UNARY_CELU:
        return elu(x, alpha, alpha);
    case MIDGE_UNARY_ELU:
        return elu(x, alpha, 1.0f);
    case MIDGE_UNARY_EXP:
        return expf(x);
    case MIDGE_UNARY_GELU_TANH:
        return gelu_tanh(x);
    case MIDGE_UNARY_MISH:
        return x * tanhf(softplus(x));
    case MIDGE_UNARY_SELU:
        return beta * elu(x, alpha, 1.0f);
    case MIDGE_UNARY_SIGMOID:
        return sigmoid(x);
    case MIDGE_UNARY_SOFTPLUS:
        return softplus(x);
    case MIDGE_UNARY_SWISH:
        return x * sigmoid(alpha * x);
    default:
        return tanhf(x); /* MIDGE_UNARY_TANH */
    }
}

/* x and y may be the same. */
void midge_exp_f32(const midge_strip *strip, const midge_op *op) {
    const uint32_t kind = op->word[MIDGE_UNARY_KIND];
    const float alpha = midge_float(op->word[MIDGE_UNARY_ALPHA]);
    const float beta = midge_float(op->word[MIDGE_UNARY_BETA]);
    const midge_real *x = midge_reals_at(strip, op, MIDGE_OP_X);
    midge_real *y = midge_reals_at(strip, op, MIDGE_OP_Y);
    const size_t count = op->word[MIDGE_MAP_COUNT];
    for (size_t i = 0; i < count; ++i)
        y[i] = exponential(kind, x[i], alpha, beta);
}
