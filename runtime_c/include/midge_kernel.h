/* midge_kernel.h - what the kernels share: reading records and multiplying rows. Private. */
#ifndef MIDGE_KERNEL_H
#define MIDGE_KERNEL_H

#include <string.h>

#include "midge_model.h"
#include "midge_requantize.h"

/* Refuses to compile where the condition is false. */
#define MIDGE_ASSERT(name, condition) typedef char midge_assert_##name[(condition) ? 1 : -1]

MIDGE_ASSERT(shift_of_negatives_is_arithmetic, (-1 >> 1) == -1);
MIDGE_ASSERT(conversion_to_signed_wraps, (int8_t)(uint8_t)0x80 == -128);

/* Halves of a MIDGE_PAIR word. */
static inline int32_t midge_low(uint32_t word) {
    return (int32_t)(word & 0xFFFFu);
}

static inline int32_t midge_high(uint32_t word) {
    return (int32_t)(word >> 16);
}

/* The two's complement number in a word. */
static inline int32_t midge_signed(uint32_t word) {
    return (int32_t)word;
}

/* The nearest int8. */
static inline int8_t midge_saturate_s8(int32_t v) {
    return (int8_t)(v < -128 ? -128 : v > 127 ? 127 : v);
}

/* int8 codes of an activation: the arena at the offset that stands in word `index`. */
static inline int8_t *midge_codes_at(const midge_strip *strip, const midge_op *op, int index) {
    return (int8_t *)(strip->arena + op->word[index]);
}

/* A tensor of rows: whole, or the ring of the last `ring` rows. */
typedef struct midge_rows {
    int8_t *codes;
    size_t pitch; /* from row to row */
    uint32_t ring;
} midge_rows;

/* The tensor whose offset stands in word `index`. */
static inline midge_rows midge_rows_at(const midge_strip *strip, const midge_op *op, int index,
                                       size_t pitch, int32_t ring) {
    midge_rows rows;
    rows.codes = midge_codes_at(strip, op, index);
    rows.pitch = pitch;
    rows.ring = (uint32_t)ring;
    return rows;
}

/* The first code of a row. */
static inline int8_t *midge_row(const midge_rows *rows, uint32_t row) {
    return rows->codes + (rows->ring ? row % rows->ring : row) * rows->pitch;
}

/* The rows of an addition. */
typedef struct midge_add_rows {
    midge_rows a, b, y;
} midge_add_rows;

static inline midge_add_rows midge_add_rows_at(const midge_strip *strip, const midge_op *op) {
    const size_t count = op->word[MIDGE_ADD_COUNT];
    const uint32_t rings = op->word[MIDGE_OP_RINGS], b_ring = op->word[MIDGE_ADD_B_RING];
    midge_add_rows rows;
    rows.a = midge_rows_at(strip, op, MIDGE_OP_X, count, midge_low(rings));
    rows.b = midge_rows_at(strip, op, MIDGE_ADD_B, count, (int32_t)b_ring);
    rows.y = midge_rows_at(strip, op, MIDGE_OP_Y, count, midge_high(rings));
    return rows;
}

/* Bytes that only this step uses. */
static inline uint8_t *midge_scratch(const midge_strip *strip, const midge_op *op) {
    return strip->scratch ? strip->scratch : strip->arena + op->word[MIDGE_OP_SCRATCH];
}

/* The part of a window that lies inside the input, along one axis. */
typedef struct midge_span {
    int32_t first, last; /* taps first..last - 1 are inside */
    int32_t start;       /* input position of tap 0, may be negative */
} midge_span;

/* Clips a window of `taps` taps, `dilation` apart, that begins at `start`, to 0..size - 1. */
static inline midge_span midge_clip(int32_t start, int32_t taps, int32_t dilation, int32_t size) {
    midge_span span = {0, taps, start};
    if (start < 0)
        span.first = (-start + dilation - 1) / dilation;
    if (start + (taps - 1) * dilation >= size)
        span.last = start >= size ? 0 : (size - 1 - start) / dilation + 1;
    if (span.first > span.last)
        span.first = span.last;
    return span;
}

