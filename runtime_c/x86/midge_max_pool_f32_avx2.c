/* midge_max_pool_f32_avx2.c - largest element of each window; padding never wins. */
#include "midge_x86.h"

#if MIDGE_X86

#define MIDGE_FLOATS 8
#include "midge_pool_f32.h"

static void make_pixel(const midge_image *image, const void *layer, const midge_pixel *at) {
    midge_pool_pixel(image, (const midge_pool_f32 *)layer, at, 1);
}

void midge_max_pool_f32_avx2(const midge_strip *strip, const midge_op *op) {
    midge_pool_strip(strip, op, make_pixel);
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
