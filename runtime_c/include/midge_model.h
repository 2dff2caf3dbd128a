/* midge_model.h - how a compiled network lies in memory: the records, and the kernels they name.
 *
 * Read by the runtime and by the generated NAME.c; applications need only midge.h.
 *
 * A network is an array of records of MIDGE_OP_WORDS little-endian 32-bit words, one per step. A
 * record holds no pointer: word MIDGE_OP_KERNEL is an index into the model's own table of kernels
 * (so that only those are linked), activations are byte offsets into the arena, and constants are
 * word offsets into the model's data. Records may therefore lie at any address.
 */
#ifndef MIDGE_MODEL_H
#define MIDGE_MODEL_H

#include "midge.h"

#if defined(__BYTE_ORDER__) && defined(__ORDER_LITTLE_ENDIAN__)
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "midge: the constants of a model are little-endian; big-endian targets are not supported."
#endif
#endif

#define MIDGE_OP_WORDS 16

/* Two 16-bit numbers in a word, the first in the lower half. */
#define MIDGE_PAIR(low, high) ((uint32_t)(low) | (uint32_t)(high) << 16)

/* Four codes -128..127 in a word: zero point of x, zero point of y, and y's saturation limits. */
#define MIDGE_CODES(x_zero_point, y_zero_point, low, high)                                         \
    (((uint32_t)(x_zero_point)&255u) | ((uint32_t)(y_zero_point)&255u) << 8 |                      \
     ((uint32_t)(low)&255u) << 16 | ((uint32_t)(high)&255u) << 24)

/* Words of every record. A kernel makes rows of its output: one strip of them per call, in order
 * or, where the step may be split, several strips at once. Most of the kernels that move bytes know
 * one row only, the whole output. */
enum {
    MIDGE_OP_KERNEL = 0, /* pair: index into a table of kernels and MIDGE_SPLIT, rows of Y */
    MIDGE_OP_X = 1,      /* arena offset of the first input */
    MIDGE_OP_Y = 2,      /* arena offset of the output */
    MIDGE_OP_DATA = 3,   /* data offset of the constants */
};

/* Added to the index of a kernel whose strips may be made at the same time. */
#define MIDGE_SPLIT 0x8000u

/* Words of the kernels that read and write rows: convolutions, pools, Add and maps of codes. A ring
 * of r rows holds row i of a tensor at place i % r; 0 stands for a tensor that lies there whole. */
enum {
    MIDGE_OP_RINGS = 14,   /* pair: rows of the rings of X and Y */
    MIDGE_OP_SCRATCH = 15, /* arena offset of bytes that only this step uses */
};

/* midge_stream: carries out COUNT records as one step, strip by strip: again and again the last one
 * whose inputs are there makes its next strip, so that rings between them hold few rows. Data: for
 * each record MIDGE_LINK_WORDS words. A strip that ends before row e of Y needs the rows below
 * min((e - 1) * stride + reach, all) of what the records named as its inputs make. */
enum {
    MIDGE_STREAM_FIRST = 4, /* records from this one to the first of them */
    MIDGE_STREAM_COUNT = 5, /* at most MIDGE_STREAM_MAX */
};
enum {
    MIDGE_LINK_STRIP = 0,  /* pair: rows of a strip, stride */
    MIDGE_LINK_INPUTS = 1, /* pair: 1 + index of the record that makes an input, 0 for none */
    MIDGE_LINK_REACH = 2,  /* two's complement */
    MIDGE_LINK_WORDS = 3
};
#define MIDGE_STREAM_MAX 32

/* midge_conv2d_s8 and midge_depthwise_conv2d_s8. X [N, H, W, C], Y [N, H, W, O], N * H rows.
 * Data: int32 bias [O], float32 multipliers [O], int8 weights [O, kh, kw, C / groups] (depthwise:
 * [kh, kw, O]). midge_conv2d_asymmetric_s8: the same, depthwise where groups == C, and subtracts
 * w_zero_point from each weight. */
