/* midge_fully_connected_c4n16_s8_avx2.c - one vector times a matrix, 16 channels at once.
 */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_avx2.h"

/* acc[c] += sum(size * w) of four neighbours of 8 channels. */
static inline __m256i dot(__m256i acc, __m256i size, __m256i w) {
    const __m256i pairs = _mm256_maddubs_epi16(size, w);
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

#include "midge_fully_connected_signs.h"

void midge_fully_connected_c4n16_s8_avx2(const midge_strip *strip, const midge_op *op) {
    midge_fully_connected_signs(strip, op);
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
