/* midge_conv2d_s8.c - 2-D convolution with stride, dilation, groups and padding. */
#include "midge_kernel.h"

/* Channels of one group, and bytes from one output channel's weights to the next. */
typedef struct group_size {
    size_t in, out, pitch;
} group_size;

/* Adds the window's taps that lie inside the input; the others hold x_zero_point and add 0. Row 0
 * of the image is row `image` of X, `first` the group's first channel. */
static inline void sum_window(const midge_conv *p, const group_size *size, midge_dot4 *dot,
                              uint32_t image, size_t first, midge_span rows, midge_span columns) {
    /* Taps of one row are neighbours in memory, unless other groups or a dilation part them. */
    const int32_t step = p->groups == 1 && p->dilation_x == 1 ? columns.last - columns.first : 1;
    const size_t run = (size_t)step * size->in;
    for (int32_t ky = rows.first; ky < rows.last; ++ky) {
        const uint32_t row = image + (uint32_t)(rows.start + ky * p->dilation_y);
        const int8_t *x = midge_row(&p->x, row) + first;
        for (int32_t kx = columns.first; kx < columns.last; kx += step) {
            const size_t pixel = (size_t)(columns.start + kx * p->dilation_x);
            const size_t tap = (size_t)(ky * p->kernel_width + kx) * size->in;
            midge_dot4_s8(dot, x + pixel * p->channels, tap, run, p->x_zero_point);
        }
    }
}

/* Writes every channel of one output pixel. */
static void conv_pixel(const midge_conv *p, const group_size *size, uint32_t image, int8_t *y,
                       midge_span rows, midge_span columns) {
    for (size_t g = 0; g < p->groups; ++g) {
        const size_t first = g * size->out, end = first + size->out;
        for (size_t c = first; c < end; c += 4) {
            const size_t count = end - c < 4 ? end - c : 4;
            midge_dot4 dot = midge_dot4_start(p->weight, size->pitch, c, end);
            sum_window(p, size, &dot, image, g * size->in, rows, columns);
            midge_store_s8(y + c, dot.acc, count, p->bias + c, p->m + c, &p->limits);
        }
    }
}

void midge_conv2d_s8(const midge_strip *strip, const midge_op *op) {
    const midge_conv p = midge_conv_at(strip, op);
    group_size size;
    size.in = p.channels / p.groups;
    size.out = p.out / p.groups;
    size.pitch = (size_t)(p.kernel_height * p.kernel_width) * size.in;
    for (uint32_t row = strip->first; row < strip->last; ++row) {
        const uint32_t image = row / p.y_height * (uint32_t)p.x_height;
        const midge_span rows = midge_conv_rows(&p, row % p.y_height);
        int8_t *y = midge_row(&p.y, row);
        for (int32_t ox = 0; ox < p.y_width; ++ox, y += p.out)
            conv_pixel(&p, &size, image, y, rows, midge_conv_columns(&p, ox));
    }
}