enum {
    MIDGE_CONV_X_SIZE = 4,   /* pair: height, width */
    MIDGE_CONV_Y_SIZE = 5,   /* pair: height, width */
    MIDGE_CONV_CHANNELS = 6, /* pair: C, O */
    MIDGE_CONV_KERNEL = 7,   /* pair: height, width */
    MIDGE_CONV_STRIDE = 8,   /* pair: y, x */
    MIDGE_CONV_DILATION = 9, /* pair: y, x */
    MIDGE_CONV_PADS = 10,    /* pair: top, left */
    MIDGE_CONV_GROUPS = 11,  /* pair: N, groups */
    MIDGE_CONV_CODES = 12,
    MIDGE_CONV_W_ZERO_POINT = 13, /* two's complement */
};

/* midge_fully_connected_s8, also for 1 x 1 convolutions. X [rows, pixels, depth], Y [rows, pixels,
 * channels].
 * Data: int32 bias [channels], float32 multipliers [channels], int8 weights [channels, depth]. */
enum {
    MIDGE_FC_PIXELS = 4, /* of a row */
    MIDGE_FC_DEPTH = 5,
    MIDGE_FC_CHANNELS = 6,
    MIDGE_FC_CODES = 12,
};

/* midge_conv2d_c4n16_s8: as midge_conv2d_s8 with one group, and with the weights in panels of 16
 * output channels (the last may have fewer). With K = kh * kw * C rounded up to a multiple of 4, a
 * panel of n channels is int8 [K / 4, n, 4]: 4 neighbours in K of channel 0, of channel 1, ...
 * Data, with v = w - w_zero_point: int32 bias [O] less (x_zero_point + 128) * sum(v), float32
 * multipliers [O], int8 panels of w; so y = requantize(sum((x + 128) * v) + bias), where padding
 * holds x_zero_point.
 * Scratch: the windows of BLOCK pixels, 2 * BLOCK * K bytes.
 * midge_fully_connected_c4n16_s8: the same panels with K = depth; bias less x_zero_point * sum(v),
 * so y = requantize(sum(x * v) + bias). Rows are panels of 16 channels, X is one vector.
 * Codes and channels as above. */
enum {
    MIDGE_CONV_BLOCK = 13,      /* pair: pixels multiplied at once, w_zero_point (int16) */
    MIDGE_FC_W_ZERO_POINT = 13, /* two's complement */
};

/* midge_max_pool_s8 and midge_average_pool_s8. X [N, H, W, C], Y [N, H, W, C], N * H rows.
 * Data (average): float32 multipliers, one for the whole window, or with MIDGE_POOL_COUNTS 1 one
 * for each number of elements 1..kh * kw that a clipped window may hold. */
enum {
    MIDGE_POOL_X_SIZE = 4,   /* pair: height, width */
    MIDGE_POOL_Y_SIZE = 5,   /* pair: height, width */
    MIDGE_POOL_CHANNELS = 6, /* pair: N, C */
    MIDGE_POOL_KERNEL = 7,   /* pair: height, width */
    MIDGE_POOL_STRIDE = 8,   /* pair: y, x */
    MIDGE_POOL_PADS = 9,     /* pair: top, left */
    MIDGE_POOL_COUNTS = 10,
    MIDGE_POOL_DILATION = 11, /* pair: y, x */
    MIDGE_POOL_CODES = 12,
};

/* midge_add_s8 and midge_add_wide_s8: y = half_even((a * MA + b * MB + K) / 2^SHIFT), saturated.
 * midge_add_exact_s8: y = half_even(fma(a, RA, fma(b, RB, C))) on codes a + OFFSET, b + OFFSET. */
enum {
    MIDGE_ADD_B = 3,     /* arena offset of the second input */
    MIDGE_ADD_COUNT = 4, /* elements of a row */
    MIDGE_ADD_SHIFT = 5,
    MIDGE_ADD_MA = 6,
    MIDGE_ADD_MB = 7,
    MIDGE_ADD_K = 8,       /* two words, the lower first */
    MIDGE_ADD_RA = 10,     /* float32 bits */
    MIDGE_ADD_RB = 11,     /* float32 bits */
    MIDGE_ADD_C = 12,      /* float32 bits */
    MIDGE_ADD_OFFSET = 13, /* 128 where the ONNX file holds uint8 codes, else 0 */
    MIDGE_ADD_B_RING = 15, /* rows of the ring of the second input */
};

