/* midge_x86.c - asks the processor which instruction sets it has. */
#include "midge_x86.h"

#if defined(__x86_64__) || defined(_M_X64)

#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>

static void cpuid(uint32_t leaf, uint32_t subleaf, uint32_t r[4]) {
    __cpuidex((int *)r, (int)leaf, (int)subleaf);
}

static uint32_t enabled_state(void) {
    return (uint32_t)_xgetbv(0);
}
#else
#include <cpuid.h>

static void cpuid(uint32_t leaf, uint32_t subleaf, uint32_t r[4]) {
    __cpuid_count(leaf, subleaf, r[0], r[1], r[2], r[3]);
}

static uint32_t enabled_state(void) {
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}
#endif

enum { EAX, EBX, ECX, EDX };

/* Whether all of these bits are set. */
static int has(uint32_t value, uint32_t bits) {
    return (value & bits) == bits;
}

/* Bits as in the processor manuals, CPUID leaves 1 and 7. */
uint32_t midge_x86_levels(void) {
    uint32_t levels = 1u << MIDGE_X86_PORTABLE, r[4], features[4], more[4] = {0, 0, 0, 0};
    cpuid(0, 0, r);
    const uint32_t last = r[EAX];
    if (last < 7)
        return levels;
    cpuid(1, 0, r);
    /* FMA, OSXSAVE and AVX; the system must save XMM and YMM registers. */
    if (!has(r[ECX], 1u << 12 | 1u << 27 | 1u << 28) || !has(enabled_state(), 0x6u))
        return levels;
    cpuid(7, 0, features);
    if (!has(features[EBX], 1u << 5))
        return levels;
    levels |= 1u << MIDGE_X86_AVX2;
    if (features[EAX] >= 1)
        cpuid(7, 1, more);
    if (has(more[EAX], 1u << 4))
        levels |= 1u << MIDGE_X86_AVXVNNI;
    /* F, DQ, BW, VL and VNNI; the system must save mask and ZMM registers too. */
    if (has(features[EBX], 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31) &&
        has(features[ECX], 1u << 11) && has(enabled_state(), 0xE6u))
        levels |= 1u << MIDGE_X86_AVX512VNNI;
    return levels;
}

#else

uint32_t midge_x86_levels(void) {
    return 1u << MIDGE_X86_PORTABLE;
}

#endif
