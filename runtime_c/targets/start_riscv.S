/* start_riscv.S - reset, traps and the semihosting call for QEMU's RISC-V "virt" machine. */
    .option arch, +zicsr
    .section .reset, "ax"
    .globl reset
reset:
    .option push
    .option norelax
    la gp, global_pointer
    .option pop
    la sp, stack_top
    la t0, trap
    csrw mtvec, t0
    la t0, bss_start
    la t1, bss_end
1:  bgeu t0, t1, 2f
    sw zero, 0(t0)
    addi t0, t0, 4
    j 1b
2:  call main
    call semihosting_exit

    .balign 4
trap:
    la a0, message
    call semihosting_write
    li a0, 125
    call semihosting_exit

    .text
    .globl semihosting_call     /* the three words must be uncompressed and in one page */
    .balign 16
semihosting_call:
    .option push
    .option norvc
    slli zero, zero, 0x1f
    ebreak
    srai zero, zero, 7
    .option pop
    ret

    .section .rodata
message:
    .asciz "trap\n"