/* midge_mul_s8: y = a * b, Y written in order. Data: the words below, then a constant b's codes. */
enum {
    MIDGE_MUL_B = 4,        /* arena offset of the second input */
    MIDGE_MUL_STEP = 5,     /* pair: elements between neighbours along the last axis in a, in b */
    MIDGE_MUL_SHAPE = 6,    /* 4 words: shape of Y */
    MIDGE_MUL_A_PITCH = 10, /* 3 words: elements between neighbours along the other axes */
    MIDGE_MUL_B_PITCH = 13, /* 3 words */
};
enum {
    MIDGE_MUL_MULTIPLIER = 0, /* float32 bits */
    MIDGE_MUL_CODES = 1,
    MIDGE_MUL_B_ZERO_POINT = 2, /* two's complement */
    MIDGE_MUL_CONSTANT = 3,     /* 1 where b is a constant */
    MIDGE_MUL_DATA_WORDS = 4
};

/* midge_matmul_s8: Y [batch, rows, columns] = A [batch, rows, depth] times B [batch, depth,
 * columns], a strip is some of the batch. Data: the words below; pitches are bytes between
 * neighbours along batch, rows and columns of each (of Y: batch and rows), 0 to repeat. */
enum {
    MIDGE_MATMUL_S8_B = 4, /* arena offset of the second input */
    MIDGE_MATMUL_S8_ROWS = 5,
    MIDGE_MATMUL_S8_DEPTH = 6,
    MIDGE_MATMUL_S8_COLUMNS = 7,
};
enum {
    MIDGE_MATMUL_S8_MULTIPLIER = 0, /* float32 bits */
    MIDGE_MATMUL_S8_CODES = 1,
    MIDGE_MATMUL_S8_B_ZERO_POINT = 2, /* two's complement */
    MIDGE_MATMUL_S8_A_PITCH = 3,      /* 3 words */
    MIDGE_MATMUL_S8_B_PITCH = 6,      /* 3 words */
    MIDGE_MATMUL_S8_Y_PITCH = 9,      /* 2 words */
};

/* midge_softmax_s8 over the last axis of X [rows, depth]. Data: uint32 table [ENTRIES]; the
 * other entries, up to 256, are 0. */
enum {
    MIDGE_SOFTMAX_ROWS = 4,
    MIDGE_SOFTMAX_DEPTH = 5,
    MIDGE_SOFTMAX_ENTRIES = 7,
};

/* midge_table_s8: y = table[x + 128]. Data: int8 table [256].
 * midge_flip_sign: y = x ^ 0x80.
 * midge_quantize_f32_s8, midge_dequantize_s8_f32. */
enum {
    MIDGE_MAP_COUNT = 4,      /* elements of a row */
    MIDGE_MAP_SCALE = 5,      /* float32 bits */
    MIDGE_MAP_ZERO_POINT = 6, /* two's complement */
};

/* midge_constant. Data: the bytes. */
enum {
    MIDGE_CONSTANT_BYTES = 4,
};

/* midge_pad: fills Y, then copies X [S0, S1, S2, S3, S4] bytes into it. */
enum {
    MIDGE_PAD_VALUE = 3, /* byte */
    MIDGE_PAD_BYTES = 4, /* size of Y */
    MIDGE_PAD_START = 5, /* byte offset in Y of the first byte of X */
    MIDGE_PAD_SHAPE = 6, /* 5 words; the last one is a run of bytes */
    MIDGE_PAD_PITCH = 11 /* 4 words: bytes between neighbours in Y along each axis but the last */
};

/* midge_concat: copies one input, ROWS runs of BYTES, to where it belongs in Y. */
enum {
    MIDGE_CONCAT_ROWS = 4,
    MIDGE_CONCAT_BYTES = 5,
    MIDGE_CONCAT_PITCH = 6, /* bytes from run to run in Y */
};

