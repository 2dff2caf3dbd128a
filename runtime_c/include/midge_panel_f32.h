/* midge_panel_f32.h - float layers over panels of weights, which are float32 or int8. Private.
 *
 * A panel holds the weights of up to MIDGE_LANES output channels, which accumulate side by side:
 * each sum is made in ascending order, and a compiler can keep all of them in vector registers.
 */
#ifndef MIDGE_PANEL_F32_H
#define MIDGE_PANEL_F32_H

#include "midge_kernel_f32.h"

#define MIDGE_LANES 16

/* Loops over lanes are unrolled, so that the sums stay in registers; the loop around them is left
 * as it is, because vectorizing it would shuffle the lanes. */
#if defined(__GNUC__) && !defined(__clang__)
#define MIDGE_UNROLL _Pragma("GCC unroll 32")
#define MIDGE_NO_VECTOR __asm__ volatile("")
#else
#define MIDGE_UNROLL
#define MIDGE_NO_VECTOR (void)0
#endif

#if defined(__GNUC__)
#define MIDGE_OUTLINE static __attribute__((__noinline__, __unused__))
#else
#define MIDGE_OUTLINE static
#endif

/* A layer. Either `real` or `code` holds its panels; codes stand for code * scale[channel]. */
typedef struct midge_layer_f32 {
    const midge_real *x, *bias, *scale, *real;
    const int8_t *code;
    midge_real *y;
    size_t depth; /* weights of one output channel */
    midge_limits limits;
} midge_layer_f32;

/* Reads data, limits and operands of a record. `codes` is a constant where this is inlined. */
MIDGE_INLINE midge_layer_f32 midge_read_layer(const midge_strip *strip, const midge_op *op,
                                              size_t depth, size_t channels, int codes) {
    midge_layer_f32 p;
    p.x = midge_reals_at(strip, op, MIDGE_OP_X);
    p.y = midge_reals_at(strip, op, MIDGE_OP_Y);
    p.bias = midge_constants(strip, op->word[MIDGE_OP_DATA]);
    p.scale = codes ? p.bias + channels : NULL;
    p.real = codes ? NULL : p.bias + channels;
    p.code = codes ? (const int8_t *)(p.scale + channels) : NULL;
    p.depth = depth;
    p.limits = midge_read_limits(op);
    return p;
}

/* The width of the next panel where `left` output channels are left. */
static inline size_t midge_panel_width(size_t left) {
    return left >= 16 ? 16 : left >= 8 ? 8 : left >= 4 ? 4 : 1;
}

/* acc[l] += sum(x[i] * w[i * lanes + l]), i ascending from 0 to count - 1. */
MIDGE_INLINE void midge_sum_lanes(float *acc, size_t lanes, const midge_real *x,
                                  const midge_real *w, size_t count) {
    float sum[MIDGE_LANES] = {0};
    MIDGE_UNROLL
    for (size_t l = 0; l < lanes; ++l)
        sum[l] = acc[l];
    for (size_t i = 0; i < count; ++i, w += lanes) {
        const float v = x[i];
        MIDGE_NO_VECTOR;
        MIDGE_UNROLL
        for (size_t l = 0; l < lanes; ++l)
            sum[l] += v * w[l];
    }
    MIDGE_UNROLL
    for (size_t l = 0; l < lanes; ++l)
        acc[l] = sum[l];
}

/* The same over weight codes. */
MIDGE_INLINE void midge_sum_code_lanes(float *acc, size_t lanes, const midge_real *x,
                                       const int8_t *w, size_t count) {
    float sum[MIDGE_LANES] = {0};
    MIDGE_UNROLL
    for (size_t l = 0; l < lanes; ++l)
        sum[l] = acc[l];
    for (size_t i = 0; i < count; ++i, w += lanes) {
        const float v = x[i];
        MIDGE_NO_VECTOR;
        MIDGE_UNROLL
        for (size_t l = 0; l < lanes; ++l)
            sum[l] += v * (float)w[l];
    }
    MIDGE_UNROLL
    for (size_t l = 0; l < lanes; ++l)
        acc[l] = sum[l];
}

/* The same for a number of lanes that is known at run time only. Not inlined: the sums then leave
 * through memory, which is what lets a compiler see that they can share vector registers. */
