/* midge_fully_connected_signs.h - one vector times a matrix in panels of 16 channels. Private.
 *
 * Vector instructions multiply an unsigned byte by a signed one. With flip = -1 where x is
 * negative, else 0, x * w = |x| * (w ^ flip) + (|x| where x is negative): what is added does not
 * depend on the channel. Two products of |x| <= 128 fit 16 bits, whatever w is.
 *
 * The file that includes it defines before
 *
 *     static inline __m256i dot(__m256i acc, __m256i size, __m256i w)
 *
 * which adds sum(size * w) over four neighbours of 8 channels.
 */
#ifndef MIDGE_FULLY_CONNECTED_SIGNS_H
#define MIDGE_FULLY_CONNECTED_SIGNS_H

/* Sums of one or two panels, 8 channels each. */
typedef struct midge_sums {
    __m256i a, b, c, d;
} midge_sums;

static inline __m256i midge_flipped(const int8_t *w, __m256i flip) {
    return _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(const void *)w), flip);
}

/* Adds what four neighbours contribute to one panel, and to that `next` bytes behind unless 0. */
static inline void midge_add_quad(midge_sums *s, int32_t quad, const int8_t *w, size_t next) {
    const __m256i v = _mm256_set1_epi32(quad);
    const __m256i size = _mm256_abs_epi8(v);
    const __m256i flip = _mm256_cmpgt_epi8(_mm256_setzero_si256(), v);
    s->a = dot(s->a, size, midge_flipped(w, flip));
    s->b = dot(s->b, size, midge_flipped(w + 32, flip));
    if (next > 0) {
        s->c = dot(s->c, size, midge_flipped(w + next, flip));
        s->d = dot(s->d, size, midge_flipped(w + next + 32, flip));
    }
}

/* Channels 0..7 and 8..15 of a panel of `n`, and of that which lies `next` bytes behind it unless
 * that is 0. Past the last channel they hold what comes of the bytes that follow. */
static inline midge_sums midge_sum_panels(const int8_t *x, size_t depth, const int8_t *w, size_t n,
                                          size_t next, int32_t start) {
    midge_sums s;
    size_t k = 0;
    s.a = s.b = s.c = s.d = _mm256_set1_epi32(start);
    for (; k + 4 <= depth; k += 4, w += 4 * n)
        midge_add_quad(&s, midge_quad(x + k, 4), w, next);
    if (k < depth)
        midge_add_quad(&s, midge_quad(x + k, depth - k), w, next);
    return s;
}

/* The whole kernel. */
static inline void midge_fully_connected_signs(const midge_strip *strip, const midge_op *op) {
    const size_t depth = op->word[MIDGE_FC_DEPTH], padded = (depth + 3u) & ~(size_t)3u;
    const size_t channels = op->word[MIDGE_FC_CHANNELS], end = strip->last * (size_t)MIDGE_PANEL;
    const uint32_t *bias = strip->data + op->word[MIDGE_OP_DATA], *m = bias + channels;
    const int8_t *weight = (const int8_t *)(m + channels);
    const midge_requant limits = midge_requant_limits(op->word[MIDGE_FC_CODES]);
    const int8_t *x = midge_codes_at(strip, op, MIDGE_OP_X);
    const int32_t start = midge_sum_start(x, depth, op->word[MIDGE_FC_W_ZERO_POINT]);
    int8_t *y = midge_codes_at(strip, op, MIDGE_OP_Y);
    const size_t last = channels < end ? channels : end;
    size_t c = strip->first * (size_t)MIDGE_PANEL;
    for (; c + 2 * MIDGE_PANEL <= last; c += 2 * MIDGE_PANEL) {
        const midge_sums s = midge_sum_panels(x, depth, weight + c * padded, MIDGE_PANEL,
                                              MIDGE_PANEL * padded, start);
        const size_t d = c + MIDGE_PANEL;
        midge_store_panel(y + c, midge_requantize_panel(s.a, s.b, bias + c, m + c, &limits),
                          MIDGE_PANEL);
        midge_store_panel(y + d, midge_requantize_panel(s.c, s.d, bias + d, m + d, &limits),
                          MIDGE_PANEL);
    }
    for (; c < last; c += MIDGE_PANEL) {
        const size_t count = channels - c < MIDGE_PANEL ? channels - c : MIDGE_PANEL;
        const midge_sums s = midge_sum_panels(x, depth, weight + c * padded, count, 0, start);
        midge_store_panel(y + c, midge_requantize_panel(s.a, s.b, bias + c, m + c, &limits), count);
    }
}

#endif
