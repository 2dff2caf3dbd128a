/* midge_max_pool_f32.c - largest element of each window; padding never wins. */
#include "midge_kernel_f32.h"

typedef struct pool {
    const midge_real *x;
    midge_real *y;
} pool;

static void max_pixel(const midge_image *image, const void *layer, const midge_pixel *at) {
    const pool *p = (const pool *)layer;
    midge_real *y = p->y + at->y;
    for (size_t c = 0; c < image->channels; ++c)
        y[c] = midge_float(0xFF800000u); /* minus infinity */
    for (int32_t ky = at->rows.first; ky < at->rows.last; ++ky) {
        for (int32_t kx = at->columns.first; kx < at->columns.last; ++kx) {
            const int32_t row = at->rows.start + ky * image->dilation_y;
            const int32_t column = at->columns.start + kx * image->dilation_x;
            const int32_t pixel = row * image->x_width + column;
            const midge_real *from = p->x + at->x + (size_t)pixel * image->channels;
            for (size_t c = 0; c < image->channels; ++c)
                y[c] = from[c] > y[c] ? from[c] : y[c];
        }
    }
}

void midge_max_pool_f32(const midge_strip *strip, const midge_op *op) {
    const midge_image image = midge_pool_image(op);
    pool p;
    p.x = midge_reals_at(strip, op, MIDGE_OP_X);
    p.y = midge_reals_at(strip, op, MIDGE_OP_Y);
    midge_each_pixel(&image, &p, strip, max_pixel);
}
