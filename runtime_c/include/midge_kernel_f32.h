/* midge_kernel_f32.h - what the float kernels share: access, limits, windows, broadcasts. Private.
 */
#ifndef MIDGE_KERNEL_F32_H
#define MIDGE_KERNEL_F32_H

#include "midge_kernel.h"
#include "midge_model_f32.h"

/* A float in the arena or among the constants, which are declared as bytes and words. */
#if defined(__GNUC__)
typedef float __attribute__((__may_alias__)) midge_real;
#define MIDGE_INLINE static inline __attribute__((__always_inline__))
#else
typedef float midge_real;
#define MIDGE_INLINE static inline
#endif

/* Floats of the arena at the offset that stands in word `index`; offsets are multiples of 16. */
static inline midge_real *midge_reals_at(const midge_strip *strip, const midge_op *op, int index) {
    return (midge_real *)(void *)(strip->arena + op->word[index]);
}

/* Floats among the constants. */
static inline const midge_real *midge_constants(const midge_strip *strip, uint32_t offset) {
    return (const midge_real *)(const void *)(strip->data + offset);
}

/* The value rounded to float32 before anything else is done with it: the store keeps a compiler
 * from joining a product and a sum into one FMA, which rounds once. */
static inline float midge_rounded(float v) {
    volatile float stored = v;
    return stored;
}

/* Limits of a layer. NaN passes. */
typedef struct midge_limits {
    float low, high;
} midge_limits;

static inline midge_limits midge_read_limits(const midge_op *op) {
    midge_limits limits;
    limits.low = midge_float(op->word[MIDGE_LIMIT_LOW]);
    limits.high = midge_float(op->word[MIDGE_LIMIT_HIGH]);
    return limits;
}

static inline float midge_limit(float v, const midge_limits *limits) {
    v = v < limits->low ? limits->low : v;
    return v > limits->high ? limits->high : v;
}

/* A convolution or pool: what its record says about sizes. */
typedef struct midge_image {
    int32_t x_height, x_width, y_height, y_width, kernel_height, kernel_width;
    int32_t stride_y, stride_x, dilation_y, dilation_x, top, left, batch;
    size_t channels, out, groups; /* of x and y; 1 group for a pool */
} midge_image;

/* One output pixel: the window's part inside the input, elements before the image in x, and before
 * the pixel in y. */
typedef struct midge_pixel {
    midge_span rows, columns;
    size_t x, y;
} midge_pixel;

typedef void (*midge_pixel_function)(const midge_image *image, const void *layer,
                                     const midge_pixel *at);

/* Reads a record of MIDGE_CONV words. */
static inline midge_image midge_conv_image(const midge_op *op) {
    midge_image p;
    p.x_height = midge_low(op->word[MIDGE_CONV_X_SIZE]);
    p.x_width = midge_high(op->word[MIDGE_CONV_X_SIZE]);
    p.y_height = midge_low(op->word[MIDGE_CONV_Y_SIZE]);
    p.y_width = midge_high(op->word[MIDGE_CONV_Y_SIZE]);
    p.kernel_height = midge_low(op->word[MIDGE_CONV_KERNEL]);
    p.kernel_width = midge_high(op->word[MIDGE_CONV_KERNEL]);
    p.stride_y = midge_low(op->word[MIDGE_CONV_STRIDE]);
    p.stride_x = midge_high(op->word[MIDGE_CONV_STRIDE]);
    p.dilation_y = midge_low(op->word[MIDGE_CONV_DILATION]);
    p.dilation_x = midge_high(op->word[MIDGE_CONV_DILATION]);
    p.top = midge_low(op->word[MIDGE_CONV_PADS]);
    p.left = midge_high(op->word[MIDGE_CONV_PADS]);
    p.batch = midge_low(op->word[MIDGE_CONV_GROUPS]);
    p.groups = (size_t)midge_high(op->word[MIDGE_CONV_GROUPS]);
    p.channels = (size_t)midge_low(op->word[MIDGE_CONV_CHANNELS]);
    p.out = (size_t)midge_high(op->word[MIDGE_CONV_CHANNELS]);
    return p;
}