MIDGE_OUTLINE void midge_sum_panel(float *acc, size_t lanes, const midge_real *x,
                                   const midge_real *w, size_t count) {
    if (lanes == 16)
        midge_sum_lanes(acc, 16, x, w, count);
    else if (lanes == 8)
        midge_sum_lanes(acc, 8, x, w, count);
    else if (lanes == 4)
        midge_sum_lanes(acc, 4, x, w, count);
    else
        midge_sum_lanes(acc, 1, x, w, count);
}

MIDGE_OUTLINE void midge_sum_code_panel(float *acc, size_t lanes, const midge_real *x,
                                        const int8_t *w, size_t count) {
    if (lanes == 16)
        midge_sum_code_lanes(acc, 16, x, w, count);
    else if (lanes == 8)
        midge_sum_code_lanes(acc, 8, x, w, count);
    else if (lanes == 4)
        midge_sum_code_lanes(acc, 4, x, w, count);
    else
        midge_sum_code_lanes(acc, 1, x, w, count);
}

/* Adds `count` neighbours of x times their weights, which begin `at` weights into the layer's. */
MIDGE_INLINE void midge_sum_run(float *acc, const midge_layer_f32 *p, size_t at, size_t lanes,
                                const midge_real *x, size_t count) {
    if (p->real)
        midge_sum_panel(acc, lanes, x, p->real + at, count);
    else
        midge_sum_code_panel(acc, lanes, x, p->code + at, count);
}

/* Stores `lanes` channels from c on: y = limit(acc * scale + bias). */
MIDGE_INLINE void midge_store_panel(midge_real *y, const float *acc, size_t c, size_t lanes,
                                    const midge_layer_f32 *p) {
    for (size_t l = 0; l < lanes; ++l) {
        const float sum = p->real ? acc[l] : acc[l] * p->scale[c + l];
        y[c + l] = midge_limit(sum + p->bias[c + l], &p->limits);
    }
}

/* Y [rows, pixels, channels] = X [rows, pixels, depth] times the weights. */
MIDGE_INLINE void midge_fully_connected(const midge_strip *strip, const midge_op *op, int codes) {
    const size_t channels = op->word[MIDGE_FC_CHANNELS], depth = op->word[MIDGE_FC_DEPTH];
    const size_t pixels = op->word[MIDGE_FC_PIXELS], first = strip->first * pixels;
    const midge_layer_f32 p = midge_read_layer(strip, op, depth, channels, codes);
    const midge_real *x = p.x + first * depth;
    midge_real *y = p.y + first * channels;
    for (size_t left = strip->last * pixels - first; left > 0; --left, x += depth, y += channels) {
        for (size_t c = 0; c < channels;) {
            const size_t lanes = midge_panel_width(channels - c);
            float acc[MIDGE_LANES] = {0};
            midge_sum_run(acc, &p, c * depth, lanes, x, depth);
            midge_store_panel(y, acc, c, lanes, &p);
            c += lanes;
        }
    }
}

/* Every channel of one output pixel of a convolution. */
MIDGE_INLINE void midge_conv_pixel(const midge_image *image, const void *layer,
                                   const midge_pixel *at) {
    const midge_layer_f32 *p = (const midge_layer_f32 *)layer;
    const size_t group_in = image->channels / image->groups;
    const size_t group_out = image->out / image->groups;
    const midge_span rows = at->rows, columns = at->columns;
    /* Taps of one row are neighbours in memory, unless other groups or a dilation part them. */
    const int32_t step =
        image->groups == 1 && image->dilation_x == 1 ? columns.last - columns.first : 1;
    for (size_t c = 0; c < image->out;) {
        const size_t group = c / group_out, lanes = midge_panel_width((group + 1) * group_out - c);
        const midge_real *x = p->x + at->x + group * group_in;
        float acc[MIDGE_LANES] = {0};
        for (int32_t ky = rows.first; ky < rows.last; ++ky) {
            const int32_t row = (rows.start + ky * image->dilation_y) * image->x_width;
            for (int32_t kx = columns.first; kx < columns.last; kx += step) {
                const int32_t pixel = row + columns.start + kx * image->dilation_x;
                const size_t tap = (size_t)(ky * image->kernel_width + kx) * group_in;
                midge_sum_run(acc, p, c * p->depth + tap * lanes, lanes,
                              x + (size_t)pixel * image->channels, (size_t)step * group_in);
            }
        }
        midge_store_panel(p->y + at->y, acc, c, lanes, p);
        c += lanes;
    }
}

#endif
