/* midge_pool_f32.h - largest or mean elements of windows, 4 vectors of channels at once. Private.
 *
 * Included as midge_floats.h is.
 */
#ifndef MIDGE_POOL_F32_H
#define MIDGE_POOL_F32_H

#include "midge_floats.h"

typedef struct midge_pool_f32 {
    const midge_real *x;
    midge_real *y;
    int counts; /* divide by the number of elements inside x, not by the window's size */
} midge_pool_f32;

/* What a window is to become. A pool of averages starts at 0 and divides. */
typedef struct midge_window_f32 {
    const midge_real *x; /* first tap inside the input */
    size_t rows, columns, x_row, x_pixel;
    midge_floats start, divisor;
    midge_mask mask; /* of the last channels */
} midge_window_f32;

/* `vectors` vectors of channels from c on, or those of the mask. vectors, all and max are
 * constants. */
MIDGE_INLINE void midge_pool_lanes(const midge_window_f32 *w, midge_real *y, size_t c,
                                   size_t vectors, int all, int max) {
    midge_floats sum[4];
    MIDGE_UNROLL
    for (size_t v = 0; v < vectors; ++v)
        sum[v] = w->start;
    for (size_t ky = 0; ky < w->rows; ++ky) {
        const midge_real *from = w->x + ky * w->x_row + c;
        for (size_t kx = 0; kx < w->columns; ++kx, from += w->x_pixel) {
            MIDGE_UNROLL
            for (size_t v = 0; v < vectors; ++v) {
                const midge_real *at = from + MIDGE_FLOATS * v;
                const midge_floats value =
                    all ? midge_load(at, MIDGE_FLOATS) : midge_load_some(at, w->mask);
                sum[v] = max ? midge_larger(value, sum[v]) : midge_plus(sum[v], value);
            }
        }
    }
    MIDGE_UNROLL
    for (size_t v = 0; v < vectors; ++v) {
        midge_real *to = y + c + MIDGE_FLOATS * v;
        sum[v] = max ? sum[v] : midge_quotient(sum[v], w->divisor);
        if (all)
            midge_store(to, sum[v], MIDGE_FLOATS);
        else
            midge_store_some(to, sum[v], w->mask);
    }
}

/* Every channel of one output pixel; `max` is a constant. NaN is never the largest. */
MIDGE_INLINE void midge_pool_pixel(const midge_image *image, const midge_pool_f32 *p,
                                   const midge_pixel *at, int max) {
    const int32_t rows = at->rows.last - at->rows.first;
    const int32_t columns = at->columns.last - at->columns.first;
    const int32_t size = image->kernel_height * image->kernel_width;
    const int32_t n = p->counts ? rows * columns : size;
    const size_t channels = image->channels;
    midge_window_f32 w;
    w.x = p->x + at->x;
    w.rows = (size_t)rows;
    w.columns = (size_t)columns;
    w.x_pixel = (size_t)image->dilation_x * channels;
    w.x_row = (size_t)image->dilation_y * (size_t)image->x_width * channels;
    if (rows > 0 && columns > 0) {
        const int32_t row = at->rows.start + at->rows.first * image->dilation_y;
        const int32_t column = at->columns.start + at->columns.first * image->dilation_x;
        w.x += (size_t)(row * image->x_width + column) * channels;
    }
    w.start = midge_same(max ? midge_float(0xFF800000u) : 0.0f); /* minus infinity */
    w.divisor = midge_same((float)(n > 0 ? n : 1));
    w.mask = midge_first(channels % MIDGE_FLOATS);
    size_t c = 0;
    for (; c + 4 * MIDGE_FLOATS <= channels; c += 4 * MIDGE_FLOATS)
        midge_pool_lanes(&w, p->y + at->y, c, 4, 1, max);
    for (; c + MIDGE_FLOATS <= channels; c += MIDGE_FLOATS)
        midge_pool_lanes(&w, p->y + at->y, c, 1, 1, max);
    if (c < channels)
        midge_pool_lanes(&w, p->y + at->y, c, 1, 0, max);
}

/* Makes the rows of a strip; `make` writes the channels of one pixel of a midge_pool_f32. */
MIDGE_INLINE void midge_pool_strip(const midge_strip *strip, const midge_op *op,
                                   midge_pixel_function make) {
    const midge_image image = midge_pool_image(op);
    midge_pool_f32 p;
    p.x = midge_reals_at(strip, op, MIDGE_OP_X);
    p.y = midge_reals_at(strip, op, MIDGE_OP_Y);
    p.counts = op->word[MIDGE_POOL_COUNTS] != 0;
    midge_each_pixel(&image, &p, strip, make);
}

#endif
