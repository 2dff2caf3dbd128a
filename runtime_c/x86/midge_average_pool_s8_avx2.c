/* midge_average_pool_s8_avx2.c - mean of each window, requantized, 16 channels at once. */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_avx2.h"

#define GROUP 16 /* channels */
#define MOST 256 /* codes whose sum int16 holds */

/* Where one output pixel comes from, and its divisor. */
typedef struct window {
    midge_span rows, columns;
    uint32_t image; /* row 0 of the image in X */
    __m256 m;
} window;

/* Sums of 16 channels. */
typedef struct sums {
    __m256i a, b; /* channels 0..7 and 8..15 */
} sums;

/* What requantizes them. */
typedef struct limits {
    __m256 high;
    __m256i zero_point; /* int16 */
    __m128i low;
    int32_t x_zero_point;
} limits;

static limits limits_of(uint32_t codes) {
    limits l;
    l.high = _mm256_set1_ps((float)(midge_code(codes, 3) - midge_code(codes, 1)));
    l.zero_point = _mm256_set1_epi16((int16_t)midge_code(codes, 1));
    l.low = _mm_set1_epi8((int8_t)midge_code(codes, 2));
    l.x_zero_point = midge_code(codes, 0);
    return l;
}

static inline void add_wide(sums *total, __m256i part) {
    total->a = _mm256_add_epi32(total->a, _mm256_cvtepi16_epi32(_mm256_castsi256_si128(part)));
    total->b = _mm256_add_epi32(total->b, _mm256_cvtepi16_epi32(_mm256_extracti128_si256(part, 1)));
}

/* Sums channels c..c + 15 of a window. */
static inline sums sum_window(const midge_pool *p, const window *w, size_t c) {
    const int32_t column = w->columns.start + w->columns.first * p->dilation_x;
    const size_t first = (size_t)column * p->channels + c;
    const size_t step = (size_t)p->dilation_x * p->channels;
    sums total = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    __m256i part = _mm256_setzero_si256();
    int32_t room = MOST;
    for (int32_t ky = w->rows.first; ky < w->rows.last; ++ky) {
        const int32_t row = w->rows.start + ky * p->dilation_y;
        const int8_t *x = midge_row(&p->x, w->image + (uint32_t)row) + first;
        for (int32_t kx = w->columns.first; kx < w->columns.last; ++kx, x += step) {
            const __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)x);
            part = _mm256_add_epi16(part, _mm256_cvtepi8_epi16(codes));
            if (--room == 0) {
                add_wide(&total, part);
                part = _mm256_setzero_si256();
                room = MOST;
            }
        }
    }
    add_wide(&total, part);
    return total;
}

/* Every channel of one pixel: requantize(sum(x) - taps * x_zero_point). Where fewer than 16 are
 * left over, some are made twice. */
static inline void average_pixel(const midge_pool *p, const window *w, const limits *l,
                                 int32_t taps, int8_t *y) {
    const __m256i bias = _mm256_set1_epi32(-taps * l->x_zero_point);
    for (size_t c = 0; c < p->channels; c += GROUP) {
        c = c + GROUP <= p->channels ? c : p->channels - GROUP;
        const sums acc = sum_window(p, w, c);
        const __m256i a = midge_scale_avx2(_mm256_add_epi32(acc.a, bias), w->m, l->high);
        const __m256i b = midge_scale_avx2(_mm256_add_epi32(acc.b, bias), w->m, l->high);
        const __m256i sum = _mm256_adds_epi16(_mm256_packs_epi32(a, b), l->zero_point);
        /* Packing works on halves: channels 0..3 8..11 4..7 12..15. */
        const __m128i mixed =
            _mm_packs_epi16(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
        const __m128i codes = _mm_shuffle_epi32(mixed, 0xD8);
        _mm_storeu_si128((__m128i *)(void *)(y + c), _mm_max_epi8(codes, l->low));
    }
}

void midge_average_pool_s8_avx2(const midge_strip *strip, const midge_op *op) {
    const midge_pool p = midge_pool_at(strip, op);
    const uint32_t *m = strip->data + op->word[MIDGE_OP_DATA];
    const limits l = limits_of(op->word[MIDGE_POOL_CODES]);
    if (p.channels < GROUP) {
        midge_average_pool_s8(strip, op);
        return;
    }
    window w;
    w.m = _mm256_set1_ps(midge_float(m[0]));
    for (uint32_t row = strip->first; row < strip->last; ++row) {
        int8_t *y = midge_row(&p.y, row);
        w.image = row / p.y_height * (uint32_t)p.x_height;
        w.rows = midge_pool_rows(&p, op, row % p.y_height);
        for (int32_t ox = 0; ox < p.y_width; ++ox, y += p.channels) {
            w.columns = midge_pool_columns(&p, op, ox);
            const int32_t taps = (w.rows.last - w.rows.first) * (w.columns.last - w.columns.first);
            if (op->word[MIDGE_POOL_COUNTS] && taps > 0)
                w.m = _mm256_set1_ps(midge_float(m[taps - 1]));
            average_pixel(&p, &w, &l, taps, y);
        }
    }
}

MIDGE_TARGET_END

#endif
