/* midge_model_f32.h - records of the float32 kernels and of those that quantize at run time.
 *
 * They have the form that midge_model.h describes; only models with such steps include this file.
 */
#ifndef MIDGE_MODEL_F32_H
#define MIDGE_MODEL_F32_H

#include "midge_model.h"

/* What a layer's result is limited to, float32 bits. */
enum {
    MIDGE_LIMIT_LOW = 12,
    MIDGE_LIMIT_HIGH = 13,
};

/* midge_conv2d_f32, midge_depthwise_conv2d_f32: words MIDGE_CONV_X_SIZE to MIDGE_CONV_GROUPS and
 * the limits; N * H rows, all of X and Y lying in the arena. Data: float32 bias [O], weights
 * (depthwise [kh, kw, O]; else, group by group, panels of the next 16, 8, 4 or 1 output channels,
 * the widest that fits, each [kh, kw, C / groups, width]). midge_conv2d_f32_s8: int8 weights. Data:
 * float32 bias [O], scales [O], int8 panels. midge_fully_connected_f32,
 * midge_fully_connected_f32_s8: words MIDGE_FC_PIXELS to MIDGE_FC_CHANNELS, the limits and the same
 * data with panels [depth, width]. midge_conv2d_dynamic, midge_fully_connected_dynamic: the same
 * words; X is what midge_dynamic_quantize writes. Data: float32 bias [O], scales [O], int8 weights
 * as midge_conv2d_s8 and midge_fully_connected_s8 have them. */

/* midge_matmul_f32: Y [batch, rows, columns] = A [rows, depth] times B [depth, columns]. */
enum {
    MIDGE_MATMUL_B = 3, /* arena offset */
    MIDGE_MATMUL_BATCH = 4,
    MIDGE_MATMUL_ROWS = 5,
    MIDGE_MATMUL_DEPTH = 6,
    MIDGE_MATMUL_COLUMNS = 7,
    MIDGE_MATMUL_A_PITCH = 8, /* elements from one matrix to the next, 0 to use one for all */
    MIDGE_MATMUL_B_PITCH = 9,
};

/* midge_binary_f32, midge_pow_f32 and midge_mod_f32: y = a op b. Y is written in order. */
enum {
    MIDGE_BINARY_B = 3,     /* arena offset, or data offset of a constant */
    MIDGE_BINARY_KIND = 4,  /* pair: a midge_binary_kind, MIDGE_BINARY_CONSTANT or _SWAPPED */
    MIDGE_BINARY_STEP = 5,  /* pair: elements between neighbours along the last axis in a, in b */
    MIDGE_BINARY_SHAPE = 6, /* 4 words: shape of Y */
    MIDGE_BINARY_A_PITCH = 10, /* 3 words: elements between neighbours along the other axes */
    MIDGE_BINARY_B_PITCH = 13, /* 3 words */
};

enum {
    MIDGE_BINARY_CONSTANT = 1, /* b is a constant */
    MIDGE_BINARY_SWAPPED = 2,  /* a constant b is the first operand */
};

typedef enum midge_binary_kind {
    MIDGE_BINARY_ADD = 0,
    MIDGE_BINARY_SUB,
    MIDGE_BINARY_MUL,
    MIDGE_BINARY_DIV,
    MIDGE_BINARY_MAX,
    MIDGE_BINARY_MIN,
    MIDGE_BINARY_PRELU, /* a, or a * b where a < 0 */
    MIDGE_BINARY_POW,   /* midge_pow_f32 only */
    MIDGE_BINARY_FMOD,  /* from here midge_mod_f32 */
    MIDGE_BINARY_MOD
} midge_binary_kind;

/* midge_clip_f32: MIDGE_MAP_COUNT and the limits.
 * midge_simple_f32 (no library), midge_exp_f32 and midge_math_f32: y = f(x). */
enum {
    MIDGE_UNARY_KIND = 5,  /* a midge_unary_kind */
    MIDGE_UNARY_ALPHA = 6, /* float32 bits */
    MIDGE_UNARY_BETA = 7,  /* float32 bits */
};

