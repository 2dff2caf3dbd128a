/* midge_target.h - compiles a file for an instruction set without flags of the compiler. Private.
 *
 *     MIDGE_TARGET_BEGIN("avx2,fma")
 *     #include MIDGE_INTRINSICS
 *     ... functions ...
 *     MIDGE_TARGET_END
 *
 * -DMIDGE_INTRINSICS='"header.h"' takes the intrinsics from a header that emulates them.
 */
#ifndef MIDGE_TARGET_H
#define MIDGE_TARGET_H

#define MIDGE_PRAGMA(text) _Pragma(#text)

#ifdef MIDGE_INTRINSICS
#define MIDGE_TARGET_BEGIN(features)
#define MIDGE_TARGET_END
#else
#define MIDGE_INTRINSICS <immintrin.h>
#if defined(__clang__)
#define MIDGE_TARGET_BEGIN(features)                                                               \
    MIDGE_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define MIDGE_TARGET_END _Pragma("clang attribute pop")
#elif defined(__GNUC__)
#define MIDGE_TARGET_BEGIN(features) MIDGE_PRAGMA(GCC target(features))
#define MIDGE_TARGET_END
#else
#define MIDGE_TARGET_BEGIN(features)
#define MIDGE_TARGET_END
#endif
#endif

#endif
