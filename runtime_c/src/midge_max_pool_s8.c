/* midge_max_pool_s8.c - largest code of each window; padding never wins. */
#include "midge_kernel.h"

/* Writes every channel of one output pixel: y = max over the window's pixels inside x. Row 0 of the
 * image is row `image` of X. */
static void max_pixel(const midge_pool *p, uint32_t image, int8_t *y, midge_span rows,
                      midge_span columns) {
    memset(y, -128, p->channels);
    for (int32_t ky = rows.first; ky < rows.last; ++ky) {
        const int8_t *x = midge_row(&p->x, image + (uint32_t)(rows.start + ky * p->dilation_y));
        for (int32_t kx = columns.first; kx < columns.last; ++kx) {
            const int8_t *pixel = x + (size_t)(columns.start + kx * p->dilation_x) * p->channels;
            for (size_t c = 0; c < p->channels; ++c)
                y[c] = pixel[c] > y[c] ? pixel[c] : y[c];
        }
    }
}

void midge_max_pool_s8(const midge_strip *strip, const midge_op *op) {
    const midge_pool p = midge_pool_at(strip, op);
    for (uint32_t row = strip->first; row < strip->last; ++row) {
        const uint32_t image = row / p.y_height * (uint32_t)p.x_height;
        const midge_span rows = midge_pool_rows(&p, op, row % p.y_height);
        int8_t *y = midge_row(&p.y, row);
        for (int32_t ox = 0; ox < p.y_width; ++ox, y += p.channels)
            max_pixel(&p, image, y, rows, midge_pool_columns(&p, op, ox));
    }
}
