/* midge_fully_connected_dynamic.c - int8 matrix product of codes quantized at run time. */
#include "midge_dynamic.h"

void midge_fully_connected_dynamic(const midge_strip *strip, const midge_op *op) {
    const size_t channels = op->word[MIDGE_FC_CHANNELS], depth = op->word[MIDGE_FC_DEPTH];
    const size_t pixels = op->word[MIDGE_FC_PIXELS], first = strip->first * pixels;
    const midge_dynamic p = midge_read_dynamic(strip, op, channels);
    const int8_t *x = p.x + first * depth;
    midge_real *y = p.y + first * channels;
    for (size_t left = strip->last * pixels - first; left > 0; --left, x += depth, y += channels) {
        for (size_t c = 0; c < channels; c += 4) {
            midge_dot4 dot = midge_dot4_start(p.weight, depth, c, channels);
            midge_dot4_s8(&dot, x, 0, depth, p.x_zero_point);
            midge_store_dynamic(y, dot.acc, c, channels - c < 4 ? channels - c : 4, &p);
        }
    }
}
