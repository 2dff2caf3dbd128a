/* start_cortex_m.c - vector table and reset for Cortex-M3 to M85. */
#include <stdint.h>

#include "semihosting.h"

extern uint32_t stack_top[], data_image[], data_start[], data_end[], bss_start[], bss_end[];
int main(void);
void reset(void);

static void fault(void) {
    semihosting_write("fault\n");
    semihosting_exit(125);
}

__attribute__((noinline, noreturn)) static void run(void) {
    const uint32_t *from = data_image;
    for (uint32_t *to = data_start; to < data_end; ++to)
        *to = *from++;
    for (uint32_t *to = bss_start; to < bss_end; ++to)
        *to = 0;
    semihosting_exit(main());
}

__attribute__((noreturn)) void reset(void) {
    volatile uint32_t *const cpacr = (volatile uint32_t *)0xE000ED88u;
    volatile uint32_t *const ccr = (volatile uint32_t *)0xE000ED14u;
    *cpacr |= 0xFu << 20; /* FPU and MVE on, before the compiler may use them */
    *ccr |= 3u << 18;     /* branch prediction and low-overhead loops (Armv8.1-M) */
    __asm__ volatile("dsb\n\tisb" ::: "memory");
    run();
}

typedef void (*handler)(void);

__attribute__((section(".vectors"), used)) static const handler vectors[16] = {
    (handler)(uintptr_t)stack_top, reset, fault, fault, fault, fault, fault, fault,
};
