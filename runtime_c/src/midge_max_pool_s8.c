/* midge_max_pool_s8.c - largest code of each window; padding never wins. */
#include "midge_kernel.h"

/* Writes every channel of one output pixel: y = max over the window's pixels inside x. */
static void max_pixel(const int8_t *x, int8_t *y, size_t channels, int32_t x_width, midge_span rows,
                      midge_span columns) {
    memset(y, -128, channels);
    for (int32_t ky = rows.first; ky < rows.last; ++ky) {
        for (int32_t kx = columns.first; kx < columns.last; ++kx) {
            const int32_t pixel = (rows.start + ky) * x_width + columns.start + kx;
            const int8_t *from = x + (size_t)pixel * channels;
            for (size_t c = 0; c < channels; ++c)
                y[c] = from[c] > y[c] ? from[c] : y[c];
        }
    }
}

void midge_max_pool_s8(const midge_memory *memory, const midge_op *op) {
    const int32_t x_height = midge_low(op->word[MIDGE_POOL_X_SIZE]);
    const int32_t x_width = midge_high(op->word[MIDGE_POOL_X_SIZE]);
    const int32_t y_height = midge_low(op->word[MIDGE_POOL_Y_SIZE]);
    const int32_t y_width = midge_high(op->word[MIDGE_POOL_Y_SIZE]);
    const size_t channels = (size_t)midge_high(op->word[MIDGE_POOL_CHANNELS]);
    const int8_t *x = midge_codes_at(memory, op, MIDGE_OP_X);
    int8_t *y = midge_codes_at(memory, op, MIDGE_OP_Y);

    for (int32_t n = midge_low(op->word[MIDGE_POOL_CHANNELS]); n > 0; --n) {
        for (int32_t oy = 0; oy < y_height; ++oy) {
            const midge_span rows = midge_clip(oy * midge_low(op->word[MIDGE_POOL_STRIDE]) -
                                                   midge_low(op->word[MIDGE_POOL_PADS]),
                                               midge_low(op->word[MIDGE_POOL_KERNEL]), 1, x_height);
            for (int32_t ox = 0; ox < y_width; ++ox) {
                const midge_span columns =
                    midge_clip(ox * midge_high(op->word[MIDGE_POOL_STRIDE]) -
                                   midge_high(op->word[MIDGE_POOL_PADS]),
                               midge_high(op->word[MIDGE_POOL_KERNEL]), 1, x_width);
                max_pixel(x, y, channels, x_width, rows, columns);
                y += channels;
            }
        }
        x += (size_t)x_height * (size_t)x_width * channels;
    }
}
