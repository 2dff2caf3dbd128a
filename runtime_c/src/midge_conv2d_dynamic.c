/* midge_conv2d_dynamic.c - int8 convolution of codes quantized at run time. */
#include "midge_dynamic.h"

static void make_pixel(const midge_image *image, const void *layer, const midge_pixel *at) {
    midge_dynamic_pixel(image, (const midge_dynamic *)layer, at, midge_dot4_s8);
}

void midge_conv2d_dynamic(const midge_strip *strip, const midge_op *op) {
    const midge_image image = midge_conv_image(op);
    const midge_dynamic p = midge_read_dynamic(strip, op, image.out);
    midge_each_pixel(&image, &p, strip, make_pixel);
}
