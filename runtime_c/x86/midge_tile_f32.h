/* midge_tile_f32.h - sums of products of several pixels by panels of weights. Private.
 *
 * Included as midge_floats.h is. A sum is made in the same order whatever MIDGE_FLOATS is.
 */
#ifndef MIDGE_TILE_F32_H
#define MIDGE_TILE_F32_H

#include "midge_floats.h"

/* Tiles of panels of 16 channels: most pixels, and panels beside each other where there are many
 * pixels. 12 vectors of sums and 3 others fill the registers of AVX2; 20 and 3, with 10 pointers,
 * suit AVX512. */
#if MIDGE_FLOATS == 16
#define MIDGE_MANY 10
#define MIDGE_BESIDE 2
#else
#define MIDGE_MANY 6
#define MIDGE_BESIDE 1
#endif
#define MIDGE_TILE 10 /* most pixels of any tile */
#define MIDGE_SUMS 20 /* most vectors of sums of a tile */

/* The taps of a window: rows x columns runs of `count` neighbours. The pitches and the first weight
 * are in elements of x and in weights of one output channel. */
typedef struct midge_taps {
    size_t rows, columns, count;
    size_t x_row, x_column, w_row, w_column;
    size_t w;
} midge_taps;

/* The first tap of some pixels, and their output. */
typedef struct midge_pixels {
    const midge_real *x[MIDGE_TILE];
    midge_real *y[MIDGE_TILE];
} midge_pixels;

/* `count` neighbouring weights, `at` weights from the first of the layer. */
MIDGE_INLINE midge_floats midge_weights(const midge_layer_f32 *p, size_t at, size_t count,
                                        int codes) {
    return codes ? midge_load_codes(p->code + at, count) : midge_load(p->real + at, count);
}

/* What a layer makes of the sums of channels c..c + count - 1. NaN passes. */
MIDGE_INLINE midge_floats midge_finish(const midge_layer_f32 *p, midge_floats sum, size_t c,
                                       size_t count, int codes) {
    if (codes)
        sum = midge_fma(sum, midge_load(p->scale + c, count), midge_load(p->bias + c, count));
    sum = midge_larger(midge_same(p->limits.low), sum);
    return midge_smaller(midge_same(p->limits.high), sum);
}

/* `panels` panels of `lanes` channels, 8 or 16, from c on, of n pixels. A sum is made in the same
 * order whatever n and `panels` are. They, lanes and codes are constants where this is inlined. */
MIDGE_INLINE void midge_tile(const midge_layer_f32 *p, const midge_taps *t,
                             const midge_pixels *pixels, size_t c, size_t n, size_t lanes,
                             size_t panels, int codes) {
    const size_t count = lanes < MIDGE_FLOATS ? lanes : MIDGE_FLOATS; /* of a vector */
    const size_t each = lanes / count, vectors = each * panels;       /* of one pixel */
    const midge_real *x[MIDGE_TILE];
    midge_floats sum[MIDGE_SUMS], weight[8];
    MIDGE_EACH(i, n)
    x[i] = pixels->x[i];
    MIDGE_EACH(i, n * vectors)
    sum[i] = codes ? midge_same(0.0f) : midge_load(p->bias + c + i % vectors * count, count);
    for (size_t ky = 0; ky < t->rows; ++ky) {
        for (size_t kx = 0; kx < t->columns; ++kx) {
            size_t k = ky * t->x_row + kx * t->x_column;
            size_t w = c * p->depth + (t->w + ky * t->w_row + kx * t->w_column) * lanes;
            for (const size_t end = k + t->count; k < end; ++k, w += lanes) {
                MIDGE_EACH(v, vectors) {
                    const size_t at = w + v / each * lanes * p->depth + v % each * count;
                    weight[v] = midge_weights(p, at, count, codes);
                }
                MIDGE_EACH(i, n) {
                    const midge_floats value = midge_same(x[i][k]);
                    MIDGE_EACH(v, vectors)
                    sum[i * vectors + v] = midge_fma(value, weight[v], sum[i * vectors + v]);
                }
            }
        }
    }
    MIDGE_EACH(i, n * vectors) {
        const size_t at = c + i % vectors * count;
        midge_store(pixels->y[i / vectors] + at, midge_finish(p, sum[i], at, count, codes), count);
    }
}

MIDGE_INLINE __m256 midge_8_weights(const midge_layer_f32 *p, size_t at, int codes) {
    return codes ? midge_8_codes(p->code + at) : _mm256_loadu_ps((const float *)(p->real + at));
}

