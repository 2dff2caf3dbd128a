/* midge_depthwise_conv2d_f32.c - convolution with one group per input channel. */
#include "midge_kernel_f32.h"

#define LANES 8 /* output channels that accumulate side by side */

typedef struct depthwise {
    const midge_real *x, *bias, *weight;
    midge_real *y;
    midge_limits limits;
} depthwise;

/* Channels c..c + count - 1 of one output pixel. Lane i reads input channel i * x_step of x, so
 * that x_step 0 serves several output channels per input channel. */
static inline void sum_lanes(const midge_image *image, const depthwise *p, const midge_pixel *at,
                             const midge_real *x, size_t c, size_t count, size_t x_step) {
    float acc[LANES] = {0};
    for (int32_t ky = at->rows.first; ky < at->rows.last; ++ky) {
        const int32_t row = (at->rows.start + ky * image->dilation_y) * image->x_width;
        for (int32_t kx = at->columns.first; kx < at->columns.last; ++kx) {
            const int32_t pixel = row + at->columns.start + kx * image->dilation_x;
            const midge_real *from = x + (size_t)pixel * image->channels;
            const midge_real *w =
                p->weight + (size_t)(ky * image->kernel_width + kx) * image->out + c;
            if (count == LANES && x_step == 1) {
                for (size_t i = 0; i < LANES; ++i)
                    acc[i] += from[i] * w[i];
            } else {
                for (size_t i = 0; i < count; ++i)
                    acc[i] += from[i * x_step] * w[i];
            }
        }
    }
    for (size_t i = 0; i < count; ++i)
        p->y[at->y + c + i] = midge_limit(acc[i] + p->bias[c + i], &p->limits);
}

static void depthwise_pixel(const midge_image *image, const void *layer, const midge_pixel *at) {
    const depthwise *p = (const depthwise *)layer;
    const size_t per_channel = image->out / image->channels;
    const midge_real *x = p->x + at->x;
    if (per_channel == 1) {
        for (size_t c = 0; c < image->out; c += LANES)
            sum_lanes(image, p, at, x + c, c, image->out - c < LANES ? image->out - c : LANES, 1);
        return;
    }
    for (size_t g = 0; g < image->channels; ++g) {
        const size_t end = (g + 1) * per_channel;
        for (size_t c = g * per_channel; c < end; c += LANES)
            sum_lanes(image, p, at, x + g, c, end - c < LANES ? end - c : LANES, 0);
    }
}

void midge_depthwise_conv2d_f32(const midge_strip *strip, const midge_op *op) {
    const midge_image image = midge_conv_image(op);
    depthwise p;
    p.x = midge_reals_at(strip, op, MIDGE_OP_X);
    p.y = midge_reals_at(strip, op, MIDGE_OP_Y);
    p.bias = midge_constants(strip, op->word[MIDGE_OP_DATA]);
    p.weight = p.bias + image.out;
    p.limits = midge_read_limits(op);
    midge_each_pixel(&image, &p, strip, depthwise_pixel);
}
