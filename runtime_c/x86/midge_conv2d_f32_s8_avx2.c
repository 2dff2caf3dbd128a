/* midge_conv2d_f32_s8_avx2.c - float32 convolution with int8 weights: 16 channels of 6 pixels at
 * once. */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_patch_f32.h"

static void make_band(const midge_image *image, const void *layer, const midge_patch *band,
                      midge_span rows) {
    midge_conv_band(image, (const midge_layer_f32 *)layer, band, rows, 1);
}

void midge_conv2d_f32_s8_avx2(const midge_strip *strip, const midge_op *op) {
    const midge_image image = midge_conv_image(op);
    const size_t taps = (size_t)(image.kernel_height * image.kernel_width);
    const midge_layer_f32 layer =
        midge_read_layer(strip, op, taps * (image.channels / image.groups), image.out, 1);
    midge_each_band(&image, &layer, layer.x, layer.y, strip, make_band);
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
