/* midge_depthwise_lanes.h - depthwise 3 x 3 convolution, 16 channels of a pixel at once. Private.
 *
 * Included once by each file midge_depthwise_conv2d_s8_LEVEL.c, which defines before it
 *
 *     static inline __m256i multiply_add(__m256i acc, __m256i x, __m256i w);
 *
 * acc[i] += x[2 * i] * w[2 * i] + x[2 * i + 1] * w[2 * i + 1], exact.
 *
 * Codes are widened to 16 bits and interleaved in pairs of taps: rows 0 and 1 of a column, and row
 * 2 of two neighbouring columns. A column is loaded and interleaved once for the three pixels (two
 * with stride 2) whose windows it is in, and adds to each what it contributes.
 */
#ifndef MIDGE_DEPTHWISE_LANES_H
#define MIDGE_DEPTHWISE_LANES_H

#define GROUP 16       /* channels */
#define BLOCK 16384    /* bytes of X that should stay in the first-level cache */
#define CACHE_LINE 64u /* bytes */

/* 16 channels, one number each or a pair: 0..3 and 8..11, then 4..7 and 12..15, which is how
 * vpunpck leaves them and vpackssdw joins them. */
typedef struct lanes {
    __m256i a, b;
} lanes;

/* Weights by the pairs of taps that they multiply. */
enum {
    RIGHT,      /* column 0 in rows 0 and 1: of the pixel whose window begins there */
    MIDDLE,     /* column 1 */
    LEFT,       /* column 2 */
    BELOW,      /* row 2, columns 0 and 1 */
    BELOW_LEFT, /* row 2, column 2, and a column that counts nothing: before it in row_of_stride_1
                 */
    PAIRS
};

/* What 16 channels need for all pixels. */
typedef struct group {
    lanes weight[PAIRS];
    lanes bias; /* less x_zero_point * sum(weight) */
    __m256 m_a, m_b, high;
    __m256i zero_point; /* int16 */
    __m128i low;
} group;

/* Where the next column lies in three rows; 0 bytes apart where they lie in the padding. */
typedef struct column {
    const int8_t *row[3];
    size_t step[3];
} column;

static inline __m256i widen(const int8_t *x) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)x));
}

static inline lanes interleave(__m256i first, __m256i second) {
    const lanes pair = {_mm256_unpacklo_epi16(first, second), _mm256_unpackhi_epi16(first, second)};
    return pair;
}

static inline lanes accumulate(lanes acc, lanes x, const lanes *w) {
    const lanes sum = {multiply_add(acc.a, x.a, w->a), multiply_add(acc.b, x.b, w->b)};
    return sum;
}

/* 16 words in the order of lanes. */
static inline lanes words_at(const uint32_t *words) {
    const __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)words);
    const __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(words + 8));
    const lanes both = {_mm256_permute2x128_si256(low, high, 0x20),
                        _mm256_permute2x128_si256(low, high, 0x31)};
    return both;
}

/* The constants of 16 channels. */
typedef struct constants {
    const uint32_t *bias, *m;
    const int8_t *weight;
    size_t pitch; /* from tap to tap */
} constants;

static inline void prepare(group *g, const midge_conv *p, const constants *from) {
    const __m256i none = _mm256_setzero_si256();
    const int8_t *w = from->weight;
    __m256i tap[9];
    for (int i = 0; i < 9; ++i, w += from->pitch)
        tap[i] = widen(w);
    g->weight[RIGHT] = interleave(tap[0], tap[3]);
    g->weight[MIDDLE] = interleave(tap[1], tap[4]);
    g->weight[LEFT] = interleave(tap[2], tap[5]);
    g->weight[BELOW] = interleave(tap[6], tap[7]);
    g->weight[BELOW_LEFT] =
        p->stride_x == 1 && p->out >= GROUP ? interleave(none, tap[8]) : interleave(tap[8], none);

    const __m256i minus_zero = _mm256_set1_epi16((int16_t)-p->x_zero_point);
    const lanes zero = {minus_zero, minus_zero};
    g->bias = words_at(from->bias);
    for (int i = 0; i < PAIRS; ++i)
        g->bias = accumulate(g->bias, zero, &g->weight[i]);

    const lanes m = words_at(from->m);
    g->m_a = _mm256_castsi256_ps(m.a);
    g->m_b = _mm256_castsi256_ps(m.b);
    g->high = _mm256_set1_ps((float)p->limits.high);
    g->zero_point = _mm256_set1_epi16((int16_t)p->limits.zero_point);
    g->low = _mm_set1_epi8((int8_t)((int32_t)p->limits.low + p->limits.zero_point));
}

