/* midge_rnn_f32.c - one direction of an RNN: h = f(x W + h' R + b). */
#include <math.h>

#include "midge_recurrent.h"

static void step(const midge_recurrent *p, const midge_moment *at) {
    for (size_t j = 0; j < p->hidden; ++j) {
        const float v = midge_gate(p, at, 0, j);
        at->y[j] = p->flags & MIDGE_RECURRENT_RELU ? (v > 0.0f ? v : 0.0f) : tanhf(v);
    }
}

void midge_rnn_f32(const midge_strip *strip, const midge_op *op) {
    const midge_recurrent p = midge_recurrent_at(strip, op, 1);
    midge_each_moment(&p, step);
}
