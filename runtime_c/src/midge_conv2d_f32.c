/* midge_conv2d_f32.c - 2-D convolution with stride, dilation, groups and padding. */
#include "midge_panel_f32.h"

void midge_conv2d_f32(const midge_strip *strip, const midge_op *op) {
    const midge_image image = midge_conv_image(op);
    const size_t taps = (size_t)(image.kernel_height * image.kernel_width);
    const midge_layer_f32 layer =
        midge_read_layer(strip, op, taps * (image.channels / image.groups), image.out, 0);
    midge_each_pixel(&image, &layer, strip, midge_conv_pixel);
}
