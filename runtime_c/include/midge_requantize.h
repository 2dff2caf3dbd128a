/* midge_requantize.h - from an int32 accumulator to an int8 code, the same bits on every core.
 *
 *     q = clamp( rint( f32(acc) * m ) + zero_point, low, high )
 *
 * f32() and the product round to float32 (24 bits), rint() to an integer, all ties to even. Two
 * forms, chosen at compile time by -DMIDGE_REQUANT_FLOAT or -DMIDGE_REQUANT_INT, give equal bits:
 * the float form is the definition and needs an FPU in its default rounding mode; the integer form
 * emulates it with one 32 x 32 -> 64 bit product and no float instruction.
 */
#ifndef MIDGE_REQUANTIZE_H
#define MIDGE_REQUANTIZE_H

#include <float.h>
#include <stdint.h>
#include <string.h>

#if defined(__FAST_MATH__) || defined(_M_FP_FAST)
#error "midge: -ffast-math changes results; compile the runtime without it."
#endif

/* Float expressions are evaluated in float, not in a wider type (x87 does that). */
#if defined(FLT_EVAL_METHOD) && (FLT_EVAL_METHOD == 0 || FLT_EVAL_METHOD == 16)
#define MIDGE_FLOAT_IS_FLOAT 1
#else
#define MIDGE_FLOAT_IS_FLOAT 0
#endif

#if defined(MIDGE_REQUANT_FLOAT) && defined(MIDGE_REQUANT_INT)
#error "midge: define one of MIDGE_REQUANT_FLOAT and MIDGE_REQUANT_INT, not both."
#elif defined(MIDGE_REQUANT_FLOAT) && !MIDGE_FLOAT_IS_FLOAT
#error "midge: this target evaluates float expressions in a wider type; use MIDGE_REQUANT_INT."
#elif !defined(MIDGE_REQUANT_FLOAT) && !defined(MIDGE_REQUANT_INT)
#if MIDGE_FLOAT_IS_FLOAT &&                                                                        \
    (defined(__SSE__) || defined(__x86_64__) || defined(_M_X64) || defined(__aarch64__) ||         \
     defined(_M_ARM64) || (defined(__ARM_FP) && (__ARM_FP & 4)) || defined(__riscv_flen) ||        \
     defined(__riscv_zfinx) || defined(__wasm__))
#define MIDGE_REQUANT_FLOAT
#else
#define MIDGE_REQUANT_INT
#endif
#endif

/* Code `i` of a MIDGE_CODES word. */
static inline int32_t midge_code(uint32_t word, unsigned i) {
    return (int32_t)(int8_t)(uint8_t)(word >> (8u * i));
}

/* The float with these bits. */
static inline float midge_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A float result without excess precision. */
static inline float midge_as_float(float v) {
#if MIDGE_FLOAT_IS_FLOAT
    return v;
#else
    volatile float stored = v; /* the store rounds */
    return stored;
#endif
}

/* The nearest integer, ties to even, of |v| <= 2^22: adding 1.5 * 2^23 leaves no fraction bits. */
static inline int32_t midge_rint(float v) {
    uint32_t bits;
    const float shifted = midge_as_float(v + 12582912.0f);
    memcpy(&bits, &shifted, sizeof bits);
    return (int32_t)(bits - 0x4B400000u);
}

/* |a| rounded to 24 significant bits, ties to even: what int32 -> float32 keeps. */
static inline uint32_t midge_round_24(uint32_t a) {
    unsigned drop = 0;
    while (a >> drop >> 24)
        ++drop;
    if (drop == 0)
        return a;
    a += (1u << (drop - 1)) - 1u + ((a >> drop) & 1u);
    return a >> drop << drop;
}

/* rint( f32(f32(acc) * m) ) without float instructions; magnitudes above 512 come back as 512.
 *
 * acc: any int32.
 * m:   bits of a finite float32 >= 0.
 *
 * With v the exact product and k its integer part, rounding v to 24 bits first can only move it
 * onto the tie k + 1/2, from at most half a unit in the 24th place: 2^(j-24) where 2^j is the
 * highest power of two in k. So v rounds up from a threshold just below the tie where k is odd and
 * just above it where k is even.
 */
static inline int32_t midge_rint_product(int32_t acc, uint32_t m) {
    const uint32_t a = midge_round_24(acc < 0 ? 0u - (uint32_t)acc : (uint32_t)acc);
    const uint32_t exponent = m >> 23;
    /* v = product * 2^(exponent - 158), with the mantissa in the upper 24 bits of 32. */
    const uint64_t product = (uint64_t)a * (((m & 0x7FFFFFu) | 0x800000u) << 8);
    uint64_t fixed; /* v with 32 fraction bits, cut */
    if (exponent >= 126u) {
        if (a == 0)
            return 0;
        if (a > 1023u || exponent >= 137u)
            return acc < 0 ? -512 : 512;
        fixed = product << (exponent - 126u);
    } else {
        const uint32_t shift = 126u - exponent;
        if (shift > 63u)
            return 0;
        fixed = product >> shift;
    }
    uint32_t k = (uint32_t)(fixed >> 32);
    const uint32_t fraction = (uint32_t)fixed;
    if (k >= 512u)
        return acc < 0 ? -512 : 512;
    if (fraction - 0x7FFE0000u > 0x40000u) {
        k += fraction >> 31; /* not near a tie */
    } else {
        uint32_t top = k | k >> 1; /* 8 bits: a larger k saturates either way */
        top |= top >> 2;
        top |= top >> 4;
        const uint32_t window = (top + 1u) << 7; /* 2^(j-24) with 32 fraction bits */
        if (k & 1u)
            k += fraction >= 0x80000000u - window;
        else if (fraction == 0x80000000u + window)
            k += exponent < 126u && fixed << (126u - exponent) != product; /* what was cut */
        else
            k += fraction > 0x80000000u + window;
    }
    return acc < 0 ? -(int32_t)k : (int32_t)k;
}

/* The limits of one layer, before the zero point is added. */
typedef struct midge_requant {
#ifdef MIDGE_REQUANT_FLOAT
    float low, high;
#else
    int32_t low, high;
#endif
    int32_t zero_point;
} midge_requant;

/* Reads the limits from a MIDGE_CODES word. */
static inline midge_requant midge_requant_limits(uint32_t codes) {
    midge_requant r;
    r.zero_point = midge_code(codes, 1);
#ifdef MIDGE_REQUANT_FLOAT
    r.low = (float)(midge_code(codes, 2) - r.zero_point);
    r.high = (float)(midge_code(codes, 3) - r.zero_point);
#else
    r.low = midge_code(codes, 2) - r.zero_point;
    r.high = midge_code(codes, 3) - r.zero_point;
#endif
    return r;
}

/* The int8 code of an accumulator; m holds the bits of the float32 multiplier. */
static inline int8_t midge_requantize(int32_t acc, uint32_t m, const midge_requant *r) {
#ifdef MIDGE_REQUANT_FLOAT
    /* The clamp stands between the product and the sum in midge_rint: no FMA can join them. */
    float v = (float)acc * midge_float(m);
    v = v < r->low ? r->low : v;
    v = v > r->high ? r->high : v;
    return (int8_t)(midge_rint(v) + r->zero_point);
#else
    int32_t v = midge_rint_product(acc, m);
    v = v < r->low ? r->low : v;
    v = v > r->high ? r->high : v;
    return (int8_t)(v + r->zero_point);
#endif
}

#endif
