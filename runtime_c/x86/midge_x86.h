/* midge_x86.h - levels of x86-64 instruction sets, and the kernels that use them.
 *
 * A kernel NAME_avx2, NAME_avxvnni, NAME_avx512f or NAME_avx512vnni reads the same records and
 * constants as the portable NAME and makes the same bits; those of float32 sums stay within the
 * bounds of the portable ones (docs/numerics.md), as they add in another order. That order is the
 * same for AVX2 and AVX512F.
 */
#ifndef MIDGE_X86_H
#define MIDGE_X86_H

#include "midge_model.h"

/* Whether to compile them; -DMIDGE_X86=0 leaves them out. */
#ifndef MIDGE_X86
#if defined(__x86_64__) || defined(_M_X64)
#define MIDGE_X86 1
#else
#define MIDGE_X86 0
#endif
#endif

/* Bits of what midge_x86_levels returns. */
enum {
    MIDGE_X86_PORTABLE = 0,
    MIDGE_X86_AVX2 = 1,       /* and FMA */
    MIDGE_X86_AVXVNNI = 2,    /* and those of AVX2 */
    MIDGE_X86_AVX512F = 3,    /* and those of AVX2 */
    MIDGE_X86_AVX512VNNI = 4, /* and BW, DQ, VL, and those of AVX512F */
};

#ifdef __cplusplus
extern "C" {
#endif

/* The levels that this processor and its operating system can run; bit MIDGE_X86_PORTABLE is always
 * among them. Keeps nothing between calls. */
uint32_t midge_x86_levels(void);

void midge_add_exact_s8_avx2(const midge_strip *strip, const midge_op *op);
void midge_add_s8_avx2(const midge_strip *strip, const midge_op *op);
void midge_add_wide_s8_avx2(const midge_strip *strip, const midge_op *op);
void midge_average_pool_f32_avx2(const midge_strip *strip, const midge_op *op);
void midge_average_pool_f32_avx512f(const midge_strip *strip, const midge_op *op);
void midge_average_pool_s8_avx2(const midge_strip *strip, const midge_op *op);
void midge_binary_f32_avx2(const midge_strip *strip, const midge_op *op);
void midge_clip_f32_avx2(const midge_strip *strip, const midge_op *op);
void midge_conv2d_asymmetric_s8_avx2(const midge_strip *strip, const midge_op *op);
void midge_conv2d_c4n16_s8_avx2(const midge_strip *strip, const midge_op *op);
void midge_conv2d_c4n16_s8_avx512vnni(const midge_strip *strip, const midge_op *op);
void midge_conv2d_c4n16_s8_avxvnni(const midge_strip *strip, const midge_op *op);
void midge_conv2d_dynamic_avx2(const midge_strip *strip, const midge_op *op);
void midge_conv2d_f32_avx2(const midge_strip *strip, const midge_op *op);
void midge_conv2d_f32_avx512f(const midge_strip *strip, const midge_op *op);
void midge_conv2d_f32_s8_avx2(const midge_strip *strip, const midge_op *op);
void midge_conv2d_f32_s8_avx512f(const midge_strip *strip, const midge_op *op);
void midge_depthwise_conv2d_f32_avx2(const midge_strip *strip, const midge_op *op);
void midge_depthwise_conv2d_f32_avx512f(const midge_strip *strip, const midge_op *op);
void midge_depthwise_conv2d_s8_avx2(const midge_strip *strip, const midge_op *op);
void midge_depthwise_conv2d_s8_avx512vnni(const midge_strip *strip, const midge_op *op);
void midge_depthwise_conv2d_s8_avxvnni(const midge_strip *strip, const midge_op *op);
void midge_dequantize_s8_f32_avx2(const midge_strip *strip, const midge_op *op);
void midge_dynamic_quantize_avx2(const midge_strip *strip, const midge_op *op);
void midge_fully_connected_c4n16_s8_avx2(const midge_strip *strip, const midge_op *op);
void midge_fully_connected_c4n16_s8_avx512vnni(const midge_strip *strip, const midge_op *op);
void midge_fully_connected_c4n16_s8_avxvnni(const midge_strip *strip, const midge_op *op);
void midge_fully_connected_dynamic_avx2(const midge_strip *strip, const midge_op *op);
void midge_fully_connected_f32_avx2(const midge_strip *strip, const midge_op *op);
void midge_fully_connected_f32_avx512f(const midge_strip *strip, const midge_op *op);
void midge_fully_connected_f32_s8_avx2(const midge_strip *strip, const midge_op *op);
void midge_fully_connected_f32_s8_avx512f(const midge_strip *strip, const midge_op *op);
void midge_max_pool_f32_avx2(const midge_strip *strip, const midge_op *op);
void midge_max_pool_f32_avx512f(const midge_strip *strip, const midge_op *op);
void midge_max_pool_s8_avx2(const midge_strip *strip, const midge_op *op);
void midge_mul_s8_avx2(const midge_strip *strip, const midge_op *op);
void midge_quantize_f32_s8_avx2(const midge_strip *strip, const midge_op *op);

#ifdef __cplusplus
}
#endif

#endif
