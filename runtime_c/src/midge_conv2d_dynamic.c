/* midge_conv2d_dynamic.c - int8 convolution of codes quantized at run time. */
#include "midge_dynamic.h"

/* Adds the window's taps that lie inside the input; the others hold the zero point and add 0. */
static inline void sum_window(const midge_image *image, const midge_pixel *at, midge_dot4 *dot,
                              const int8_t *x, size_t group_in, int32_t x_zero_point) {
    const midge_span columns = at->columns;
    /* Taps of one row are neighbours in memory, unless other groups or a dilation part them. */
    const int32_t step =
        image->groups == 1 && image->dilation_x == 1 ? columns.last - columns.first : 1;
    for (int32_t ky = at->rows.first; ky < at->rows.last; ++ky) {
        const int32_t row = (at->rows.start + ky * image->dilation_y) * image->x_width;
        for (int32_t kx = columns.first; kx < columns.last; kx += step) {
            const size_t pixel = (size_t)(row + columns.start + kx * image->dilation_x);
            const size_t tap = (size_t)(ky * image->kernel_width + kx) * group_in;
            midge_dot4_s8(dot, x + pixel * image->channels, tap, (size_t)step * group_in,
                          x_zero_point);
        }
    }
}

static void conv_pixel(const midge_image *image, const void *layer, const midge_pixel *at) {
    const midge_dynamic *p = (const midge_dynamic *)layer;
    const size_t group_in = image->channels / image->groups;
    const size_t group_out = image->out / image->groups;
    const size_t pitch = (size_t)(image->kernel_height * image->kernel_width) * group_in;
    for (size_t g = 0; g < image->groups; ++g) {
        const size_t end = (g + 1) * group_out;
        for (size_t c = g * group_out; c < end; c += 4) {
            midge_dot4 dot = midge_dot4_start(p->weight, pitch, c, end);
            sum_window(image, at, &dot, p->x + at->x + g * group_in, group_in, p->x_zero_point);
            midge_store_dynamic(p->y + at->y, dot.acc, c, end - c < 4 ? end - c : 4, p);
        }
    }
}

void midge_conv2d_dynamic(const midge_strip *strip, const midge_op *op) {
    const midge_image image = midge_conv_image(op);
    const midge_dynamic p = midge_read_dynamic(strip, op, image.out);
    midge_each_pixel(&image, &p, strip, conv_pixel);
}