/* What the convolutions read from their record. */
typedef struct midge_conv {
    midge_rows x, y;
    int32_t x_height, x_width, y_width;
    uint32_t y_height;
    int32_t kernel_height, kernel_width, stride_y, stride_x, dilation_y, dilation_x, top, left;
    int32_t x_zero_point;
    size_t channels, out, groups;
    const uint32_t *bias, *m;
    const int8_t *weight;
    midge_requant limits;
} midge_conv;

static inline midge_conv midge_conv_at(const midge_strip *strip, const midge_op *op) {
    const uint32_t *w = op->word;
    midge_conv p;
    p.x_height = midge_low(w[MIDGE_CONV_X_SIZE]);
    p.x_width = midge_high(w[MIDGE_CONV_X_SIZE]);
    p.y_height = (uint32_t)midge_low(w[MIDGE_CONV_Y_SIZE]);
    p.y_width = midge_high(w[MIDGE_CONV_Y_SIZE]);
    p.kernel_height = midge_low(w[MIDGE_CONV_KERNEL]);
    p.kernel_width = midge_high(w[MIDGE_CONV_KERNEL]);
    p.stride_y = midge_low(w[MIDGE_CONV_STRIDE]);
    p.stride_x = midge_high(w[MIDGE_CONV_STRIDE]);
    p.dilation_y = midge_low(w[MIDGE_CONV_DILATION]);
    p.dilation_x = midge_high(w[MIDGE_CONV_DILATION]);
    p.top = midge_low(w[MIDGE_CONV_PADS]);
    p.left = midge_high(w[MIDGE_CONV_PADS]);
    p.x_zero_point = midge_code(w[MIDGE_CONV_CODES], 0);
    p.channels = (size_t)midge_low(w[MIDGE_CONV_CHANNELS]);
    p.out = (size_t)midge_high(w[MIDGE_CONV_CHANNELS]);
    p.groups = (size_t)midge_high(w[MIDGE_CONV_GROUPS]);
    p.bias = strip->data + w[MIDGE_OP_DATA];
    p.m = p.bias + p.out;
    p.weight = (const int8_t *)(p.m + p.out);
    p.limits = midge_requant_limits(w[MIDGE_CONV_CODES]);
    p.x = midge_rows_at(strip, op, MIDGE_OP_X, (size_t)p.x_width * p.channels,
                        midge_low(w[MIDGE_OP_RINGS]));
    p.y = midge_rows_at(strip, op, MIDGE_OP_Y, (size_t)p.y_width * p.out,
                        midge_high(w[MIDGE_OP_RINGS]));
    return p;
}

/* The rows of the window above output row oy, and the columns of the one above column ox. */
static inline midge_span midge_conv_rows(const midge_conv *p, uint32_t oy) {
    const int32_t start = (int32_t)oy * p->stride_y - p->top;
    return midge_clip(start, p->kernel_height, p->dilation_y, p->x_height);
}

static inline midge_span midge_conv_columns(const midge_conv *p, int32_t ox) {
    return midge_clip(ox * p->stride_x - p->left, p->kernel_width, p->dilation_x, p->x_width);
}

/* What the pools read from their record. */
typedef struct midge_pool {
    midge_rows x, y;
    int32_t x_height, x_width, y_width;
    uint32_t y_height;
    int32_t dilation_y, dilation_x;
    size_t channels;
} midge_pool;

