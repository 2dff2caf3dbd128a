/* midge_recurrent.h - what the recurrent layers share. Private. */
#ifndef MIDGE_RECURRENT_H_
#define MIDGE_RECURRENT_H_

#include <math.h>

#include "midge_kernel_f32.h"
#include "midge_model_general.h"

/* A layer: sizes and operands. h and c are NULL where the first state is 0. */
typedef struct midge_recurrent {
    size_t steps, batch, inputs, hidden;
    uint32_t flags;
    const midge_real *x, *h, *c, *weight, *recurrence, *bias, *more;
    midge_real *y, *kept;
} midge_recurrent;

static inline midge_recurrent midge_recurrent_at(const midge_strip *strip, const midge_op *op,
                                                 size_t gates) {
    midge_recurrent p;
    p.steps = op->word[MIDGE_RECURRENT_STEPS];
    p.batch = op->word[MIDGE_RECURRENT_BATCH];
    p.inputs = op->word[MIDGE_RECURRENT_INPUTS];
    p.hidden = op->word[MIDGE_RECURRENT_HIDDEN];
    p.flags = op->word[MIDGE_RECURRENT_FLAGS];
    p.x = midge_reals_at(strip, op, MIDGE_OP_X);
    p.y = midge_reals_at(strip, op, MIDGE_OP_Y);
    p.kept = p.y + p.steps * p.batch * p.hidden;
    p.h = p.flags & MIDGE_RECURRENT_HAS_H ? midge_reals_at(strip, op, MIDGE_RECURRENT_H) : NULL;
    p.c = p.flags & MIDGE_RECURRENT_HAS_C ? midge_reals_at(strip, op, MIDGE_RECURRENT_C) : NULL;
    p.weight = midge_constants(strip, op->word[MIDGE_OP_DATA]);
    p.recurrence = p.weight + gates * p.hidden * p.inputs;
    p.bias = p.recurrence + gates * p.hidden * p.hidden;
    p.more = p.bias + gates * p.hidden;
    return p;
}

/* One sample at one step: its input, the state before and after. h is NULL for zeros. */
typedef struct midge_moment {
    const midge_real *x, *h;
    midge_real *y;
    size_t sample;
} midge_moment;

typedef void (*midge_recurrent_step)(const midge_recurrent *p, const midge_moment *at);

/* Calls `step` for every sample of every step, in the order of time. */
static inline void midge_each_moment(const midge_recurrent *p, midge_recurrent_step step) {
    const size_t row = p->batch * p->hidden;
    const midge_real *before = p->h;
    for (size_t i = 0; i < p->steps; ++i) {
        const size_t t = p->flags & MIDGE_RECURRENT_BACKWARD ? p->steps - 1 - i : i;
        for (size_t b = 0; b < p->batch; ++b) {
            midge_moment at;
            at.x = p->x + (t * p->batch + b) * p->inputs;
            at.h = before ? before + b * p->hidden : NULL;
            at.y = p->y + t * row + b * p->hidden;
            at.sample = b;
            step(p, &at);
        }
        before = p->y + t * row;
    }
}

/* The sum plus v . w, where v is NULL for zeros. */
static inline float midge_dot(float sum, const midge_real *v, const midge_real *w, size_t count) {
    for (size_t i = 0; v && i < count; ++i)
        sum += v[i] * w[i];
    return sum;
}

/* What goes into gate `gate` of unit `unit`: its bias, x and h. */
static inline float midge_gate(const midge_recurrent *p, const midge_moment *at, size_t gate,
                               size_t unit) {
    const size_t row = gate * p->hidden + unit;
    const float sum = midge_dot(p->bias[row], at->x, p->weight + row * p->inputs, p->inputs);
    return midge_dot(sum, at->h, p->recurrence + row * p->hidden, p->hidden);
}

/* 1 / (1 + exp(-x)) from exp(-|x|), which cannot overflow. */
static inline float midge_sigmoid(float x) {
    const float e = expf(x < 0.0f ? x : -x);
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

#endif
