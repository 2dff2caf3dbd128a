/* midge_dynamic.h - reading what midge_dynamic_quantize wrote, and storing float sums. Private. */
#ifndef MIDGE_DYNAMIC_H
#define MIDGE_DYNAMIC_H

#include "midge_kernel_f32.h"

/* A layer whose activation was quantized at run time. */
typedef struct midge_dynamic {
    const int8_t *x, *weight;
    midge_real *y;
    const midge_real *bias, *w_scale;
    float x_scale;
    int32_t x_zero_point;
    midge_limits limits;
} midge_dynamic;

static inline midge_dynamic midge_read_dynamic(const midge_strip *strip, const midge_op *op,
                                               size_t channels) {
    const uint8_t *x = strip->arena + op->word[MIDGE_OP_X];
    midge_dynamic p;
    memcpy(&p.x_scale, x + MIDGE_DYNAMIC_SCALE, sizeof p.x_scale);
    memcpy(&p.x_zero_point, x + MIDGE_DYNAMIC_ZERO_POINT, sizeof p.x_zero_point);
    p.x = (const int8_t *)(x + MIDGE_DYNAMIC_CODES);
    p.y = midge_reals_at(strip, op, MIDGE_OP_Y);
    p.bias = midge_constants(strip, op->word[MIDGE_OP_DATA]);
    p.w_scale = p.bias + channels;
    p.weight = (const int8_t *)(p.w_scale + channels);
    p.limits = midge_read_limits(op);
    return p;
}

/* Stores channels c..c + count - 1: y = limit(acc * (x_scale * w_scale) + bias), each step rounded
 * to float32: the same bits on every core. */
static inline void midge_store_dynamic(midge_real *y, const int32_t *acc, size_t c, size_t count,
                                       const midge_dynamic *p) {
    for (size_t i = 0; i < count; ++i) {
        const float m = midge_rounded(p->x_scale * p->w_scale[c + i]);
        const float product = midge_rounded(midge_as_float((float)acc[i]) * m);
        y[c + i] = midge_limit(midge_as_float(product + p->bias[c + i]), &p->limits);
    }
}

#endif
