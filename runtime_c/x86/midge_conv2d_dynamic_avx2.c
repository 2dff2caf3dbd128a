/* midge_conv2d_dynamic_avx2.c - int8 convolution of codes quantized at run time. */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_dot4_avx2.h"

static void make_pixel(const midge_image *image, const void *layer, const midge_pixel *at) {
    midge_dynamic_pixel(image, (const midge_dynamic *)layer, at, midge_dot4_avx2);
}

void midge_conv2d_dynamic_avx2(const midge_strip *strip, const midge_op *op) {
    const midge_image image = midge_conv_image(op);
    const midge_dynamic p = midge_read_dynamic(strip, op, image.out);
    midge_each_pixel(&image, &p, strip, make_pixel);
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
