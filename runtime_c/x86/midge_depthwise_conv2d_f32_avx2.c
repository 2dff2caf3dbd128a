/* midge_depthwise_conv2d_f32_avx2.c - one group per input channel: 8 channels at once. */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_patch_f32.h"

#define LANES 8
#define CACHED 4096 /* elements of x that stay in a first-level cache between blocks of lanes */

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

/* The pixels of a row whose windows are 3 taps wide: elements from the image's first one to their
 * first taps. */
typedef struct edges {
    size_t left, inside, right;
    size_t count; /* of those inside */
    int has_left, has_right;
} edges;

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

/* One pixel: h rows of w taps from x on; weights lie 3 to a row. h, w and all are constants. */
MIDGE_INLINE __m256 window(const midge_real *x, const taps *t, const __m256 *weight, __m256 bias,
                           const lanes *l, size_t h, size_t w, int all) {
    __m256 sum[3] = {bias, _mm256_setzero_ps(), _mm256_setzero_ps()};
    MIDGE_EACH(k, h * w) {
        const __m256 v = load(x + k / w * t->x_row + k % w * t->x_column, l, all);
        sum[k / w] = _mm256_fmadd_ps(v, weight[k / w * 3 + k % w], sum[k / w]);
    }
    if (h > 1)
        sum[0] = _mm256_add_ps(sum[0], sum[1]);
    return h > 2 ? _mm256_add_ps(sum[0], sum[2]) : sum[0];
}

/* 8 channels of a band by windows 3 taps wide, the weights held in registers: perhaps a pixel at
 * the left edge, those inside, perhaps one at the right edge. h and all are constants. */
MIDGE_INLINE void held(const depthwise *p, const midge_patch *band, const taps *t, const edges *e,
                       const lanes *l, size_t h, int all) {
    const __m256 bias = load(p->bias, l, all);
    const __m256 low = _mm256_set1_ps(p->limits.low), high = _mm256_set1_ps(p->limits.high);
    __m256 weight[9];
    MIDGE_EACH(i, h * 3)
    weight[i] = load(p->weight + i / 3 * t->w_row + i % 3 * t->w_column, l, all);
    for (size_t row = 0; row < band->height; ++row) {
        const midge_real *from = band->x + row * band->x_row, *x = from + e->inside;
        midge_real *y = band->y + row * band->y_row;
        if (e->has_left) {
            const __m256 sum = window(from + e->left, t, weight + 1, bias, l, h, 2, all);
            store(y, sum, low, high, l, all);
            y += band->y_pixel;
        }
        for (size_t i = e->count; i > 0; --i, x += band->x_pixel, y += band->y_pixel)
            store(y, window(x, t, weight, bias, l, h, 3, all), low, high, l, all);
        if (e->has_right)
            store(y, window(from + e->right, t, weight, bias, l, h, 2, all), low, high, l, all);
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
    while (walk.left >= 4) {
        midge_take(patch, &walk, &pixels, 4);
        any(p, &pixels, t, l, 4, all);
    }
    while (walk.left != 0) {
        midge_take(patch, &walk, &pixels, 1);
        any(p, &pixels, t, l, 1, all);
    }
}

/* 8 channels of a band by windows 3 taps wide; `all` is a constant. */
MIDGE_INLINE void held_block(const depthwise *p, const midge_patch *band, const taps *t,
                             const edges *e, const lanes *l, int all) {
    if (t->rows == 3)
        held(p, band, t, e, l, 3, all);
    else if (t->rows == 2)
        held(p, band, t, e, l, 2, all);
    else
        held(p, band, t, e, l, 1, all);
}

/* The taps of a window, `rows` of them being inside the input. */
static taps taps_of(const midge_image *image, midge_span rows, midge_span columns) {
    taps t;
    t.rows = (size_t)(rows.last - rows.first);
    t.columns = (size_t)(columns.last - columns.first);
    t.x_column = (size_t)image->dilation_x * image->channels;
    t.x_row = (size_t)(image->dilation_y * image->x_width) * image->channels;
    t.w_column = image->out;
    t.w_row = (size_t)image->kernel_width * image->out;
    return t;
}

/* Every channel of a patch, or of a band with edges `e`. */
static void make_channels(const midge_image *image, const depthwise *layer, midge_patch patch,
                          midge_span rows, midge_span columns, const edges *e) {
    const taps t = taps_of(image, rows, columns);
    depthwise p = *layer;
    p.weight += (size_t)rows.first * t.w_row + (size_t)columns.first * t.w_column;
    for (size_t c = 0; c < image->out; c += LANES) {
        const lanes l = lanes_of(image->out - c);
        if (e && l.all)
            held_block(&p, &patch, &t, e, &l, 1);
        else if (e)
            held_block(&p, &patch, &t, e, &l, 0);
        else if (l.all)
            block(&p, &patch, &t, &l, 1);
        else
            block(&p, &patch, &t, &l, 0);
        p.bias += LANES;
        p.weight += LANES;
        patch.x += LANES;
        patch.y += LANES;
    }
}

/* Finds the edges of a band; returns whether a kernel for windows 3 taps wide can make it. */
static int find_edges(const midge_image *image, midge_span rows, edges *e) {
    const int32_t size = rows.last - rows.first;
    if (image->kernel_width != 3 || size < 1 || size > 3)
        return 0;
    midge_stretch s = midge_columns_at(image, 0);
    int32_t ox = 0;
    e->has_left = s.span.first == 1 && s.span.last == 3 && s.count == 1;
    if (e->has_left) {
        e->left = midge_first_tap(image, rows, s.span);
        if (++ox == image->y_width)
            return 0;
        s = midge_columns_at(image, ox);
    }
    if (s.span.first != 0 || s.span.last != 3)
        return 0;
    e->inside = midge_first_tap(image, rows, s.span);
    e->count = (size_t)s.count;
    ox += s.count;
    e->has_right = ox < image->y_width;
    if (e->has_right) {
        s = midge_columns_at(image, ox);
        e->right = midge_first_tap(image, rows, s.span);
        return s.span.first == 0 && s.span.last == 2 && ox + 1 == image->y_width;
    }
    return 1;
}

static void make_band(const midge_image *image, const void *layer, const midge_patch *band,
                      midge_span rows) {
    const depthwise *p = (const depthwise *)layer;
    const midge_span whole = {0, 3, 0};
    midge_patch patch = *band;
    edges e = {0, 0, 0, 0, 0, 0};
    if (find_edges(image, rows, &e)) {
        const size_t most = 1 + CACHED / band->x_row;
        for (size_t row = 0; row < band->height; row += most) {
            const size_t left = band->height - row;
            patch.x = band->x + row * band->x_row;
            patch.y = band->y + row * band->y_row;
            patch.height = left < most ? left : most;
            make_channels(image, p, patch, rows, whole, &e);
        }
        return;
    }
    for (int32_t ox = 0; ox < image->y_width; ox += (int32_t)patch.width) {
        const midge_stretch columns = midge_columns_at(image, ox);
        patch.width = (size_t)columns.count;
        patch.x = band->x + midge_first_tap(image, rows, columns.span);
        patch.y = band->y + (size_t)ox * image->out;
        make_channels(image, p, patch, rows, columns.span, NULL);
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
    midge_each_band(&image, &p, p.x, p.y, strip, make_band);
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
