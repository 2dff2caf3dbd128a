/* midge_average_pool_s8.c - mean of each window, requantized. */
#include "midge_kernel.h"

#define LANES 8 /* channels that accumulate side by side */

/* Where one output pixel comes from, and its divisor. */
typedef struct window {
    midge_span rows, columns;
    uint32_t image; /* row 0 of the image in X */
    int32_t x_zero_point;
    uint32_t m; /* float32 bits of the multiplier */
} window;

/* Channels c..c + count - 1 of one output pixel: requantize(sum(x) - n * x_zero_point). Padding
 * holds x_zero_point: counted or not, it adds 0. */
static inline void sum_lanes(const midge_pool *p, const window *w, int8_t *y, size_t c,
                             size_t count, const midge_requant *limits) {
    const size_t step = (size_t)p->dilation_x * p->channels;
    int32_t acc[LANES] = {0};
    for (int32_t ky = w->rows.first; ky < w->rows.last; ++ky) {
        const int32_t at = w->rows.start + ky * p->dilation_y;
        const int8_t *row = midge_row(&p->x, w->image + (uint32_t)at);
        const int32_t pixel = w->columns.start + w->columns.first * p->dilation_x;
        const int8_t *from = row + (size_t)pixel * p->channels + c;
        for (int32_t kx = w->columns.first; kx < w->columns.last; ++kx, from += step)
            for (size_t i = 0; i < count; ++i)
                acc[i] += from[i] - w->x_zero_point;
    }
    for (size_t i = 0; i < count; ++i)
        y[c + i] = midge_requantize(acc[i], w->m, limits);
}

void midge_average_pool_s8(const midge_strip *strip, const midge_op *op) {
    const midge_pool p = midge_pool_at(strip, op);
    const uint32_t *m = strip->data + op->word[MIDGE_OP_DATA];
    const midge_requant limits = midge_requant_limits(op->word[MIDGE_POOL_CODES]);
    window w;
    w.x_zero_point = midge_code(op->word[MIDGE_POOL_CODES], 0);
    w.m = m[0];

    for (uint32_t row = strip->first; row < strip->last; ++row) {
        int8_t *y = midge_row(&p.y, row);
        w.image = row / p.y_height * (uint32_t)p.x_height;
        w.rows = midge_pool_rows(&p, op, row % p.y_height);
        for (int32_t ox = 0; ox < p.y_width; ++ox, y += p.channels) {
            w.columns = midge_pool_columns(&p, op, ox);
            const int32_t taps = (w.rows.last - w.rows.first) * (w.columns.last - w.columns.first);
            if (op->word[MIDGE_POOL_COUNTS] && taps > 0)
                w.m = m[taps - 1];
            for (size_t c = 0; c < p.channels; c += LANES) {
                const size_t left = p.channels - c;
                sum_lanes(&p, &w, y, c, left < LANES ? left : LANES, &limits);
            }
        }
    }
}
