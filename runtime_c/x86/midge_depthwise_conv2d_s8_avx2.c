/* midge_depthwise_conv2d_s8_avx2.c - convolution with one group per input channel, 16 channels at
 * once. */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_avx2.h"

static inline __m256i multiply_add(__m256i acc, __m256i x, __m256i w) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(x, w));
}

#include "midge_depthwise_lanes.h"
#include "midge_depthwise_narrow.h"

void midge_depthwise_conv2d_s8_avx2(const midge_strip *strip, const midge_op *op) {
    const midge_conv p = midge_conv_at(strip, op);
    const int is_3_by_3 = p.kernel_height == 3 && p.kernel_width == 3 && p.dilation_y == 1 &&
                          p.dilation_x == 1 && p.stride_x <= 2 && p.left <= 2;
    if (p.channels != p.out || !is_3_by_3) {
        midge_depthwise_conv2d_s8(strip, op);
        return;
    }
    int8_t padding[WINDOW];
    memset(padding, p.x_zero_point, sizeof padding);
    if (p.out < GROUP) {
        narrow_rows(&p, strip->first, strip->last, padding);
        return;
    }
    const uint32_t most = rows_of_block(&p);
    for (uint32_t row = strip->first; row < strip->last; row += most) {
        const uint32_t left = strip->last - row;
        wide_rows(&p, row, left < most ? left : most, padding);
    }
}

MIDGE_TARGET_END

#endif
