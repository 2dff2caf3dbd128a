/* emulated_avx512.h - the intrinsics of AVX512F, AVX512-VNNI and AVX-VNNI on a processor with AVX2,
 * by SIMDe.
 *
 * -DMIDGE_INTRINSICS='"emulated_avx512.h"' -mavx2 -mfma compiles the kernels with it. Those that
 * SIMDe 0.7.4 lacks, or rounds twice, are made of halves or elements.
 */
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <string.h>
#include <simde/x86/avx512.h>
#include <simde/x86/fma.h>

#define _mm256_dpbusd_avx_epi32 simde_mm256_dpbusd_epi32
#define _mm256_dpwssd_avx_epi32 simde_mm256_dpwssd_epi32

static inline __m512 emulated_cvtepi32_ps(__m512i v) {
    __m256i half[2];
    __m256 made[2];
    __m512 all;
    memcpy(half, &v, sizeof v);
    made[0] = _mm256_cvtepi32_ps(half[0]);
    made[1] = _mm256_cvtepi32_ps(half[1]);
    memcpy(&all, made, sizeof all);
    return all;
}
#define _mm512_cvtepi32_ps emulated_cvtepi32_ps

static inline __m512i emulated_cvtps_epi32(__m512 v) {
    __m256 half[2];
    __m256i made[2];
    __m512i all;
    memcpy(half, &v, sizeof v);
    made[0] = _mm256_cvtps_epi32(half[0]);
    made[1] = _mm256_cvtps_epi32(half[1]);
    memcpy(&all, made, sizeof all);
    return all;
}
#define _mm512_cvtps_epi32 emulated_cvtps_epi32

/* The lowest byte of each. */
static inline __m128i emulated_cvtepi32_epi8(__m512i v) {
    uint32_t words[16];
    uint8_t bytes[16];
    __m128i all;
    memcpy(words, &v, sizeof v);
    for (int i = 0; i < 16; ++i)
        bytes[i] = (uint8_t)words[i];
    memcpy(&all, bytes, sizeof all);
    return all;
}
#define _mm512_cvtepi32_epi8 emulated_cvtepi32_epi8

/* Each byte, with zeros above it. */
static inline __m512i emulated_cvtepu8_epi32(__m128i v) {
    uint8_t bytes[16];
    uint32_t words[16];
    __m512i all;
    memcpy(bytes, &v, sizeof v);
    for (int i = 0; i < 16; ++i)
        words[i] = bytes[i];
    memcpy(&all, words, sizeof all);
    return all;
}
#define _mm512_cvtepu8_epi32 emulated_cvtepu8_epi32

/* Each byte, with its sign above it. */
static inline __m512i emulated_cvtepi8_epi32(__m128i v) {
    int8_t bytes[16];
    int32_t words[16];
    __m512i all;
    memcpy(bytes, &v, sizeof v);
    for (int i = 0; i < 16; ++i)
        words[i] = bytes[i];
    memcpy(&all, words, sizeof all);
    return all;
}
#define _mm512_cvtepi8_epi32 emulated_cvtepi8_epi32

/* Rounded once; SIMDe multiplies, then adds. */
static inline __m512 emulated_fmadd_ps(__m512 a, __m512 b, __m512 c) {
    __m256 x[2], y[2], z[2];
    __m512 all;
    memcpy(x, &a, sizeof a);
    memcpy(y, &b, sizeof b);
    memcpy(z, &c, sizeof c);
    for (int i = 0; i < 2; ++i)
        z[i] = _mm256_fmadd_ps(x[i], y[i], z[i]);
    memcpy(&all, z, sizeof all);
    return all;
}
#undef _mm512_fmadd_ps
#define _mm512_fmadd_ps emulated_fmadd_ps

/* Zeros above. */
static inline __m512 emulated_zextps256_ps512(__m256 v) {
    const __m256 half[2] = {v, _mm256_setzero_ps()};
    __m512 all;
    memcpy(&all, half, sizeof all);
    return all;
}
#define _mm512_zextps256_ps512 emulated_zextps256_ps512

/* Touches no element but those of the mask; the others become 0. */
static inline __m512 emulated_maskz_loadu_ps(__mmask16 mask, const void *from) {
    float elements[16] = {0};
    __m512 all;
    for (int i = 0; i < 16; ++i)
        if (mask >> i & 1)
            memcpy(elements + i, (const char *)from + 4 * i, 4);
    memcpy(&all, elements, sizeof all);
    return all;
}
#define _mm512_maskz_loadu_ps emulated_maskz_loadu_ps

/* Touches no element but those of the mask. */
static inline void emulated_mask_storeu_ps(void *to, __mmask16 mask, __m512 v) {
    float elements[16];
    memcpy(elements, &v, sizeof v);
    for (int i = 0; i < 16; ++i)
        if (mask >> i & 1)
            memcpy((char *)to + 4 * i, elements + i, 4);
}
#define _mm512_mask_storeu_ps emulated_mask_storeu_ps
