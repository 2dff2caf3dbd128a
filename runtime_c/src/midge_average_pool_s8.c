/* midge_average_pool_s8.c - mean of each window, requantized. */
#include "midge_kernel.h"

#define LANES 8 /* channels that accumulate side by side */

/* Where one output pixel comes from, and its divisor. */
typedef struct window {
    midge_span rows, columns;
    int32_t x_width, x_zero_point;
    uint32_t m; /* float32 bits of the multiplier */
} window;

/* Channels c..c + count - 1 of one output pixel: requantize(sum(x) - n * x_zero_point). Padding
 * holds x_zero_point: counted or not, it adds 0. */
static inline void sum_lanes(const window *p, const int8_t *x, int8_t *y, size_t channels,
                             size_t count, const midge_requant *limits) {
    int32_t acc[LANES] = {0};
    for (int32_t ky = p->rows.first; ky < p->rows.last; ++ky) {
        const int32_t pixel = (p->rows.start + ky) * p->x_width + p->columns.start;
        const int8_t *from = x + (size_t)(pixel + p->columns.first) * channels;
        for (int32_t kx = p->columns.first; kx < p->columns.last; ++kx, from += channels)
            for (size_t i = 0; i < count; ++i)
                acc[i] += from[i] - p->x_zero_point;
    }
    for (size_t i = 0; i < count; ++i)
        y[i] = midge_requantize(acc[i], p->m, limits);
}

void midge_average_pool_s8(const midge_memory *memory, const midge_op *op) {
    const int32_t x_height = midge_low(op->word[MIDGE_POOL_X_SIZE]);
    const int32_t x_width = midge_high(op->word[MIDGE_POOL_X_SIZE]);
    const int32_t y_height = midge_low(op->word[MIDGE_POOL_Y_SIZE]);
    const int32_t y_width = midge_high(op->word[MIDGE_POOL_Y_SIZE]);
    const size_t channels = (size_t)midge_high(op->word[MIDGE_POOL_CHANNELS]);
    const uint32_t *m = memory->data + op->word[MIDGE_OP_DATA];
    const midge_requant limits = midge_requant_limits(op->word[MIDGE_POOL_CODES]);
    const int8_t *x = midge_codes_at(memory, op, MIDGE_OP_X);
    int8_t *y = midge_codes_at(memory, op, MIDGE_OP_Y);
    window p;
    p.x_width = x_width;
    p.x_zero_point = midge_code(op->word[MIDGE_POOL_CODES], 0);
    p.m = m[0];

    for (int32_t n = midge_low(op->word[MIDGE_POOL_CHANNELS]); n > 0; --n) {
        for (int32_t oy = 0; oy < y_height; ++oy) {
            p.rows = midge_clip(oy * midge_low(op->word[MIDGE_POOL_STRIDE]) -
                                    midge_low(op->word[MIDGE_POOL_PADS]),
                                midge_low(op->word[MIDGE_POOL_KERNEL]), 1, x_height);
            for (int32_t ox = 0; ox < y_width; ++ox, y += channels) {
                p.columns = midge_clip(ox * midge_high(op->word[MIDGE_POOL_STRIDE]) -
                                           midge_high(op->word[MIDGE_POOL_PADS]),
                                       midge_high(op->word[MIDGE_POOL_KERNEL]), 1, x_width);
                const int32_t taps =
                    (p.rows.last - p.rows.first) * (p.columns.last - p.columns.first);
                if (op->word[MIDGE_POOL_COUNTS] && taps > 0)
                    p.m = m[taps - 1];
                for (size_t c = 0; c < channels; c += LANES)
                    sum_lanes(&p, x + c, y + c, channels,
                              channels - c < LANES ? channels - c : LANES, &limits);
            }
        }
        x += (size_t)x_height * (size_t)x_width * channels;
    }
}
