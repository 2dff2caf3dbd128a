/* midge_fully_connected_s8.c - Y [rows, channels] = X [rows, depth] times W^T, and 1 x 1 Conv. */
#include "midge_kernel.h"

void midge_fully_connected_s8(const midge_strip *strip, const midge_op *op) {
    const size_t pixels = op->word[MIDGE_FC_PIXELS];
    const size_t depth = op->word[MIDGE_FC_DEPTH];
    const size_t channels = op->word[MIDGE_FC_CHANNELS];
    const uint32_t *bias = strip->data + op->word[MIDGE_OP_DATA];
    const uint32_t *m = bias + channels;
    const int8_t *weight = (const int8_t *)(m + channels);
    const int32_t x_zero_point = midge_code(op->word[MIDGE_FC_CODES], 0);
    const midge_requant limits = midge_requant_limits(op->word[MIDGE_FC_CODES]);
    const midge_rows from =
        midge_rows_at(strip, op, MIDGE_OP_X, pixels * depth, midge_low(op->word[MIDGE_OP_RINGS]));
    const midge_rows to = midge_rows_at(strip, op, MIDGE_OP_Y, pixels * channels,
                                        midge_high(op->word[MIDGE_OP_RINGS]));

    for (uint32_t row = strip->first; row < strip->last; ++row) {
        const int8_t *x = midge_row(&from, row);
        int8_t *y = midge_row(&to, row);
        for (size_t pixel = 0; pixel < pixels; ++pixel, x += depth, y += channels) {
            for (size_t c = 0; c < channels; c += 4) {
                const size_t count = channels - c < 4 ? channels - c : 4;
                midge_dot4 dot = midge_dot4_start(weight, depth, c, channels);
                midge_dot4_s8(&dot, x, 0, depth, x_zero_point);
                midge_store_s8(y + c, dot.acc, count, bias + c, m + c, &limits);
            }
        }
    }
}
