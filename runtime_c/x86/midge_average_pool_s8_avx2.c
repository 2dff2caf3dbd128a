/* midge_average_pool_s8_avx2.c - mean of each window, requantized, 16 channels at once. */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_avx2.h"

#define GROUP 16u
#define TAPS_16 255 /* codes whose sum int16 holds */

/* Where one output pixel comes from: row 0 of the image is row `image` of X. */
typedef struct window {
    const midge_rows *x;
    midge_span rows, columns;
    uint32_t image;
    size_t channels;
    int32_t taps, x_zero_point;
    uint32_t m; /* float32 bits of the multiplier */
} window;

/* Adds 16 sums of int16 to those of int32, channels 0..7 and 8..15. */
static inline void widen_sums(__m256i sum, __m256i acc[2]) {
    const __m128i high = _mm256_extracti128_si256(sum, 1);
    acc[0] = _mm256_add_epi32(acc[0], _mm256_cvtepi16_epi32(_mm256_castsi256_si128(sum)));
    acc[1] = _mm256_add_epi32(acc[1], _mm256_cvtepi16_epi32(high));
}

/* Channels c..c + 15, of which `count` exist. */
static void average_16(const window *w, size_t c, size_t count, const midge_requant *limits,
                       int8_t *y) {
    __m256i acc[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    __m256i sum = _mm256_setzero_si256();
    int32_t left = TAPS_16;
    uint32_t bias[GROUP], m[GROUP];
    for (int32_t ky = w->rows.first; ky < w->rows.last; ++ky) {
        const int8_t *row = midge_row(w->x, w->image + (uint32_t)(w->rows.start + ky));
        const int8_t *from = row + (size_t)(w->columns.start + w->columns.first) * w->channels + c;
        for (int32_t kx = w->columns.first; kx < w->columns.last; ++kx, from += w->channels) {
            __m128i codes;
            if (count == GROUP) {
                codes = _mm_loadu_si128((const __m128i *)(const void *)from);
            } else {
                int8_t some[GROUP] = {0};
                memcpy(some, from, count);
                codes = _mm_loadu_si128((const __m128i *)(const void *)some);
            }
            sum = _mm256_add_epi16(sum, _mm256_cvtepi8_epi16(codes));
            if (--left == 0) {
                widen_sums(sum, acc);
                sum = _mm256_setzero_si256();
                left = TAPS_16;
            }
        }
    }
    widen_sums(sum, acc);
    for (size_t i = 0; i < GROUP; ++i) {
        bias[i] = 0u - (uint32_t)(w->taps * w->x_zero_point);
        m[i] = w->m;
    }
    const __m128i codes = midge_requantize_panel(acc[0], acc[1], bias, m, limits);
    midge_store_panel(y + c, codes, count);
}

void midge_average_pool_s8_avx2(const midge_strip *strip, const midge_op *op) {
    const midge_pool p = midge_pool_at(strip, op);
    const uint32_t *m = strip->data + op->word[MIDGE_OP_DATA];
    const midge_requant limits = midge_requant_limits(op->word[MIDGE_POOL_CODES]);
    window w;
    w.x = &p.x;
    w.channels = p.channels;
    w.x_zero_point = midge_code(op->word[MIDGE_POOL_CODES], 0);
    w.m = m[0];
    for (uint32_t row = strip->first; row < strip->last; ++row) {
        int8_t *y = midge_row(&p.y, row);
        w.image = row / p.y_height * (uint32_t)p.x_height;
        w.rows = midge_pool_rows(&p, op, row % p.y_height);
        for (int32_t ox = 0; ox < p.y_width; ++ox, y += p.channels) {
            w.columns = midge_pool_columns(&p, op, ox);
            w.taps = (w.rows.last - w.rows.first) * (w.columns.last - w.columns.first);
            if (op->word[MIDGE_POOL_COUNTS] && w.taps > 0)
                w.m = m[w.taps - 1];
            for (size_t c = 0; c < p.channels; c += GROUP) {
                const size_t left = p.channels - c;
                average_16(&w, c, left < GROUP ? left : GROUP, &limits, y);
            }
        }
    }
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
