/* midge_depthwise_conv2d_f32_avx2.c - one group per input channel: 8 channels at once. */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_patch_f32.h"

#define LANES 8

/* Which of 8 channels there are. */
typedef struct lanes {
    __m256i mask;
    int all;
} lanes;

/* A layer and 8 of its channels, from c on. */
typedef struct depthwise {
    const midge_real *x, *bias, *weight;
    midge_real *y;
    midge_limits limits;
} depthwise;

/* The taps of a window that are inside the input, in elements. */
typedef struct taps {
    size_t rows, columns, x_row, x_column, w_row, w_column;
} taps;

static inline lanes lanes_of(size_t count) {
    const __m256i numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    lanes l;
    l.all = count >= LANES;
    l.mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(l.all ? LANES : (int32_t)count), numbers);
    return l;
}

MIDGE_INLINE __m256 load(const midge_real *from, const lanes *l, int all) {
    return all ? _mm256_loadu_ps((const float *)from)
               : _mm256_maskload_ps((const float *)from, l->mask);
}

/* Limits a sum and stores it. NaN passes. */
MIDGE_INLINE void store(midge_real *y, __m256 sum, __m256 low, __m256 high, const lanes *l,
                        int all) {
    sum = _mm256_min_ps(high, _mm256_max_ps(low, sum));
    if (all)
        _mm256_storeu_ps((float *)y, sum);
    else
        _mm256_maskstore_ps((float *)y, l->mask, sum);
}

/* Every pixel of a patch, its weights being held in registers. h, w and all are constants. */
MIDGE_INLINE void held(const depthwise *p, const midge_patch *patch, const taps *t, const lanes *l,
                       size_t h, size_t w, int all) {
    const __m256 bias = load(p->bias, l, all);
    const __m256 low = _mm256_set1_ps(p->limits.low), high = _mm256_set1_ps(p->limits.high);
    __m256 weight[9];
    MIDGE_EACH(i, h * w)
    weight[i] = load(p->weight + i / w * t->w_row + i % w * t->w_column, l, all);
    for (size_t row = 0; row < patch->height; ++row) {
        const midge_real *x = patch->x + row * patch->x_row;
        midge_real *y = patch->y + row * patch->y_row;
        for (size_t i = 0; i < patch->width; ++i, x += patch->x_pixel, y += patch->y_pixel) {
            __m256 sum[3] = {bias, _mm256_setzero_ps(), _mm256_setzero_ps()};
            MIDGE_EACH(k, h * w) {
                const __m256 v = load(x + k / w * t->x_row + k % w * t->x_column, l, all);
                sum[k / w] = _mm256_fmadd_ps(v, weight[k], sum[k / w]);
            }
            store(y, _mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), sum[2]), low, high, l, all);
        }
    }
}

/* n pixels with any window. n and all are constants. */
MIDGE_INLINE void any(const depthwise *p, const midge_pixels *pixels, const taps *t, const lanes *l,
                      size_t n, int all) {
    const __m256 low = _mm256_set1_ps(p->limits.low), high = _mm256_set1_ps(p->limits.high);
    const __m256 bias = load(p->bias, l, all);
    __m256 sum[4];
    MIDGE_EACH(i, n)
    sum[i] = bias;
    for (size_t ky = 0; ky < t->rows; ++ky) {
        for (size_t kx = 0; kx < t->columns; ++kx) {
            const size_t at = ky * t->x_row + kx * t->x_column;
            const __m256 w = load(p->weight + ky * t->w_row + kx * t->w_column, l, all);
            MIDGE_EACH(i, n)
            sum[i] = _mm256_fmadd_ps(load(pixels->x[i] + at, l, all), w, sum[i]);
        }
    }
    MIDGE_EACH(i, n)
    store(pixels->y[i], sum[i], low, high, l, all);
}

/* 8 channels of a patch; `all` is a constant. */
MIDGE_INLINE void block(const depthwise *p, const midge_patch *patch, const taps *t, const lanes *l,
                        int all) {
    midge_walk walk = {patch->x, patch->y, 0, patch->height * patch->width};
    midge_pixels pixels;
    switch (t->rows * 4 + t->columns) {
    case 3 * 4 + 3:
        held(p, patch, t, l, 3, 3, all);
        return;
    case 3 * 4 + 2:
        held(p, patch, t, l, 3, 2, all);
        return;
    case 2 * 4 + 3:
        held(p, patch, t, l, 2, 3, all);
        return;
    case 2 * 4 + 2:
        held(p, patch, t, l, 2, 2, all);
        return;
    default:
        break;
    }
    while (walk.left >= 4) {
        midge_take(patch, &walk, &pixels, 4);
        any(p, &pixels, t, l, 4, all);
    }
    while (walk.left != 0) {
        midge_take(patch, &walk, &pixels, 1);
        any(p, &pixels, t, l, 1, all);
    }
}

static void make_patch(const midge_image *image, const void *layer, const midge_patch *whole,
                       midge_span rows, midge_span columns) {
    depthwise p = *(const depthwise *)layer;
    midge_patch patch = *whole;
    taps t;
    t.rows = (size_t)(rows.last - rows.first);
    t.columns = (size_t)(columns.last - columns.first);
    t.x_column = (size_t)image->dilation_x * image->channels;
    t.x_row = (size_t)(image->dilation_y * image->x_width) * image->channels;
    t.w_column = image->out;
    t.w_row = (size_t)image->kernel_width * image->out;
    patch.x += midge_first_tap(image, rows, columns);
    p.weight += (size_t)rows.first * t.w_row + (size_t)columns.first * t.w_column;
    for (size_t c = 0; c < image->out; c += LANES) {
        const lanes l = lanes_of(image->out - c);
        if (l.all)
            block(&p, &patch, &t, &l, 1);
        else
            block(&p, &patch, &t, &l, 0);
        p.bias += LANES;
        p.weight += LANES;
        patch.x += LANES;
        patch.y += LANES;
    }
}

void midge_depthwise_conv2d_f32_avx2(const midge_strip *strip, const midge_op *op) {
    const midge_image image = midge_conv_image(op);
    depthwise p;
    if (image.out != image.channels) { /* several channels are made from one */
        midge_depthwise_conv2d_f32(strip, op);
        return;
    }
    p.x = midge_reals_at(strip, op, MIDGE_OP_X);
    p.y = midge_reals_at(strip, op, MIDGE_OP_Y);
    p.bias = midge_constants(strip, op->word[MIDGE_OP_DATA]);
    p.weight = p.bias + image.out;
    p.limits = midge_read_limits(op);
    midge_each_patch(&image, &p, p.x, p.y, strip, make_patch);
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
