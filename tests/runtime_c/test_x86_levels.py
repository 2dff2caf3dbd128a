"""What the processor is asked, against what the kernel says of it."""

import platform

import pytest

from midge.core.native import cpu_features

X86 = platform.machine().lower() in ("x86_64", "amd64")
ORDER = ("avx2", "avxvnni", "avx512f", "avx512vnni")


def test_the_portable_level_is_always_there(kernel_calls):
    assert kernel_calls.value("midge_x86_levels", file="midge_x86") & 1


@pytest.mark.skipif(not (X86 and cpu_features()), reason="no x86-64 with /proc/cpuinfo")
def test_the_levels_are_those_that_the_system_reports(kernel_calls, kernel_call):
    has = [kernel_call.LEVELS[name] <= cpu_features() for name in ORDER]
    want = 1 | sum(bit << 1 + i for i, bit in enumerate(has))
    assert kernel_calls.value("midge_x86_levels", file="midge_x86") == want


def test_another_machine_has_the_portable_level_only(kernel_call, kernel_calls):
    flags = (*kernel_call.FLAGS, "-DMIDGE_X86=0")
    calls = kernel_call.KernelCall(kernel_calls.runtime, flags)
    assert calls.value("midge_x86_levels", file="midge_x86") == 1
