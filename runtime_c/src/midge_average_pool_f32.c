/* midge_average_pool_f32.c - mean of each window. */
#include "midge_kernel_f32.h"

typedef struct pool {
    const midge_real *x;
    midge_real *y;
    int counts; /* divide by the number of elements inside x, not by the window's size */
} pool;

static void average_pixel(const midge_image *image, const void *layer, const midge_pixel *at) {
    const pool *p = (const pool *)layer;
    midge_real *y = p->y + at->y;
    const int32_t inside =
        (at->rows.last - at->rows.first) * (at->columns.last - at->columns.first);
    const int32_t n = p->counts ? inside : image->kernel_height * image->kernel_width;
    for (size_t c = 0; c < image->channels; ++c)
        y[c] = 0.0f;
    for (int32_t ky = at->rows.first; ky < at->rows.last; ++ky) {
        for (int32_t kx = at->columns.first; kx < at->columns.last; ++kx) {
            const int32_t row = at->rows.start + ky * image->dilation_y;
            const int32_t column = at->columns.start + kx * image->dilation_x;
            const int32_t pixel = row * image->x_width + column;
            const midge_real *from = p->x + at->x + (size_t)pixel * image->channels;
            for (size_t c = 0; c < image->channels; ++c)
                y[c] += from[c];
        }
    }
    for (size_t c = 0; c < image->channels; ++c)
        y[c] /= (float)(n > 0 ? n : 1);
}

void midge_average_pool_f32(const midge_strip *strip, const midge_op *op) {
    const midge_image image = midge_pool_image(op);
    pool p;
    p.x = midge_reals_at(strip, op, MIDGE_OP_X);
    p.y = midge_reals_at(strip, op, MIDGE_OP_Y);
    p.counts = op->word[MIDGE_POOL_COUNTS] != 0;
    midge_each_pixel(&image, &p, strip, average_pixel);
}