/* midge_copy (Transpose, Slice): Y is written in order; the next element of X along axis i lies
 * PITCH[i] bytes (two's complement) away. */
enum {
    MIDGE_COPY_ITEM = 3,  /* bytes of an element */
    MIDGE_COPY_SHAPE = 4, /* 6 words: shape of Y */
    MIDGE_COPY_PITCH = 10 /* 6 words */
};

/* midge_interleave: Y [H, W, C] from X [C, H, W] of bytes, H rows. */
enum {
    MIDGE_INTERLEAVE_WIDTH = 4,
    MIDGE_INTERLEAVE_CHANNELS = 5,
    MIDGE_INTERLEAVE_PLANE = 6, /* bytes from channel to channel in X */
};

/* One step of a network. */
typedef struct midge_op {
    uint32_t word[MIDGE_OP_WORDS];
} midge_op;

/* Makes rows of the output of one record. */
typedef struct midge_strip midge_strip;
typedef void (*midge_kernel)(const midge_strip *strip, const midge_op *op);

/* What a kernel works on. */
struct midge_strip {
    uint8_t *arena;
    const uint32_t *data;
    const midge_kernel *kernels;
    uint32_t first, last; /* rows first..last - 1 */
    uint8_t *scratch;     /* in place of the record's, for strips made at the same time, or NULL */
};

/* A compiled network, all const. */
struct midge_model {
    uint32_t abi; /* MIDGE_ABI of the runtime that it was written for */
    uint32_t arena_bytes;
    uint32_t scratch_bytes; /* the largest scratch of a step */
    uint32_t op_count;      /* steps; the records of a midge_stream follow them */
    uint16_t input_count;
    uint16_t output_count;
    uint32_t kernel_count; /* of a table */
    const midge_op *ops;
    const midge_kernel *kernels;      /* one table, or one per bit of what `levels` returns */
    uint32_t (*levels)(void);         /* instruction sets of this processor, or NULL */
    const uint32_t *data;             /* weights, biases, multipliers, tables */
    const midge_tensor_info *tensors; /* inputs, then outputs */
};

#ifdef __cplusplus
extern "C" {
#endif

void midge_add_s8(const midge_strip *strip, const midge_op *op);
void midge_add_wide_s8(const midge_strip *strip, const midge_op *op);
void midge_add_exact_s8(const midge_strip *strip, const midge_op *op);
void midge_average_pool_s8(const midge_strip *strip, const midge_op *op);
void midge_concat(const midge_strip *strip, const midge_op *op);
void midge_constant(const midge_strip *strip, const midge_op *op);
void midge_conv2d_asymmetric_s8(const midge_strip *strip, const midge_op *op);
void midge_conv2d_s8(const midge_strip *strip, const midge_op *op);
void midge_copy(const midge_strip *strip, const midge_op *op);
void midge_conv2d_c4n16_s8(const midge_strip *strip, const midge_op *op);
void midge_depthwise_conv2d_s8(const midge_strip *strip, const midge_op *op);
void midge_dequantize_s8_f32(const midge_strip *strip, const midge_op *op);
void midge_flip_sign(const midge_strip *strip, const midge_op *op);
void midge_fully_connected_c4n16_s8(const midge_strip *strip, const midge_op *op);
void midge_fully_connected_s8(const midge_strip *strip, const midge_op *op);
void midge_interleave(const midge_strip *strip, const midge_op *op);
void midge_matmul_s8(const midge_strip *strip, const midge_op *op);
void midge_max_pool_s8(const midge_strip *strip, const midge_op *op);
void midge_mul_s8(const midge_strip *strip, const midge_op *op);
void midge_pad(const midge_strip *strip, const midge_op *op);
void midge_quantize_f32_s8(const midge_strip *strip, const midge_op *op);
void midge_softmax_s8(const midge_strip *strip, const midge_op *op);
void midge_stream(const midge_strip *strip, const midge_op *op);
void midge_table_s8(const midge_strip *strip, const midge_op *op);

#ifdef __cplusplus
}
#endif

#endif
