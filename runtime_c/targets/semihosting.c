/* semihosting.c - Arm and RISC-V semihosting, and the few C library functions that a golden test
 * needs. Source: "Semihosting for AArch32 and AArch64", Arm; RISC-V Semihosting 1.0. */
#include "semihosting.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { SYS_WRITE0 = 0x04, SYS_EXIT_EXTENDED = 0x20, APPLICATION_EXIT = 0x20026 };

#if defined(__riscv)
uintptr_t semihosting_call(uintptr_t operation, const void *argument); /* start_riscv.S */
#else
static uintptr_t semihosting_call(uintptr_t operation, const void *argument) {
    register uintptr_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt #0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}
#endif

void semihosting_write(const char *text) {
    semihosting_call(SYS_WRITE0, text);
}

void semihosting_exit(int status) {
    const uintptr_t arguments[2] = {APPLICATION_EXIT, (uintptr_t)status};
    semihosting_call(SYS_EXIT_EXTENDED, arguments);
    for (;;) {
    }
}

int puts(const char *text) {
    semihosting_write(text);
    semihosting_write("\n");
    return 0;
}

/* The volatile accesses keep the compiler from turning these loops into calls of themselves. */

void *memcpy(void *to, const void *from, size_t count) {
    volatile uint8_t *y = to;
    for (size_t i = 0; i < count; ++i)
        y[i] = ((const uint8_t *)from)[i];
    return to;
}

void *memset(void *to, int value, size_t count) {
    volatile uint8_t *y = to;
    for (size_t i = 0; i < count; ++i)
        y[i] = (uint8_t)value;
    return to;
}

int memcmp(const void *a, const void *b, size_t count) {
    const volatile uint8_t *x = a, *y = b;
    for (size_t i = 0; i < count; ++i)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}
