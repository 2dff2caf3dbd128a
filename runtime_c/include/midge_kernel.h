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
static inline int8_t *midge_codes_at(const midge_memory *memory, const midge_op *op, int index) {
    return (int8_t *)(memory->arena + op->word[index]);
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
