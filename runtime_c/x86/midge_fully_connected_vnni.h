/* midge_fully_connected_vnni.h - one vector times a matrix in panels by VNNI. Private.
 *
 * A file includes it after midge_vnni.h. With x = |x| * sign,
 * x * w = |x| * (w ^ flip) + (|x| where x is negative), where flip = -1 there, else 0.
 */
#ifndef MIDGE_FULLY_CONNECTED_VNNI_H
#define MIDGE_FULLY_CONNECTED_VNNI_H

#define MIDGE_CHAINS 4 /* sums of a vector that do not wait for each other */

/* Two vectors of sums, or one. */
typedef struct midge_two {
    midge_lanes a, b;
} midge_two;

/* Adds what four neighbours contribute; `second` is 0 where there is one vector. */
static inline void midge_add_products(midge_two *s, int32_t quad, const int8_t *w, size_t second) {
    const midge_lanes x = midge_same(quad), size = midge_size(x);
    s->a = midge_dot(s->a, size, midge_flipped(midge_weights(w), x));
    if (second > 0)
        s->b = midge_dot(s->b, size, midge_flipped(midge_weights(w + second), x));
}

/* The sums of a group of channels whose panels have `n`. */
static inline midge_two midge_sum_group(const int8_t *x, size_t depth, const int8_t *w, size_t n,
                                        size_t second, int32_t start) {
    const size_t step = 4 * n;
    size_t k = 0;
    midge_two s0, s1, s2, s3;
    s0.a = s0.b = midge_same(start);
    s1.a = s1.b = s2.a = s2.b = s3.a = s3.b = midge_same(0);
    for (; k + 4 * MIDGE_CHAINS <= depth; k += 4 * MIDGE_CHAINS, w += MIDGE_CHAINS * step) {
        midge_add_products(&s0, midge_quad(x + k, 4), w, second);
        midge_add_products(&s1, midge_quad(x + k + 4, 4), w + step, second);
        midge_add_products(&s2, midge_quad(x + k + 8, 4), w + 2 * step, second);
        midge_add_products(&s3, midge_quad(x + k + 12, 4), w + 3 * step, second);
    }
    for (; k < depth; k += 4, w += step)
        midge_add_products(&s0, midge_quad(x + k, depth - k), w, second);
    s0.a = midge_plus(midge_plus(s0.a, s1.a), midge_plus(s2.a, s3.a));
    s0.b = midge_plus(midge_plus(s0.b, s1.b), midge_plus(s2.b, s3.b));
    return s0;
}

/* The whole kernel. */
static inline void midge_fully_connected_vnni(const midge_strip *strip, const midge_op *op) {
    const size_t depth = op->word[MIDGE_FC_DEPTH], padded = (depth + 3u) & ~(size_t)3u;
    const size_t channels = op->word[MIDGE_FC_CHANNELS], end = strip->last * (size_t)MIDGE_PANEL;
    const uint32_t *bias = strip->data + op->word[MIDGE_OP_DATA], *m = bias + channels;
    const int8_t *weight = (const int8_t *)(m + channels);
    const midge_requant limits = midge_requant_limits(op->word[MIDGE_FC_CODES]);
    const int8_t *x = midge_codes_at(strip, op, MIDGE_OP_X);
    const int32_t start = midge_sum_start(x, depth, op->word[MIDGE_FC_W_ZERO_POINT]);
    int8_t *y = midge_codes_at(strip, op, MIDGE_OP_Y);
    const size_t last = channels < end ? channels : end;
    for (size_t c = strip->first * (size_t)MIDGE_PANEL; c < last;) {
        const size_t left = last - c, group = midge_group(left);
        const size_t n = left < MIDGE_PANEL ? left : MIDGE_PANEL;
        const size_t second = group == 2 * MIDGE_LANES ? midge_second(padded) : 0;
        const midge_two s = midge_sum_group(x, depth, weight + c * padded, n, second, start);
        midge_store_group(y + c, s.a, s.b, left, bias + c, m + c, &limits);
        c += group;
    }
}

#endif
