/* midge_floats.h - one source for the float kernels of AVX2 and of AVX512F. Private.
 *
 * A file includes it, or what includes it, after MIDGE_FLOATS: 8 floats in 256 bits or 16 in 512.
 * Included before any function, and after midge_x86.h; the file ends with MIDGE_TARGET_END.
 */
#ifndef MIDGE_FLOATS_H
#define MIDGE_FLOATS_H

#include "midge_panel_f32.h"
#include "midge_target.h"

#if MIDGE_FLOATS == 16
MIDGE_TARGET_BEGIN("avx2,fma,avx512f")
#else
MIDGE_TARGET_BEGIN("avx2,fma")
#endif
#include MIDGE_INTRINSICS

#define MIDGE_EACH(i, count) MIDGE_UNROLL for (size_t i = 0; i < (count); ++i)

/* 8 neighbouring codes as numbers. */
MIDGE_INLINE __m256 midge_8_codes(const int8_t *from) {
    const __m128i codes = _mm_loadl_epi64((const __m128i *)(const void *)from);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
}

#if MIDGE_FLOATS == 16

typedef __m512 midge_floats;
typedef __mmask16 midge_mask;

MIDGE_INLINE midge_floats midge_same(float value) {
    return _mm512_set1_ps(value);
}

MIDGE_INLINE midge_floats midge_plus(midge_floats a, midge_floats b) {
    return _mm512_add_ps(a, b);
}

MIDGE_INLINE midge_floats midge_quotient(midge_floats a, midge_floats b) {
    return _mm512_div_ps(a, b);
}

/* a * b + c, rounded once. */
MIDGE_INLINE midge_floats midge_fma(midge_floats a, midge_floats b, midge_floats c) {
    return _mm512_fmadd_ps(a, b, c);
}

/* b where either is NaN, as in midge_smaller. */
MIDGE_INLINE midge_floats midge_larger(midge_floats a, midge_floats b) {
    return _mm512_max_ps(a, b);
}

MIDGE_INLINE midge_floats midge_smaller(midge_floats a, midge_floats b) {
    return _mm512_min_ps(a, b);
}

/* The first `count`, at most all. */
MIDGE_INLINE midge_mask midge_first(size_t count) {
    return (midge_mask)(count < 16 ? (1u << count) - 1u : 0xFFFFu);
}

/* Zeros where the mask has none. Touches no other memory. */
MIDGE_INLINE midge_floats midge_load_some(const midge_real *from, midge_mask mask) {
    return _mm512_maskz_loadu_ps(mask, from);
}

MIDGE_INLINE void midge_store_some(midge_real *to, midge_floats v, midge_mask mask) {
    _mm512_mask_storeu_ps(to, mask, v);
}

/* The first `count`, which is 8 or 16 and a constant where this is inlined. */
MIDGE_INLINE midge_floats midge_load(const midge_real *from, size_t count) {
    return count == 16 ? _mm512_loadu_ps(from)
                       : _mm512_zextps256_ps512(_mm256_loadu_ps((const float *)from));
}

MIDGE_INLINE void midge_store(midge_real *to, midge_floats v, size_t count) {
    if (count == 16)
        _mm512_storeu_ps(to, v);
    else
        _mm256_storeu_ps((float *)to, _mm512_castps512_ps256(v));
}

MIDGE_INLINE midge_floats midge_load_codes(const int8_t *from, size_t count) {
    if (count != 16)
        return _mm512_zextps256_ps512(midge_8_codes(from));
    const __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)from);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
}

#else

typedef __m256 midge_floats;
typedef __m256i midge_mask;

MIDGE_INLINE midge_floats midge_same(float value) {
    return _mm256_set1_ps(value);
}

MIDGE_INLINE midge_floats midge_plus(midge_floats a, midge_floats b) {
    return _mm256_add_ps(a, b);
}

MIDGE_INLINE midge_floats midge_quotient(midge_floats a, midge_floats b) {
    return _mm256_div_ps(a, b);
}

MIDGE_INLINE midge_floats midge_fma(midge_floats a, midge_floats b, midge_floats c) {
    return _mm256_fmadd_ps(a, b, c);
}

MIDGE_INLINE midge_floats midge_larger(midge_floats a, midge_floats b) {
    return _mm256_max_ps(a, b);
}

MIDGE_INLINE midge_floats midge_smaller(midge_floats a, midge_floats b) {
    return _mm256_min_ps(a, b);
}

MIDGE_INLINE midge_mask midge_first(size_t count) {
    const __m256i numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count < 8 ? (int32_t)count : 8), numbers);
}

MIDGE_INLINE midge_floats midge_load_some(const midge_real *from, midge_mask mask) {
    return _mm256_maskload_ps((const float *)from, mask);
}

MIDGE_INLINE void midge_store_some(midge_real *to, midge_floats v, midge_mask mask) {
    _mm256_maskstore_ps((float *)to, mask, v);
}

MIDGE_INLINE midge_floats midge_load(const midge_real *from, size_t count) {
    (void)count;
    return _mm256_loadu_ps((const float *)from);
}

MIDGE_INLINE void midge_store(midge_real *to, midge_floats v, size_t count) {
    (void)count;
    _mm256_storeu_ps((float *)to, v);
}

MIDGE_INLINE midge_floats midge_load_codes(const int8_t *from, size_t count) {
    (void)count;
    return midge_8_codes(from);
}

#endif

#endif
