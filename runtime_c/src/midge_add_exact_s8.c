/* midge_add_exact_s8.c - elementwise sum by the float32 definition, emulated in integers.
 *
 *     y = rint( fma(a, ra, fma(b, rb, c)) )
 *
 * Serves the layers for which no integer form meets the definition on every pair of codes.
 */
#include "midge_kernel.h"

/* mantissa * 2^exponent; the mantissa is 0 or has 24 significant bits. */
typedef struct real {
    int32_t mantissa, exponent;
} real;

/* A float32 that is zero or normal. */
static real real_of(uint32_t bits) {
    const uint32_t exponent = (bits >> 23) & 255u;
    real r = {0, 0};
    if (exponent != 0) {
        r.mantissa = (int32_t)((bits & 0x7FFFFFu) | 0x800000u);
        r.exponent = (int32_t)exponent - 150;
        if (bits >> 31)
            r.mantissa = -r.mantissa;
    }
    return r;
}

/* v * 2^-shift on an integer grid; an inexact result is made odd, so that it still lies on the same
 * side of every coarser rounding boundary. */
static int64_t shift_to_odd(int64_t v, int32_t shift) {
    if (shift > 40)
        return v < 0 ? -1 : v > 0;
    const int64_t cut = v >> shift;
    return cut | (((uint64_t)cut << shift) != (uint64_t)v);
}

/* sum * 2^exponent rounded to 24 significant bits, ties to even. */
static real round_24(int64_t sum, int32_t exponent) {
    uint64_t u = sum < 0 ? 0u - (uint64_t)sum : (uint64_t)sum;
    real r = {0, 0};
    if (u == 0)
        return r;
    for (; u < 0x800000u; --exponent)
        u <<= 1;
    uint32_t drop = 0;
    while (u >> drop >= 0x1000000u)
        ++drop;
    if (drop != 0) {
        u += ((uint64_t)1 << (drop - 1)) - 1u + ((u >> drop) & 1u);
        u >>= drop;
    }
    r.mantissa = sum < 0 ? -(int32_t)u : (int32_t)u;
    r.exponent = exponent + (int32_t)drop;
    return r;
}

/* fma(code, r, c) in float32. |code| <= 255, so the product has at most 32 bits. */
static real fused(int32_t code, real r, real c) {
    int64_t product = (int64_t)code * r.mantissa, addend = c.mantissa;
    int32_t exponent = r.exponent;
    const int32_t apart = r.exponent - c.exponent;
    if (product == 0)
        return c;
    if (addend == 0)
        return round_24(product, exponent);
    if (apart >= 0) {
        const int32_t up = apart < 29 ? apart : 29;
        product = (int64_t)((uint64_t)product << up);
        addend = shift_to_odd(addend, apart - up);
        exponent -= up;
    } else {
        const int32_t up = -apart < 37 ? -apart : 37;
        addend = (int64_t)((uint64_t)addend << up);
        product = shift_to_odd(product, -apart - up);
        exponent = c.exponent - up;
    }
    return round_24(product + addend, exponent);
}

/* The nearest integer, ties to even, limited to +-1024. */
static int32_t nearest(real r) {
    const int32_t magnitude = r.mantissa < 0 ? -r.mantissa : r.mantissa;
    int32_t k = 0;
    if (r.exponent > -14)
        k = magnitude == 0 ? 0 : 1024;
    else if (r.exponent >= -25) {
        const int32_t shift = -r.exponent, half = (int32_t)1 << (shift - 1);
        k = (magnitude + half - 1 + ((magnitude >> shift) & 1)) >> shift;
    }
    return r.mantissa < 0 ? -k : k;
}

void midge_add_exact_s8(const midge_strip *strip, const midge_op *op) {
    const real ra = real_of(op->word[MIDGE_ADD_RA]), rb = real_of(op->word[MIDGE_ADD_RB]);
    const real c = real_of(op->word[MIDGE_ADD_C]);
    const int32_t offset = midge_signed(op->word[MIDGE_ADD_OFFSET]);
    const size_t count = op->word[MIDGE_ADD_COUNT];
    const midge_add_rows rows = midge_add_rows_at(strip, op);
    for (uint32_t row = strip->first; row < strip->last; ++row) {
        const int8_t *a = midge_row(&rows.a, row), *b = midge_row(&rows.b, row);
        int8_t *y = midge_row(&rows.y, row);
        for (size_t i = 0; i < count; ++i) {
            const real sum = fused(a[i] + offset, ra, fused(b[i] + offset, rb, c));
            y[i] = midge_saturate_s8(nearest(sum) - offset);
        }
    }
}