static inline midge_pool midge_pool_at(const midge_strip *strip, const midge_op *op) {
    const uint32_t rings = op->word[MIDGE_OP_RINGS];
    midge_pool p;
    p.x_height = midge_low(op->word[MIDGE_POOL_X_SIZE]);
    p.x_width = midge_high(op->word[MIDGE_POOL_X_SIZE]);
    p.y_height = (uint32_t)midge_low(op->word[MIDGE_POOL_Y_SIZE]);
    p.y_width = midge_high(op->word[MIDGE_POOL_Y_SIZE]);
    p.dilation_y = midge_low(op->word[MIDGE_POOL_DILATION]);
    p.dilation_x = midge_high(op->word[MIDGE_POOL_DILATION]);
    p.channels = (size_t)midge_high(op->word[MIDGE_POOL_CHANNELS]);
    p.x = midge_rows_at(strip, op, MIDGE_OP_X, (size_t)p.x_width * p.channels, midge_low(rings));
    p.y = midge_rows_at(strip, op, MIDGE_OP_Y, (size_t)p.y_width * p.channels, midge_high(rings));
    return p;
}

/* The rows of the window above output row oy, and the columns of the one above column ox. */
static inline midge_span midge_pool_rows(const midge_pool *p, const midge_op *op, uint32_t oy) {
    const int32_t stride = midge_low(op->word[MIDGE_POOL_STRIDE]);
    const int32_t start = (int32_t)oy * stride - midge_low(op->word[MIDGE_POOL_PADS]);
    return midge_clip(start, midge_low(op->word[MIDGE_POOL_KERNEL]), p->dilation_y, p->x_height);
}

static inline midge_span midge_pool_columns(const midge_pool *p, const midge_op *op, int32_t ox) {
    const int32_t stride = midge_high(op->word[MIDGE_POOL_STRIDE]);
    const int32_t start = ox * stride - midge_high(op->word[MIDGE_POOL_PADS]);
    return midge_clip(start, midge_high(op->word[MIDGE_POOL_KERNEL]), p->dilation_x, p->x_width);
}

/* Weights of one to four output channels, and what they have accumulated. */
typedef struct midge_dot4 {
    const int8_t *w[4];
    int32_t acc[4];
} midge_dot4;

/* acc[i] += sum((x - x_zero_point) * w[i]) over `count` neighbours; offset is added to each w. */
static inline void midge_dot4_s8(midge_dot4 *dot, const int8_t *x, size_t offset, size_t count,
                                 int32_t x_zero_point) {
    const int8_t *w0 = dot->w[0] + offset, *w1 = dot->w[1] + offset;
    const int8_t *w2 = dot->w[2] + offset, *w3 = dot->w[3] + offset;
    int32_t a0 = dot->acc[0], a1 = dot->acc[1], a2 = dot->acc[2], a3 = dot->acc[3];
    for (size_t i = 0; i < count; ++i) {
        const int32_t v = x[i] - x_zero_point;
        a0 += v * w0[i];
        a1 += v * w1[i];
        a2 += v * w2[i];
        a3 += v * w3[i];
    }
    dot->acc[0] = a0;
    dot->acc[1] = a1;
    dot->acc[2] = a2;
    dot->acc[3] = a3;
}

/* Starts the channels c..c + 3 of a layer whose weights lie `pitch` apart. Channels past the last
 * repeat it, so that the product loop needs no tail; the caller stores only `channels - c`. */
static inline midge_dot4 midge_dot4_start(const int8_t *weight, size_t pitch, size_t c,
                                          size_t channels) {
    midge_dot4 dot;
    for (size_t i = 0; i < 4; ++i) {
        const size_t row = c + i < channels ? c + i : channels - 1;
        dot.w[i] = weight + row * pitch;
        dot.acc[i] = 0;
    }
    return dot;
}

/* Stores the codes of `count` channels: y[i] = requantize(acc[i] + bias[i]). The sum wraps, so that
 * only the total, which the converter has proved to fit, needs to fit. */
static inline void midge_store_s8(int8_t *y, const int32_t *acc, size_t count, const uint32_t *bias,
                                  const uint32_t *m, const midge_requant *limits) {
    for (size_t i = 0; i < count; ++i)
        y[i] = midge_requantize((int32_t)((uint32_t)acc[i] + bias[i]), m[i], limits);
}

#endif
