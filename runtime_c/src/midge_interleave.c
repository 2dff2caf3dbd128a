/* midge_interleave.c - channel by channel to pixel by pixel: Y [H, W, C] from X [C, H, W]. */
#include "midge_kernel.h"

void midge_interleave(const midge_strip *strip, const midge_op *op) {
    const size_t width = op->word[MIDGE_INTERLEAVE_WIDTH];
    const size_t channels = op->word[MIDGE_INTERLEAVE_CHANNELS];
    const size_t plane = op->word[MIDGE_INTERLEAVE_PLANE];
    const midge_rows to = midge_rows_at(strip, op, MIDGE_OP_Y, width * channels,
                                        midge_high(op->word[MIDGE_OP_RINGS]));
    const int8_t *x = midge_codes_at(strip, op, MIDGE_OP_X);
    for (uint32_t row = strip->first; row < strip->last; ++row) {
        int8_t *y = midge_row(&to, row);
        for (size_t c = 0; c < channels; ++c) {
            const int8_t *from = x + c * plane + row * width;
            for (size_t i = 0; i < width; ++i)
                y[i * channels + c] = from[i];
        }
    }
}