typedef enum midge_unary_kind {
    MIDGE_UNARY_ABS = 0,
    MIDGE_UNARY_HARD_SIGMOID,
    MIDGE_UNARY_HARD_SWISH,
    MIDGE_UNARY_LEAKY_RELU,
    MIDGE_UNARY_NEG,
    MIDGE_UNARY_RECIPROCAL,
    MIDGE_UNARY_SOFTSIGN,
    MIDGE_UNARY_SQUARE,
    MIDGE_UNARY_THRESHOLDED_RELU,
    MIDGE_UNARY_SHRINK, /* x + beta below -alpha, x - beta above alpha, else 0 */
    MIDGE_UNARY_CELU,   /* from here midge_exp_f32 */
    MIDGE_UNARY_ELU,
    MIDGE_UNARY_EXP,
    MIDGE_UNARY_GELU_TANH,
    MIDGE_UNARY_MISH,
    MIDGE_UNARY_SELU,
    MIDGE_UNARY_SIGMOID,
    MIDGE_UNARY_SOFTPLUS,
    MIDGE_UNARY_SWISH,
    MIDGE_UNARY_TANH,
    MIDGE_UNARY_CEIL, /* from here midge_math_f32 */
    MIDGE_UNARY_ERF,
    MIDGE_UNARY_FLOOR,
    MIDGE_UNARY_GELU,
    MIDGE_UNARY_LOG,
    MIDGE_UNARY_ROUND,
    MIDGE_UNARY_SQRT
} midge_unary_kind;

/* midge_max_pool_f32 and midge_average_pool_f32: words MIDGE_POOL_X_SIZE to _DILATION;
 * with MIDGE_POOL_COUNTS 1 an average divides by the number of elements inside X. N * H rows. */

/* midge_softmax_f32 over the last axis of X [rows, depth]: MIDGE_SOFTMAX_ROWS, _DEPTH and this. */
enum {
    MIDGE_SOFTMAX_LOG = 6, /* 1 for the logarithm */
};

/* midge_reduce_f32 over the middle axis of X [outer, count, inner]. */
enum {
    MIDGE_REDUCE_OUTER = 4,
    MIDGE_REDUCE_COUNT = 5,
    MIDGE_REDUCE_INNER = 6,
    MIDGE_REDUCE_KIND = 7, /* a midge_reduce_kind */
};

typedef enum midge_reduce_kind {
    MIDGE_REDUCE_SUM = 0,
    MIDGE_REDUCE_MEAN,
    MIDGE_REDUCE_MAX,
    MIDGE_REDUCE_MIN,
    MIDGE_REDUCE_PROD
} midge_reduce_kind;

/* midge_pad_f32: the words of midge_pad; MIDGE_PAD_VALUE holds float32 bits.
 * midge_dynamic_quantize: MIDGE_MAP_COUNT floats become a header and int8 codes. */
enum {
    MIDGE_DYNAMIC_SCALE = 0,      /* byte offset in the header: float32 */
    MIDGE_DYNAMIC_ZERO_POINT = 4, /* byte offset in the header: int32, of int8 codes */
    MIDGE_DYNAMIC_CODES = 16,     /* byte offset of the codes */
};

#ifdef __cplusplus
extern "C" {
#endif

void midge_average_pool_f32(const midge_strip *strip, const midge_op *op);
void midge_binary_f32(const midge_strip *strip, const midge_op *op);
void midge_clip_f32(const midge_strip *strip, const midge_op *op);
void midge_conv2d_dynamic(const midge_strip *strip, const midge_op *op);
void midge_conv2d_f32(const midge_strip *strip, const midge_op *op);
void midge_conv2d_f32_s8(const midge_strip *strip, const midge_op *op);
void midge_depthwise_conv2d_f32(const midge_strip *strip, const midge_op *op);
void midge_dynamic_quantize(const midge_strip *strip, const midge_op *op);
void midge_exp_f32(const midge_strip *strip, const midge_op *op);
void midge_fully_connected_dynamic(const midge_strip *strip, const midge_op *op);
void midge_fully_connected_f32(const midge_strip *strip, const midge_op *op);
void midge_fully_connected_f32_s8(const midge_strip *strip, const midge_op *op);
void midge_math_f32(const midge_strip *strip, const midge_op *op);
void midge_matmul_f32(const midge_strip *strip, const midge_op *op);
void midge_max_pool_f32(const midge_strip *strip, const midge_op *op);
void midge_pad_f32(const midge_strip *strip, const midge_op *op);
void midge_mod_f32(const midge_strip *strip, const midge_op *op);
void midge_pow_f32(const midge_strip *strip, const midge_op *op);
void midge_reduce_f32(const midge_strip *strip, const midge_op *op);
void midge_simple_f32(const midge_strip *strip, const midge_op *op);
void midge_softmax_f32(const midge_strip *strip, const midge_op *op);

#ifdef __cplusplus
}
#endif

#endif
