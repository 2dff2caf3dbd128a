/* midge_depthwise_conv2d_s8.c - convolution with one group per input channel. */
#include "midge_kernel.h"

#define LANES 8 /* output channels that accumulate side by side */

/* Channels c..c + count - 1 of one output pixel, lane i from input channel g + i * x_step: x_step 0
 * serves several output channels per input channel. Row 0 of the image is row `image` of X. */
static inline void sum_lanes(const midge_conv *p, uint32_t image, size_t g, int8_t *y, size_t c,
                             size_t count, size_t x_step, midge_span rows, midge_span columns) {
    int32_t acc[LANES] = {0};
    for (int32_t ky = rows.first; ky < rows.last; ++ky) {
        const uint32_t row = image + (uint32_t)(rows.start + ky * p->dilation_y);
        const int8_t *x = midge_row(&p->x, row) + g;
        for (int32_t kx = columns.first; kx < columns.last; ++kx) {
            const size_t pixel = (size_t)(columns.start + kx * p->dilation_x);
            const int8_t *from = x + pixel * p->channels;
            const int8_t *w = p->weight + (size_t)(ky * p->kernel_width + kx) * p->out + c;
            if (count == LANES) {
                for (size_t i = 0; i < LANES; ++i)
                    acc[i] += (from[i * x_step] - p->x_zero_point) * w[i];
            } else {
                for (size_t i = 0; i < count; ++i)
                    acc[i] += (from[i * x_step] - p->x_zero_point) * w[i];
            }
        }
    }
    midge_store_s8(y + c, acc, count, p->bias + c, p->m + c, &p->limits);
}

/* Writes every channel of one output pixel. */
static void depthwise_pixel(const midge_conv *p, uint32_t image, int8_t *y, midge_span rows,
                            midge_span columns) {
    if (p->channels == p->out) {
        for (size_t c = 0; c < p->out; c += LANES) {
            const size_t count = p->out - c < LANES ? p->out - c : LANES;
            sum_lanes(p, image, c, y, c, count, 1, rows, columns);
        }
        return;
    }
    const size_t per_channel = p->out / p->channels;
    for (size_t g = 0; g < p->channels; ++g) {
        const size_t end = (g + 1) * per_channel;
        for (size_t c = g * per_channel; c < end; c += LANES) {
            const size_t count = end - c < LANES ? end - c : LANES;
            sum_lanes(p, image, g, y, c, count, 0, rows, columns);
        }
    }
}

void midge_depthwise_conv2d_s8(const midge_strip *strip, const midge_op *op) {
    const midge_conv p = midge_conv_at(strip, op);
    for (uint32_t row = strip->first; row < strip->last; ++row) {
        const uint32_t image = row / p.y_height * (uint32_t)p.x_height;
        const midge_span rows = midge_conv_rows(&p, row % p.y_height);
        int8_t *y = midge_row(&p.y, row);
        for (int32_t ox = 0; ox < p.y_width; ++ox, y += p.out)
            depthwise_pixel(&p, image, y, rows, midge_conv_columns(&p, ox));
    }
}