/* Stores the codes of 16 channels. */
static inline void finish(const group *g, lanes acc, int8_t *y) {
    const __m256i a = midge_scale_avx2(acc.a, g->m_a, g->high);
    const __m256i b = midge_scale_avx2(acc.b, g->m_b, g->high);
    const __m256i sum = _mm256_adds_epi16(_mm256_packs_epi32(a, b), g->zero_point);
    const __m128i codes =
        _mm_packs_epi16(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    _mm_storeu_si128((__m128i *)(void *)y, _mm_max_epi8(codes, g->low));
}

/* The next column: rows 0 and 1 as pairs, row 2 as it is. */
static inline lanes take_column(column *x, __m256i *below) {
    const lanes above = interleave(widen(x->row[0]), widen(x->row[1]));
    *below = widen(x->row[2]);
    for (int i = 0; i < 3; ++i)
        x->row[i] += x->step[i];
    return above;
}

/* What lies in three rows of X, with the padding on both sides. */
typedef struct band {
    const int8_t *row[3]; /* column 0 of X, or padding */
    size_t step[3];
    const int8_t *padding; /* GROUP bytes x_zero_point */
    int32_t left, width;   /* columns of padding before X, of X */
} band;

/* Points at column j, counted from the first of padding, and returns the end of the columns that
 * follow it in the same step. */
static inline int32_t column_at(const band *from, int32_t j, column *x) {
    const int32_t inside = j - from->left;
    const int is_inside = inside >= 0 && inside < from->width;
    for (int i = 0; i < 3; ++i) {
        x->row[i] = is_inside ? from->row[i] + (size_t)inside * from->step[i] : from->padding;
        x->step[i] = is_inside ? from->step[i] : 0;
    }
    return inside < 0 ? from->left : is_inside ? from->left + from->width : INT32_MAX;
}

/* The rows of X below row oy of Y, from channel c on; row 0 of the image is row `image` of X. */
static inline void find_rows(const midge_conv *p, uint32_t image, uint32_t oy, size_t c,
                             band *found) {
    const int32_t start = (int32_t)oy * p->stride_y - p->top;
    for (int32_t i = 0; i < 3; ++i) {
        const int is_inside = start + i >= 0 && start + i < p->x_height;
        found->row[i] =
            is_inside ? midge_row(&p->x, image + (uint32_t)(start + i)) + c : found->padding;
        found->step[i] = is_inside ? p->channels : 0;
    }
}

/* Channels of one row of Y, stride 1. Column j ends the window of pixel j - 2. */
static inline void row_of_stride_1(const group *g, const band *from, int32_t pixels, int8_t *y,
                                   size_t pitch) {
    lanes first = g->bias, second = g->bias; /* of the windows that hold 2 and 1 columns so far */
    __m256i before = _mm256_setzero_si256();
    column x;
    for (int32_t j = 0; j < pixels + 2;) {
        int32_t end = column_at(from, j, &x);
        end = end < pixels + 2 ? end : pixels + 2;
        for (; j < end; ++j) {
            __m256i below;
            const lanes above = take_column(&x, &below);
            const lanes beside = interleave(before, below);
            lanes done = accumulate(first, above, &g->weight[LEFT]);
            done = accumulate(done, beside, &g->weight[BELOW_LEFT]);
            first = accumulate(second, above, &g->weight[MIDDLE]);
            first = accumulate(first, beside, &g->weight[BELOW]);
            second = accumulate(g->bias, above, &g->weight[RIGHT]);
            before = below;
            if (j >= 2) {
                finish(g, done, y);
                y += pitch;
            }
        }
    }
}

/* Channels of one row of Y, stride 2. Column 2 * i ends the window of pixel i - 1; the column
 * behind it is multiplied by 0 there. */
static inline void row_of_stride_2(const group *g, const band *from, int32_t pixels, int8_t *y,
                                   size_t pitch) {
    lanes open = g->bias;
    column x;
    int32_t end = column_at(from, 0, &x);
    for (int32_t j = 0; j <= 2 * pixels; j += 2) {
        __m256i below, below_next;
        if (j >= end)
            end = column_at(from, j, &x);
        const lanes above = take_column(&x, &below);
        if (j + 1 >= end)
            end = column_at(from, j + 1, &x);
        const lanes above_next = take_column(&x, &below_next);
        const lanes beside = interleave(below, below_next);
        if (j > 0) {
            open = accumulate(open, above, &g->weight[LEFT]);
            finish(g, accumulate(open, beside, &g->weight[BELOW_LEFT]), y);
            y += pitch;
        }
        open = accumulate(g->bias, above, &g->weight[RIGHT]);
        open = accumulate(open, above_next, &g->weight[MIDDLE]);
        open = accumulate(open, beside, &g->weight[BELOW]);
    }
}

/* Rows first..last - 1 of Y, 16 channels at once; of fewer than 16 left over, some are made twice.
 */
static void wide_rows(const midge_conv *p, uint32_t first, uint32_t last, const int8_t *padding) {
    group g;
    band from;
    from.padding = padding;
    from.left = p->left;
    from.width = p->x_width;
    for (size_t c = 0; c < p->out; c += GROUP) {
        c = c + GROUP <= p->out ? c : p->out - GROUP;
        const constants own = {p->bias + c, p->m + c, p->weight + c, p->out};
        prepare(&g, p, &own);
        for (uint32_t row = first; row < last; ++row) {
            int8_t *y = midge_row(&p->y, row) + c;
            find_rows(p, row / p->y_height * (uint32_t)p->x_height, row % p->y_height, c, &from);
            if (p->stride_x == 1)
                row_of_stride_1(&g, &from, p->y_width, y, p->out);
            else
                row_of_stride_2(&g, &from, p->y_width, y, p->out);
        }
    }
}

/* How many rows of Y to make for one group of channels before the next: what they read stays in
 * the cache while every channel of a line of it is used. */
static uint32_t rows_of_block(const midge_conv *p) {
    const uint32_t bytes = p->channels < CACHE_LINE ? (uint32_t)p->channels : CACHE_LINE;
    const uint32_t row = (uint32_t)(p->x_width * p->stride_y) * bytes;
    return row < BLOCK ? BLOCK / row : 1;
}

#endif