/* Reads a record of MIDGE_POOL words. */
static inline midge_image midge_pool_image(const midge_op *op) {
    midge_image p;
    p.x_height = midge_low(op->word[MIDGE_POOL_X_SIZE]);
    p.x_width = midge_high(op->word[MIDGE_POOL_X_SIZE]);
    p.y_height = midge_low(op->word[MIDGE_POOL_Y_SIZE]);
    p.y_width = midge_high(op->word[MIDGE_POOL_Y_SIZE]);
    p.kernel_height = midge_low(op->word[MIDGE_POOL_KERNEL]);
    p.kernel_width = midge_high(op->word[MIDGE_POOL_KERNEL]);
    p.stride_y = midge_low(op->word[MIDGE_POOL_STRIDE]);
    p.stride_x = midge_high(op->word[MIDGE_POOL_STRIDE]);
    p.dilation_y = midge_low(op->word[MIDGE_POOL_DILATION]);
    p.dilation_x = midge_high(op->word[MIDGE_POOL_DILATION]);
    p.top = midge_low(op->word[MIDGE_POOL_PADS]);
    p.left = midge_high(op->word[MIDGE_POOL_PADS]);
    p.batch = midge_low(op->word[MIDGE_POOL_CHANNELS]);
    p.groups = 1;
    p.channels = p.out = (size_t)midge_high(op->word[MIDGE_POOL_CHANNELS]);
    return p;
}

/* Calls `pixel` for every output pixel of rows first..last - 1 of all images, in order. */
MIDGE_INLINE void midge_each_pixel(const midge_image *p, const void *layer,
                                   const midge_strip *strip, midge_pixel_function pixel) {
    const uint32_t height = (uint32_t)p->y_height;
    const size_t image = (size_t)p->x_height * (size_t)p->x_width * p->channels;
    midge_pixel at;
    at.y = strip->first * (size_t)p->y_width * p->out;
    for (uint32_t row = strip->first; row < strip->last; ++row) {
        const int32_t oy = (int32_t)(row % height);
        at.x = row / height * image;
        at.rows =
            midge_clip(oy * p->stride_y - p->top, p->kernel_height, p->dilation_y, p->x_height);
        for (int32_t ox = 0; ox < p->y_width; ++ox, at.y += p->out) {
            at.columns =
                midge_clip(ox * p->stride_x - p->left, p->kernel_width, p->dilation_x, p->x_width);
            pixel(p, layer, &at);
        }
    }
}

/* y[i] = f(a[i * a_step], b[i * b_step]) for `count` elements. */
typedef void (*midge_row_function)(midge_real *y, const midge_real *a, size_t a_step,
                                   const midge_real *b, size_t b_step, size_t count);

/* Calls `row` along the last axis of a MIDGE_BINARY record. */
MIDGE_INLINE void midge_each_row(const midge_strip *strip, const midge_op *op,
                                 midge_row_function row) {
    const uint32_t *shape = &op->word[MIDGE_BINARY_SHAPE];
    const uint32_t *a_pitch = &op->word[MIDGE_BINARY_A_PITCH];
    const uint32_t *b_pitch = &op->word[MIDGE_BINARY_B_PITCH];
    const size_t a_step = op->word[MIDGE_BINARY_STEP] & 0xFFFFu;
    const size_t b_step = op->word[MIDGE_BINARY_STEP] >> 16;
    const uint32_t flags = op->word[MIDGE_BINARY_KIND] >> 16;
    const midge_real *a = midge_reals_at(strip, op, MIDGE_OP_X);
    const midge_real *b = flags & MIDGE_BINARY_CONSTANT
                              ? midge_constants(strip, op->word[MIDGE_BINARY_B])
                              : midge_reals_at(strip, op, MIDGE_BINARY_B);
    midge_real *y = midge_reals_at(strip, op, MIDGE_OP_Y);
    for (size_t i = 0; i < shape[0]; ++i)
        for (size_t j = 0; j < shape[1]; ++j)
            for (size_t k = 0; k < shape[2]; ++k, y += shape[3]) {
                const midge_real *ai = a + (i * a_pitch[0] + j * a_pitch[1] + k * a_pitch[2]);
                const midge_real *bi = b + (i * b_pitch[0] + j * b_pitch[1] + k * b_pitch[2]);
                if (flags & MIDGE_BINARY_SWAPPED)
                    row(y, bi, b_step, ai, a_step, shape[3]);
                else
                    row(y, ai, a_step, bi, b_step, shape[3]);
            }
}

#endif