/* Channels c..c + 3 of one pixel. */
MIDGE_INLINE void midge_tile_4(const midge_layer_f32 *p, const midge_taps *t, const midge_real *x,
                               midge_real *y, size_t c, int codes) {
    __m128 even = _mm_setzero_ps(), odd = even;
    for (size_t ky = 0; ky < t->rows; ++ky) {
        for (size_t kx = 0; kx < t->columns; ++kx) {
            const midge_real *from = x + ky * t->x_row + kx * t->x_column;
            size_t w = c * p->depth + (t->w + ky * t->w_row + kx * t->w_column) * 4;
            size_t k = 0;
            for (; k + 2 <= t->count; k += 2, w += 8) {
                const __m256 both = midge_8_weights(p, w, codes);
                even = _mm_fmadd_ps(_mm_set1_ps(from[k]), _mm256_castps256_ps128(both), even);
                odd = _mm_fmadd_ps(_mm_set1_ps(from[k + 1]), _mm256_extractf128_ps(both, 1), odd);
            }
            if (k < t->count) {
                float last[4];
                MIDGE_EACH(l, 4)
                last[l] = codes ? (float)p->code[w + l] : p->real[w + l];
                even = _mm_fmadd_ps(_mm_set1_ps(from[k]), _mm_loadu_ps(last), even);
            }
        }
    }
    float sum[4];
    _mm_storeu_ps(sum, _mm_add_ps(even, odd));
    midge_store_panel(y, sum, c, 4, p);
}

/* Channel c of one pixel. */
MIDGE_INLINE void midge_tile_1(const midge_layer_f32 *p, const midge_taps *t, const midge_real *x,
                               midge_real *y, size_t c, int codes) {
    __m256 s0 = _mm256_setzero_ps(), s1 = s0;
    float rest = 0.0f, part[8];
    for (size_t ky = 0; ky < t->rows; ++ky) {
        for (size_t kx = 0; kx < t->columns; ++kx) {
            const midge_real *from = x + ky * t->x_row + kx * t->x_column;
            const size_t w = c * p->depth + t->w + ky * t->w_row + kx * t->w_column;
            size_t k = 0;
            for (; k + 16 <= t->count; k += 16) {
                const float *v = (const float *)(from + k);
                s0 = _mm256_fmadd_ps(_mm256_loadu_ps(v), midge_8_weights(p, w + k, codes), s0);
                s1 = _mm256_fmadd_ps(_mm256_loadu_ps(v + 8), midge_8_weights(p, w + k + 8, codes),
                                     s1);
            }
            for (; k < t->count; ++k)
                rest += from[k] * (codes ? (float)p->code[w + k] : p->real[w + k]);
        }
    }
    _mm256_storeu_ps(part, _mm256_add_ps(s0, s1));
    MIDGE_EACH(l, 8)
    rest += part[l];
    midge_store_panel(y, &rest, c, 1, p);
}

/* Where pixels begin: `height` rows of `width`, the pitches in elements. */
typedef struct midge_patch {
    const midge_real *x;
    midge_real *y;
    size_t height, width, x_row, x_pixel, y_row, y_pixel;
} midge_patch;

/* A walk over the pixels of a patch, row by row. */
typedef struct midge_walk {
    const midge_real *x;
    midge_real *y;
    size_t column, left; /* column of the next pixel, and how many there are from it on */
} midge_walk;

/* Takes the next n pixels. */
MIDGE_INLINE void midge_take(const midge_patch *patch, midge_walk *walk, midge_pixels *to,
                             size_t n) {
    MIDGE_EACH(i, n) {
        to->x[i] = walk->x;
        to->y[i] = walk->y;
        walk->x += patch->x_pixel;
        walk->y += patch->y_pixel;
        if (++walk->column == patch->width) {
            walk->column = 0;
            walk->x += patch->x_row - patch->width * patch->x_pixel;
            walk->y += patch->y_row - patch->width * patch->y_pixel;
        }
    }
    walk->left -= n;
}

/* All pixels that are left but fewer than n, by tiles of n and `panels` panels. */
#define MIDGE_TILES(n, lanes, panels)                                                              \
    while (walk.left >= (n)) {                                                                     \
        midge_take(patch, &walk, &pixels, (n));                                                    \
        midge_tile(p, t, &pixels, c, (n), (lanes), (panels), codes);                               \
    }
/* All panels that are left but fewer than `panels`, of n pixels. */
#define MIDGE_PANELS(n, panels)                                                                    \
    for (; left >= (panels); left -= (panels), c += 16 * (panels))                                 \
        midge_tile(p, t, &pixels, c, (n), 16, (panels), codes);

/* `panels` panels of 16 channels beside each other, from c on, of all pixels but the last 3. */
MIDGE_INLINE midge_walk midge_beside(const midge_layer_f32 *p, const midge_taps *t,
                                     const midge_patch *patch, size_t c, size_t panels, int codes) {
    midge_walk walk = {patch->x, patch->y, 0, patch->height * patch->width};
    midge_pixels pixels;
    MIDGE_TILES(MIDGE_MANY, 16, panels)
    if (MIDGE_MANY > 6)
        MIDGE_TILES(6, 16, panels)
    MIDGE_TILES(4, 16, panels)
    return walk;
}

