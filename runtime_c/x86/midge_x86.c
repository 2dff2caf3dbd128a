/* midge_x86.c - asks the processor for its instruction sets. */
#include "midge_x86.h"

#if MIDGE_X86

#ifdef _MSC_VER
#include <intrin.h>
#else
#include <cpuid.h>
#endif

/* What cpuid returns. */
typedef struct registers {
    uint32_t a, b, c, d;
} registers;

/* All zero where the processor does not know the leaf. */
static registers cpuid(uint32_t leaf, uint32_t subleaf) {
    registers r = {0, 0, 0, 0};
#ifdef _MSC_VER
    int found[4];
    __cpuid(found, 0);
    if ((uint32_t)found[0] < leaf)
        return r;
    __cpuidex(found, (int)leaf, (int)subleaf);
    r.a = (uint32_t)found[0];
    r.b = (uint32_t)found[1];
    r.c = (uint32_t)found[2];
    r.d = (uint32_t)found[3];
#else
    if (!__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d))
        r.a = r.b = r.c = r.d = 0;
#endif
    return r;
}

/* Which registers the operating system saves. Only where cpuid has OSXSAVE. */
static uint32_t saved_registers(void) {
#ifdef _MSC_VER
    return (uint32_t)_xgetbv(0);
#else
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
#endif
}

static int has_all(uint32_t word, uint32_t bits) {
    return (word & bits) == bits;
}

uint32_t midge_x86_levels(void) {
    const uint32_t fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28;
    const uint32_t avx2 = 1u << 5, avx512f = 1u << 16;
    const uint32_t avx512 = avx512f | 1u << 17 | 1u << 30 | 1u << 31;
    const uint32_t ymm = 6u, zmm = 0xE6u;
    uint32_t levels = 1u << MIDGE_X86_PORTABLE;
    if (!has_all(cpuid(1, 0).c, fma | osxsave | avx))
        return levels;
    const uint32_t saved = saved_registers();
    const registers features = cpuid(7, 0);
    if (!has_all(saved, ymm) || !has_all(features.b, avx2))
        return levels;
    levels |= 1u << MIDGE_X86_AVX2;
    /* The largest subleaf of leaf 7 stands in a. */
    if (features.a >= 1 && has_all(cpuid(7, 1).a, 1u << 4))
        levels |= 1u << MIDGE_X86_AVXVNNI;
    if (!has_all(saved, zmm) || !has_all(features.b, avx512f))
        return levels;
    levels |= 1u << MIDGE_X86_AVX512F;
    if (has_all(features.b, avx512) && has_all(features.c, 1u << 11))
        levels |= 1u << MIDGE_X86_AVX512VNNI;
    return levels;
}

#else

uint32_t midge_x86_levels(void) {
    return 1u << MIDGE_X86_PORTABLE;
}

#endif
