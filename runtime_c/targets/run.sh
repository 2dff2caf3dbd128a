#!/bin/sh
# run.sh - compiles a program for an emulated board and runs it.
#
#   run.sh BOARD OUT.elf SOURCE... [FLAG...]     FLAG: -I -D -O ...; -O2 unless given
#
# Boards: cortex-m4, cortex-m55, rv32imc. The program's output comes on stdout; the exit status is
# that of its main(), or 125 after a fault. Needs arm-none-eabi-gcc and qemu-system-arm, or
# riscv64-unknown-elf-gcc and qemu-system-riscv32; 127 where they are missing.
set -e
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 3 ] || { sed -n 2,9p "$0"; exit 2; }
board=$1 out=$2
shift 2

arm="-mthumb -mfloat-abi=hard -T $here/cortex_m.ld"
case $board in
cortex-m4)
    cc=arm-none-eabi-gcc qemu=qemu-system-arm machine="-M mps2-an386"
    flags="-mcpu=cortex-m4 -mfpu=fpv4-sp-d16 $arm -Wl,--defsym=ROM_BYTES=4M"
    start=$here/start_cortex_m.c ;;
cortex-m55)
    cc=arm-none-eabi-gcc qemu=qemu-system-arm machine="-M mps3-an547"
    flags="-mcpu=cortex-m55 $arm -Wl,--defsym=RAM_START=0x21000000"
    start=$here/start_cortex_m.c ;;
rv32imc)
    cc=riscv64-unknown-elf-gcc qemu=qemu-system-riscv32 machine="-M virt -cpu rv32 -bios none"
    flags="-march=rv32imc -mabi=ilp32 -mcmodel=medany --specs=picolibc.specs -T $here/riscv_virt.ld"
    start=$here/start_riscv.S ;;
*)
    echo "unknown board '$board'; known: cortex-m4 cortex-m55 rv32imc" >&2
    exit 2 ;;
esac

for tool in $cc $qemu; do
    command -v "$tool" >/dev/null || { echo "$tool is not installed" >&2; exit 127; }
done

# shellcheck disable=SC2086 # the variables hold several words
$cc -O2 $flags -nostartfiles -ffunction-sections -fdata-sections -fno-builtin-printf -I"$here" \
    "$start" "$here/semihosting.c" "$@" -Wl,--gc-sections -Wl,--no-warn-rwx-segments -o "$out" -lgcc

# shellcheck disable=SC2086
exec $qemu $machine -display none -monitor none -serial none -chardev stdio,id=console \
    -semihosting-config enable=on,target=native,chardev=console -kernel "$out" </dev/null