/* Panels of 16 channels from c on. The last pixels, too few to keep the multipliers busy, are met
 * by several panels at once. */
MIDGE_INLINE void midge_wide_panels(const midge_layer_f32 *p, const midge_taps *t,
                                    const midge_patch *patch, size_t first, size_t panels,
                                    int codes) {
    midge_walk walk = {NULL, NULL, 0, 0};
    midge_pixels pixels;
    size_t left = panels, c = first;
    for (; left >= MIDGE_BESIDE; left -= MIDGE_BESIDE, c += 16 * MIDGE_BESIDE)
        walk = midge_beside(p, t, patch, c, MIDGE_BESIDE, codes);
    if (MIDGE_BESIDE > 1 && left != 0)
        walk = midge_beside(p, t, patch, c, 1, codes);
    while (walk.left != 0) {
        const size_t n = walk.left >= 2 ? 2 : 1;
        left = panels, c = first;
        if (n == 2) {
            midge_take(patch, &walk, &pixels, 2);
            MIDGE_PANELS(2, 2 * MIDGE_BESIDE)
            MIDGE_PANELS(2, MIDGE_BESIDE)
            if (MIDGE_BESIDE > 1)
                MIDGE_PANELS(2, 1)
        } else {
            midge_take(patch, &walk, &pixels, 1);
            MIDGE_PANELS(1, 4 * MIDGE_BESIDE)
            MIDGE_PANELS(1, 2 * MIDGE_BESIDE)
            MIDGE_PANELS(1, MIDGE_BESIDE)
            if (MIDGE_BESIDE > 1)
                MIDGE_PANELS(1, 1)
        }
    }
}

/* One panel of 8, 4 or 1 channels. */
MIDGE_INLINE void midge_narrow_panel(const midge_layer_f32 *p, const midge_taps *t,
                                     const midge_patch *patch, size_t c, size_t lanes, int codes) {
    midge_walk walk = {patch->x, patch->y, 0, patch->height * patch->width};
    midge_pixels pixels;
    if (lanes == 8) {
        MIDGE_TILES(8, 8, 1)
        MIDGE_TILES(4, 8, 1)
        MIDGE_TILES(2, 8, 1)
        MIDGE_TILES(1, 8, 1)
    }
    while (walk.left != 0) {
        midge_take(patch, &walk, &pixels, 1);
        if (lanes == 4)
            midge_tile_4(p, t, pixels.x[0], pixels.y[0], c, codes);
        else
            midge_tile_1(p, t, pixels.x[0], pixels.y[0], c, codes);
    }
}

/* Channels c..end - 1, a group or all, of every pixel of a patch. */
MIDGE_INLINE void midge_patch_channels(const midge_layer_f32 *p, const midge_taps *t,
                                       const midge_patch *patch, size_t c, size_t end, int codes) {
    midge_wide_panels(p, t, patch, c, (end - c) / 16, codes);
    for (c += (end - c) / 16 * 16; c < end;) {
        const size_t lanes = midge_panel_width(end - c);
        midge_narrow_panel(p, t, patch, c, lanes, codes);
        c += lanes;
    }
}

/* Every channel of a matrix product. In 512 bits it is not inlined: GCC would keep what `p` holds
 * in registers, and then runs out of them inside the loops. */
#if MIDGE_FLOATS == 16
#define MIDGE_PRODUCT MIDGE_OUTLINE
#else
#define MIDGE_PRODUCT MIDGE_INLINE
#endif
MIDGE_PRODUCT void midge_real_product(const midge_layer_f32 *p, const midge_taps *t,
                                      const midge_patch *patch, size_t channels) {
    midge_patch_channels(p, t, patch, 0, channels, 0);
}

MIDGE_PRODUCT void midge_code_product(const midge_layer_f32 *p, const midge_taps *t,
                                      const midge_patch *patch, size_t channels) {
    midge_patch_channels(p, t, patch, 0, channels, 1);
}

/* Y [rows, pixels, channels] = X [rows, pixels, depth] times the weights. */
MIDGE_INLINE void midge_product_rows(const midge_strip *strip, const midge_op *op, int codes) {
    const size_t channels = op->word[MIDGE_FC_CHANNELS], depth = op->word[MIDGE_FC_DEPTH];
    const size_t pixels = op->word[MIDGE_FC_PIXELS], first = strip->first * pixels;
    const midge_layer_f32 p = midge_read_layer(strip, op, depth, channels, codes);
    const midge_taps taps = {1, 1, depth, 0, 0, 0, 0, 0};
    midge_patch patch = {NULL, NULL, 1, (strip->last - strip->first) * pixels, 0, 0, 0, 0};
    patch.x = p.x + first * depth;
    patch.y = p.y + first * channels;
    patch.x_pixel = depth;
    patch.y_pixel = channels;
    if (codes)
        midge_code_product(&p, &taps, &patch, channels);
    else
        midge_real_product(&p, &taps, &patch, channels);
}

#endif
