/* midge_depthwise_narrow.h - depthwise 3 x 3 convolution of fewer than 16 channels. Private.
 *
 * Included after midge_depthwise_lanes.h. Neighbouring pixels lie side by side: with stride 1 as
 * many of them as 16 bytes hold are made at once.
 */
#ifndef MIDGE_DEPTHWISE_NARROW_H
#define MIDGE_DEPTHWISE_NARROW_H

#define WINDOW 64 /* bytes of a row that pixels made at once read: 2 * 15 + 16 at most */

/* What does not change from row to row. */
typedef struct narrow {
    group g;
    int32_t pixels; /* made at once */
    size_t channels;
} narrow;

/* Repeats the constants of every channel for each pixel; further lanes make nothing. */
static void prepare_narrow(narrow *n, const midge_conv *p) {
    uint32_t words[2 * GROUP] = {0};
    int8_t weight[9 * GROUP] = {0};
    const constants own = {words, words + GROUP, weight, GROUP};
    n->channels = p->out;
    n->pixels = p->stride_x == 1 ? (int32_t)(GROUP / p->out) : 1;
    for (size_t i = 0; i < (size_t)n->pixels * p->out; ++i) {
        const size_t c = i % p->out;
        words[i] = p->bias[c];
        words[GROUP + i] = p->m[c];
        for (size_t tap = 0; tap < 9; ++tap)
            weight[tap * GROUP + i] = p->weight[tap * p->out + c];
    }
    prepare(&n->g, p, &own);
}

/* Pixels side by side, from where their first window begins in three rows. */
static inline void make_pixels(const narrow *n, const int8_t *const row[3], int8_t *y) {
    const size_t next = n->channels;
    lanes acc = n->g.bias;
    for (int i = 0; i < 3; ++i) {
        const size_t at = (size_t)i * next;
        acc = accumulate(acc, interleave(widen(row[0] + at), widen(row[1] + at)),
                         &n->g.weight[RIGHT + i]);
    }
    const __m256i last = widen(row[2] + 2 * next);
    acc = accumulate(acc, interleave(widen(row[2]), widen(row[2] + next)), &n->g.weight[BELOW]);
    acc = accumulate(acc, interleave(last, last), &n->g.weight[BELOW_LEFT]);
    finish(&n->g, acc, y);
}

/* Copies what lies inside of X of the columns x..x + count - 1 of one row. */
static void copy_columns(int8_t *to, const band *from, int i, int32_t x, int32_t count,
                         size_t channels) {
    const int32_t first = x < 0 ? 0 : x;
    const int32_t last = x + count < from->width ? x + count : from->width;
    memcpy(to, from->padding, WINDOW);
    if (first < last && from->step[i])
        memcpy(to + (size_t)(first - x) * channels, from->row[i] + (size_t)first * channels,
               (size_t)(last - first) * channels);
}

/* One row of Y. */
static void narrow_row(const narrow *n, const band *from, const midge_conv *p, int8_t *y) {
    const int32_t width = (int32_t)n->channels;
    for (int32_t ox = 0; ox < p->y_width; ox += n->pixels) {
        const int32_t x = ox * p->stride_x - from->left, left = p->y_width - ox;
        const int8_t *row[3];
        int8_t copy[3][WINDOW], codes[GROUP];
        const int is_inside = x >= 0 && (x + 2) * width + GROUP <= from->width * width;
        for (int i = 0; i < 3; ++i) {
            row[i] = copy[i];
            if (is_inside)
                row[i] = from->step[i] ? from->row[i] + x * width : from->padding;
            else
                copy_columns(copy[i], from, i, x, n->pixels + 2, n->channels);
        }
        if (left * width >= GROUP) {
            make_pixels(n, row, y); /* what lies behind them in the row is made later */
        } else {
            make_pixels(n, row, codes);
            memcpy(y, codes, (size_t)(left < n->pixels ? left : n->pixels) * n->channels);
        }
        y += (size_t)n->pixels * n->channels;
    }
}

static void narrow_rows(const midge_conv *p, uint32_t first, uint32_t last, const int8_t *padding) {
    narrow n;
    band from;
    from.padding = padding;
    from.left = p->left;
    from.width = p->x_width;
    prepare_narrow(&n, p);
    for (uint32_t row = first; row < last; ++row) {
        find_rows(p, row / p->y_height * (uint32_t)p->x_height, row % p->y_height, 0, &from);
        narrow_row(&n, &from, p, midge_row(&p->y, row));
    }
}

#endif
