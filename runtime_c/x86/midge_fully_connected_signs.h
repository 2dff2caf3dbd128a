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

#define MIDGE_PANEL 16

/* Sums of one or two panels, 8 channels each. */
typedef struct midge_sums {
    __m256i a, b, c, d;
} midge_sums;

/* Writes |x| [padded] and flip [padded]; returns the sum of |x| where x is negative. */
static inline int32_t midge_split_signs(const int8_t *x, size_t depth, size_t padded, uint8_t *to) {
    const __m128i zero = _mm_setzero_si128();
    __m128i sum = zero;
    size_t k = 0;
    for (; k + 16 <= depth; k += 16) {
        const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(x + k));
        const __m128i size = _mm_abs_epi8(v), flip = _mm_cmpgt_epi8(zero, v);
        _mm_storeu_si128((__m128i *)(void *)(to + k), size);
        _mm_storeu_si128((__m128i *)(void *)(to + padded + k), flip);
        sum = _mm_add_epi64(sum, _mm_sad_epu8(_mm_and_si128(size, flip), zero));
    }
    int32_t negative = _mm_cvtsi128_si32(_mm_add_epi64(sum, _mm_srli_si128(sum, 8)));
    for (; k < padded; ++k) {
        const int32_t v = k < depth ? x[k] : 0;
        to[k] = (uint8_t)(v < 0 ? -v : v);
        to[padded + k] = v < 0 ? 255 : 0;
        negative += v < 0 ? -v : 0;
    }
    return negative;
}

/* Four bytes, eight times. */
static inline __m256i midge_four(const uint8_t *from) {
    int32_t word;
    memcpy(&word, from, 4);
    return _mm256_set1_epi32(word);
}

static inline __m256i midge_flipped(const int8_t *w, __m256i flip) {
    return _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(const void *)w), flip);
}

/* Channels 0..7 and 8..15 of a panel of `n`, and of that which lies `next` bytes behind it unless
 * that is 0. Past the last channel they hold what comes of the bytes that follow. */
static inline midge_sums midge_sum_panels(const uint8_t *x, size_t padded, const int8_t *w,
                                          size_t n, size_t next, int32_t negative) {
    midge_sums s;
    s.a = s.b = s.c = s.d = _mm256_set1_epi32(negative);
    for (const uint8_t *end = x + padded; x < end; x += 4, w += 4 * n) {
        const __m256i size = midge_four(x), flip = midge_four(x + padded);
        s.a = dot(s.a, size, midge_flipped(w, flip));
        s.b = dot(s.b, size, midge_flipped(w + 32, flip));
        if (next > 0) {
            s.c = dot(s.c, size, midge_flipped(w + next, flip));
            s.d = dot(s.d, size, midge_flipped(w + next + 32, flip));
        }
    }
    return s;
}

/* Codes of a panel from its sums. */
static inline __m128i midge_requantize_panel(__m256i low, __m256i high, const uint32_t *bias,
                                             const uint32_t *m, const midge_requant *limits) {
    const __m256 top = _mm256_set1_ps((float)limits->high);
    const __m256i *b = (const __m256i *)(const void *)bias;
    const float *scale = (const float *)(const void *)m;
    low = _mm256_add_epi32(low, _mm256_loadu_si256(b));
    high = _mm256_add_epi32(high, _mm256_loadu_si256(b + 1));
    low = midge_scale_avx2(low, _mm256_loadu_ps(scale), top);
    high = midge_scale_avx2(high, _mm256_loadu_ps(scale + 8), top);
    /* Packing works in halves: channels 0..3 8..11, then 4..7 12..15. */
    const __m256i v = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
    const __m256i sum = _mm256_adds_epi16(v, _mm256_set1_epi16((int16_t)limits->zero_point));
    const __m128i codes =
        _mm_packs_epi16(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    return _mm_max_epi8(codes, _mm_set1_epi8((int8_t)(limits->zero_point + (int32_t)limits->low)));
}

/* Stores the first `count` codes of a panel. */
static inline void midge_store_panel(int8_t *y, __m128i codes, size_t count) {
    if (count >= MIDGE_PANEL) {
        _mm_storeu_si128((__m128i *)(void *)y, codes);
        return;
    }
    int8_t all[MIDGE_PANEL];
    _mm_storeu_si128((__m128i *)(void *)all, codes);
    memcpy(y, all, count);
}

/* The whole kernel. */
static inline void midge_fully_connected_signs(const midge_strip *strip, const midge_op *op) {
    const size_t depth = op->word[MIDGE_FC_DEPTH], padded = (depth + 3u) & ~(size_t)3u;
    const size_t channels = op->word[MIDGE_FC_CHANNELS], end = strip->last * (size_t)MIDGE_PANEL;
    const uint32_t *bias = strip->data + op->word[MIDGE_OP_DATA], *m = bias + channels;
    const int8_t *weight = (const int8_t *)(m + channels);
    const midge_requant limits = midge_requant_limits(op->word[MIDGE_FC_CODES]);
    uint8_t *x = midge_scratch(strip, op);
    const int32_t negative =
        midge_split_signs(midge_codes_at(strip, op, MIDGE_OP_X), depth, padded, x);
    int8_t *y = midge_codes_at(strip, op, MIDGE_OP_Y);
    const size_t last = channels < end ? channels : end;
    size_t c = strip->first * (size_t)MIDGE_PANEL;
    for (; c + 2 * MIDGE_PANEL <= last; c += 2 * MIDGE_PANEL) {
        const midge_sums s = midge_sum_panels(x, padded, weight + c * padded, MIDGE_PANEL,
                                              MIDGE_PANEL * padded, negative);
        const size_t d = c + MIDGE_PANEL;
        midge_store_panel(y + c, midge_requantize_panel(s.a, s.b, bias + c, m + c, &limits),
                          MIDGE_PANEL);
        midge_store_panel(y + d, midge_requantize_panel(s.c, s.d, bias + d, m + d, &limits),
                          MIDGE_PANEL);
    }
    for (; c < last; c += MIDGE_PANEL) {
        const size_t count = channels - c < MIDGE_PANEL ? channels - c : MIDGE_PANEL;
        const midge_sums s = midge_sum_panels(x, padded, weight + c * padded, count, 0, negative);
        midge_store_panel(y + c, midge_requantize_panel(s.a, s.b, bias + c, m + c, &limits), count);
    }
}

#endif
