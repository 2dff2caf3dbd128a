/* midge_dynamic.h - what midge_dynamic_quantize writes, and the layers that read it. Private. */
#ifndef MIDGE_DYNAMIC_H
#define MIDGE_DYNAMIC_H

#include "midge_kernel_f32.h"

/* Comparisons that NaN fails: it counts for no end, and becomes the lowest code. */
static inline float midge_between(float v, float low, float high) {
    v = v > low ? v : low;
    return v < high ? v : high;
}

/* How data between min and max, which include 0, become codes. */
typedef struct midge_dynamic_scale {
    float scale;
    int32_t zero_point; /* of int8 codes */
} midge_dynamic_scale;

/* Chooses the scale and writes it into the header at y. Each float operation rounds alone: the same
 * bits on every core. */
static inline midge_dynamic_scale midge_choose_scale(uint8_t *y, float min, float max) {
    midge_dynamic_scale s;
    s.scale = midge_as_float(midge_as_float(max - min) / 255.0f);
    if (s.scale == 0.0f)
        s.scale = 1.0f;
    const float zero = midge_as_float(0.0f - midge_as_float(min / s.scale));
    s.zero_point = midge_rint(midge_between(zero, 0.0f, 255.0f)) - 128;
    memset(y, 0, MIDGE_DYNAMIC_CODES);
    memcpy(y + MIDGE_DYNAMIC_SCALE, &s.scale, sizeof s.scale);
    memcpy(y + MIDGE_DYNAMIC_ZERO_POINT, &s.zero_point, sizeof s.zero_point);
    return s;
}

/* A layer whose activation was quantized at run time. */
typedef struct midge_dynamic {
    const int8_t *x, *weight;
    midge_real *y;
    const midge_real *bias, *w_scale;
    float x_scale;
    int32_t x_zero_point;
    midge_limits limits;
} midge_dynamic;

static inline midge_dynamic midge_read_dynamic(const midge_strip *strip, const midge_op *op,
                                               size_t channels) {
    const uint8_t *x = strip->arena + op->word[MIDGE_OP_X];
    midge_dynamic p;
    memcpy(&p.x_scale, x + MIDGE_DYNAMIC_SCALE, sizeof p.x_scale);
    memcpy(&p.x_zero_point, x + MIDGE_DYNAMIC_ZERO_POINT, sizeof p.x_zero_point);
    p.x = (const int8_t *)(x + MIDGE_DYNAMIC_CODES);
    p.y = midge_reals_at(strip, op, MIDGE_OP_Y);
    p.bias = midge_constants(strip, op->word[MIDGE_OP_DATA]);
    p.w_scale = p.bias + channels;
    p.weight = (const int8_t *)(p.w_scale + channels);
    p.limits = midge_read_limits(op);
    return p;
}

/* Stores channels c..c + count - 1: y = limit(acc * (x_scale * w_scale) + bias), each step rounded
 * to float32: the same bits on every core. */
static inline void midge_store_dynamic(midge_real *y, const int32_t *acc, size_t c, size_t count,
                                       const midge_dynamic *p) {
    for (size_t i = 0; i < count; ++i) {
        const float m = midge_rounded(p->x_scale * p->w_scale[c + i]);
        const float product = midge_rounded(midge_as_float((float)acc[i]) * m);
        y[c + i] = midge_limit(midge_as_float(product + p->bias[c + i]), &p->limits);
    }
}

/* What midge_dot4_s8 does, perhaps by other means. */
typedef void (*midge_dot_function)(midge_dot4 *dot, const int8_t *x, size_t offset, size_t count,
                                   int32_t x_zero_point);

/* Adds the window's taps that lie inside the input; the others hold the zero point and add 0. */
MIDGE_INLINE void midge_dynamic_window(const midge_image *image, const midge_pixel *at,
                                       midge_dot4 *sums, const int8_t *x, size_t group_in,
                                       int32_t x_zero_point, midge_dot_function dot) {
    const midge_span columns = at->columns;
    /* Taps of one row are neighbours in memory, unless other groups or a dilation part them. */
    const int32_t step =
        image->groups == 1 && image->dilation_x == 1 ? columns.last - columns.first : 1;
    for (int32_t ky = at->rows.first; ky < at->rows.last; ++ky) {
        const int32_t row = (at->rows.start + ky * image->dilation_y) * image->x_width;
        for (int32_t kx = columns.first; kx < columns.last; kx += step) {
            const size_t pixel = (size_t)(row + columns.start + kx * image->dilation_x);
            const size_t tap = (size_t)(ky * image->kernel_width + kx) * group_in;
            dot(sums, x + pixel * image->channels, tap, (size_t)step * group_in, x_zero_point);
        }
    }
}

/* Every channel of one output pixel of a convolution. */
MIDGE_INLINE void midge_dynamic_pixel(const midge_image *image, const midge_dynamic *p,
                                      const midge_pixel *at, midge_dot_function dot) {
    const size_t group_in = image->channels / image->groups;
    const size_t group_out = image->out / image->groups;
    const size_t pitch = (size_t)(image->kernel_height * image->kernel_width) * group_in;
    for (size_t g = 0; g < image->groups; ++g) {
        const int8_t *x = p->x + at->x + g * group_in;
        const size_t end = (g + 1) * group_out;
        for (size_t c = g * group_out; c < end; c += 4) {
            midge_dot4 sums = midge_dot4_start(p->weight, pitch, c, end);
            midge_dynamic_window(image, at, &sums, x, group_in, p->x_zero_point, dot);
            midge_store_dynamic(p->y + at->y, sums.acc, c, end - c < 4 ? end - c : 4, p);
        }
    }
}

/* Y [rows, pixels, channels] = X [rows, pixels, depth] times the weights. */
MIDGE_INLINE void midge_dynamic_product(const midge_strip *strip, const midge_op *op,
                                        midge_dot_function dot) {
    const size_t channels = op->word[MIDGE_FC_CHANNELS], depth = op->word[MIDGE_FC_DEPTH];
    const size_t pixels = op->word[MIDGE_FC_PIXELS], first = strip->first * pixels;
    const midge_dynamic p = midge_read_dynamic(strip, op, channels);
    const int8_t *x = p.x + first * depth;
    midge_real *y = p.y + first * channels;
    for (size_t left = strip->last * pixels - first; left > 0; --left, x += depth, y += channels) {
        for (size_t c = 0; c < channels; c += 4) {
            midge_dot4 sums = midge_dot4_start(p.weight, depth, c, channels);
            dot(&sums, x, 0, depth, p.x_zero_point);
            midge_store_dynamic(y, sums.acc, c, channels - c < 4 ? channels - c : 4, &p);
        }
    }
}

#endif
