/* midge_tile_f32.h - sums of products of several pixels by a panel of weights, for AVX2. Private.
 *
 * Included before any function, and after midge_x86.h; the file ends with MIDGE_TARGET_END.
 */
#ifndef MIDGE_TILE_F32_H
#define MIDGE_TILE_F32_H

#include "midge_panel_f32.h"
#include "midge_target.h"

MIDGE_TARGET_BEGIN("avx2,fma")
#include MIDGE_INTRINSICS

#define MIDGE_TILE 8  /* most pixels of a tile */
#define MIDGE_SUMS 16 /* most vectors of sums of a tile */
#define MIDGE_EACH(i, count) MIDGE_UNROLL for (size_t i = 0; i < (count); ++i)

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

/* 8 neighbouring weights, `at` weights from the first of the layer. */
MIDGE_INLINE __m256 midge_weights(const midge_layer_f32 *p, size_t at, int codes) {
    if (!codes)
        return _mm256_loadu_ps((const float *)(p->real + at));
    const __m128i w = _mm_loadl_epi64((const __m128i *)(const void *)(p->code + at));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(w));
}

/* What the sums of channels c..c + 7 begin with. */
MIDGE_INLINE __m256 midge_begin(const midge_layer_f32 *p, size_t c, int codes) {
    return codes ? _mm256_setzero_ps() : _mm256_loadu_ps((const float *)(p->bias + c));
}

/* What a layer makes of them. NaN passes. */
MIDGE_INLINE __m256 midge_finish(const midge_layer_f32 *p, __m256 sum, size_t c, int codes) {
    if (codes)
        sum = _mm256_fmadd_ps(sum, _mm256_loadu_ps((const float *)(p->scale + c)),
                              _mm256_loadu_ps((const float *)(p->bias + c)));
    sum = _mm256_max_ps(_mm256_set1_ps(p->limits.low), sum);
    return _mm256_min_ps(_mm256_set1_ps(p->limits.high), sum);
}

/* Adds the products of tap k of n pixels by `vectors` times 8 weights from w on. */
MIDGE_INLINE void midge_tile_step(__m256 *sum, const midge_layer_f32 *p, size_t w,
                                  const midge_real *const *x, size_t k, size_t n, size_t vectors,
                                  int codes) {
    __m256 weight[2];
    MIDGE_EACH(v, vectors)
    weight[v] = midge_weights(p, w + 8 * v, codes);
    MIDGE_EACH(i, n) {
        const __m256 value = _mm256_set1_ps(x[i][k]);
        MIDGE_EACH(v, vectors)
        sum[i * vectors + v] = _mm256_fmadd_ps(value, weight[v], sum[i * vectors + v]);
    }
}

/* `panels` panels of 8 * vectors channels, from c on, of n pixels. A sum is made in the same order
 * whatever n and `panels` are. They, vectors and codes are constants where this is inlined. */
MIDGE_INLINE void midge_tile(const midge_layer_f32 *p, const midge_taps *t,
                             const midge_pixels *pixels, size_t c, size_t n, size_t vectors,
                             size_t panels, int codes) {
    const size_t lanes = 8 * vectors, one = n * vectors;
    const midge_real *x[MIDGE_TILE];
    __m256 sum[MIDGE_SUMS];
    MIDGE_EACH(i, n)
    x[i] = pixels->x[i];
    MIDGE_EACH(i, one * panels)
    sum[i] = midge_begin(p, c + i / one * lanes + i % vectors * 8, codes);
    for (size_t ky = 0; ky < t->rows; ++ky) {
        for (size_t kx = 0; kx < t->columns; ++kx) {
            size_t k = ky * t->x_row + kx * t->x_column;
            size_t w = c * p->depth + (t->w + ky * t->w_row + kx * t->w_column) * lanes;
            for (const size_t end = k + t->count; k < end; ++k, w += lanes) {
                MIDGE_EACH(q, panels)
                midge_tile_step(sum + q * one, p, w + q * lanes * p->depth, x, k, n, vectors,
                                codes);
            }
        }
    }
    MIDGE_EACH(i, one * panels) {
        const size_t at = c + i / one * lanes + i % vectors * 8;
        _mm256_storeu_ps((float *)(pixels->y[i % one / vectors] + at),
                         midge_finish(p, sum[i], at, codes));
    }
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
                const __m256 both = midge_weights(p, w, codes);
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
                s0 = _mm256_fmadd_ps(_mm256_loadu_ps(v), midge_weights(p, w + k, codes), s0);
                s1 =
                    _mm256_fmadd_ps(_mm256_loadu_ps(v + 8), midge_weights(p, w + k + 8, codes), s1);
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

/* All pixels that are left but fewer than n, by tiles of n; of one panel, or of several. */
#define MIDGE_TILES(n, vectors)                                                                    \
    while (walk.left >= (n)) {                                                                     \
        midge_take(patch, &walk, &pixels, (n));                                                    \
        midge_tile(p, t, &pixels, c, (n), (vectors), 1, codes);                                    \
    }
#define MIDGE_PANELS(n, panels)                                                                    \
    for (; left >= (panels); left -= (panels), c += 16 * (panels))                                 \
        midge_tile(p, t, &pixels, c, (n), 2, (panels), codes);

/* Panels of 16 channels from c on. The last pixels, too few to keep the multipliers busy, are met
 * by several panels at once. */
MIDGE_INLINE void midge_wide_panels(const midge_layer_f32 *p, const midge_taps *t,
                                    const midge_patch *patch, size_t first, size_t panels,
                                    int codes) {
    const midge_walk start = {patch->x, patch->y, 0, patch->height * patch->width};
    midge_walk walk = start;
    midge_pixels pixels;
    for (size_t c = first; c < first + 16 * panels; c += 16) {
        walk = start;
        MIDGE_TILES(6, 2)
        MIDGE_TILES(4, 2)
    }
    while (panels != 0 && walk.left != 0) {
        const size_t n = walk.left >= 2 ? 2 : 1;
        size_t left = panels, c = first;
        if (n == 2) {
            midge_take(patch, &walk, &pixels, 2);
            MIDGE_PANELS(2, 2)
            MIDGE_PANELS(2, 1)
        } else {
            midge_take(patch, &walk, &pixels, 1);
            MIDGE_PANELS(1, 4)
            MIDGE_PANELS(1, 2)
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
        MIDGE_TILES(8, 1)
        MIDGE_TILES(4, 1)
        MIDGE_TILES(2, 1)
        MIDGE_TILES(1, 1)
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
    midge_patch_channels(&p, &taps, &patch, 0, channels, codes);
}

#endif
