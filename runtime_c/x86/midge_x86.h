/* midge_x86.h - the instruction sets of x86-64 that kernels exist for. */
#ifndef MIDGE_X86_H
#define MIDGE_X86_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bits of midge_x86_levels, and levels of midge_select. */
enum {
    MIDGE_X86_PORTABLE = 0,  /* C99 as the compiler was told to build it */
    MIDGE_X86_AVX2 = 1,      /* AVX2 and FMA */
    MIDGE_X86_AVXVNNI = 2,   /* and AVX-VNNI */
    MIDGE_X86_AVX512VNNI = 3 /* AVX2, FMA, AVX-512 F, BW, DQ and VL, AVX512-VNNI */
};

/* Returns one bit for each level that the processor and the operating system support; the first is
 * always set. Constant time, no state. */
uint32_t midge_x86_levels(void);

#ifdef __cplusplus
}
#endif

#endif
