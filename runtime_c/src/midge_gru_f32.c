/* midge_gru_f32.c - one direction of a GRU; gates in the order of ONNX: z, r, h. */
#include <math.h>

#include "midge_recurrent.h"

/* What goes into tanh for one unit. */
static float candidate(const midge_recurrent *p, const midge_moment *at, const midge_real *reset,
                       size_t unit) {
    const size_t row = 2 * p->hidden + unit;
    const midge_real *recurrence = p->recurrence + row * p->hidden;
    const float sum = midge_dot(p->bias[row], at->x, p->weight + row * p->inputs, p->inputs);
    if (!(p->flags & MIDGE_RECURRENT_RESET_AFTER))
        return midge_dot(sum, reset, recurrence, p->hidden);
    const float r = midge_sigmoid(midge_gate(p, at, 1, unit));
    return sum + r * midge_dot(p->more[unit], at->h, recurrence, p->hidden);
}

/* h = (1 - z) * tanh(.) + z * h'. */
static void step(const midge_recurrent *p, const midge_moment *at) {
    midge_real *reset = p->kept + at->sample * p->hidden;
    for (size_t j = 0; j < p->hidden; ++j)
        reset[j] = at->h ? midge_sigmoid(midge_gate(p, at, 1, j)) * at->h[j] : 0.0f;
    for (size_t j = 0; j < p->hidden; ++j) {
        const float z = midge_sigmoid(midge_gate(p, at, 0, j));
        const float n = tanhf(candidate(p, at, reset, j));
        at->y[j] = (1.0f - z) * n + z * (at->h ? at->h[j] : 0.0f);
    }
}

void midge_gru_f32(const midge_strip *strip, const midge_op *op) {
    const midge_recurrent p = midge_recurrent_at(strip, op, 3);
    midge_each_moment(&p, step);
}
