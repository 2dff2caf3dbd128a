/* midge_lstm_f32.c - one direction of an LSTM; gates in the order of ONNX: i, o, f, c. */
#include <math.h>

#include "midge_recurrent.h"

/* c = f * c' + i * tanh(.); h = o * tanh(c). */
static void step(const midge_recurrent *p, const midge_moment *at) {
    const size_t hidden = p->hidden;
    midge_real *cell = p->kept + at->sample * hidden;
    for (size_t j = 0; j < hidden; ++j) {
        const float before = cell[j];
        const float i = midge_sigmoid(midge_gate(p, at, 0, j) + p->more[j] * before);
        const float f = midge_sigmoid(midge_gate(p, at, 2, j) + p->more[2 * hidden + j] * before);
        const float c = f * before + i * tanhf(midge_gate(p, at, 3, j));
        const float o = midge_sigmoid(midge_gate(p, at, 1, j) + p->more[hidden + j] * c);
        cell[j] = c;
        at->y[j] = o * tanhf(c);
    }
}

void midge_lstm_f32(const midge_strip *strip, const midge_op *op) {
    const midge_recurrent p = midge_recurrent_at(strip, op, 4);
    for (size_t i = 0; i < p.batch * p.hidden; ++i)
        p.kept[i] = p.c ? p.c[i] : 0.0f;
    midge_each_moment(&p, step);
}
