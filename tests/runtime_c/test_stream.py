"""Networks that run strip by strip, in as little memory as they can, give the executor's bits."""

import shutil
import subprocess

import numpy as np
import pytest

from midge.convert.build import model_sources
from midge.convert.compile import arrange
from midge.convert.emit import emit
from midge.convert.executor import Executor
from midge.convert.plan import (
    Add,
    Conv2d,
    Plan,
    PlanOp,
    PlanTensor,
    Pool2d,
    Requantization,
    Table,
    Transpose,
)
from midge.convert.target import C99, X86_64, host_target
from midge.core.native import compile_program, find_compiler
from midge.quant.scheme import QuantParams

f32 = np.float32
SAMPLES = 3
SEEDS = range(3)
SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
# An arena of memory that nobody has written yet, between bytes that nobody may write.
GUARDED = """
#include <stdio.h>
#include <stdlib.h>
#include "net.h"
#define GUARD 256
int main(int argc, char **argv) {
    const uint32_t level = argc > 1 ? (uint32_t)atoi(argv[1]) : 0;
    static uint8_t sample[NET_INPUT_0_BYTES];
    while (fread(sample, 1, sizeof sample, stdin) == sizeof sample) {
        uint8_t *memory = malloc(NET_ARENA_BYTES + 2 * GUARD + 64);
        uint8_t *arena = memory + GUARD + (64 - (uintptr_t)memory % 64);
        midge_session s;
        int bad = 0;
        memset(arena - GUARD, 0x5A, GUARD);
        memset(arena + NET_ARENA_BYTES, 0x5A, GUARD);
        if (midge_open(&s, &net_model, arena, NET_ARENA_BYTES) != MIDGE_OK)
            bad = 2;
        else if (midge_select(&s, level) != MIDGE_OK)
            bad = 3;
        else {
            memcpy(midge_input(&s, 0), sample, sizeof sample);
            bad = midge_run(&s) == MIDGE_OK ? 0 : 4;
        }
        for (size_t i = 0; i < GUARD; ++i)
            if (arena[(ptrdiff_t)i - GUARD] != 0x5A || arena[NET_ARENA_BYTES + i] != 0x5A)
                bad = 5;
        for (uint32_t i = 0; bad == 0 && i < NET_OUTPUT_COUNT; ++i)
            fwrite(midge_output(&s, i), 1, midge_info(&net_model, NET_INPUT_COUNT + i)->bytes,
                   stdout);
        free(memory);
        if (bad != 0)
            return bad;
    }
    return 0;
}
"""


class Builder:
    """Grows a Plan of int8 tensors [1, H, W, C]."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.tensors, self.ops = [], []
        H, W = (int(n) for n in self.rng.integers(5, 14, 2))
        C = int(self.rng.integers(1, 9))
        if seed % 2:  # channel by channel, as PyTorch's files have it
            self.op(Transpose((0, 2, 3, 1)), (self.tensor(1, C, H, W),), 1, H, W, C)
        else:
            self.tensor(1, H, W, C)

    def tensor(self, *shape):
        index = len(self.tensors)
        params = QuantParams(f32(0.05), int(self.rng.integers(-20, 20)), "int8")
        axes = tuple(range(4))
        self.tensors.append(
            PlanTensor(f"t{index}", shape, "int8", index, params, axes, params, shape)
        )
        return index

    def op(self, params, inputs, *shape, macs=0):
        y = self.tensor(*shape)
        self.ops.append(PlanOp(f"op{len(self.ops)}", params, inputs, y, macs))
        return y

    def requantization(self, channels, depth):
        m = self.rng.uniform(0.5, 1.5, channels).astype(f32) / f32(40 * np.sqrt(depth))
        return Requantization(m, int(self.rng.integers(-40, 40)))

    def conv(self, x, out, kernel=3, stride=1, depthwise=False):
        _, H, W, C = self.tensors[x].shape
        out = C if depthwise else out
        weight = self.rng.integers(-127, 128, (out, kernel, kernel, 1 if depthwise else C))
        p = (kernel - 1) // 2
        pads = (p, p, p, p) if stride == 1 or kernel == 1 else (0, p, 2 * p, p)
        shape = [(n + pads[i] + pads[i + 2] - kernel) // stride + 1 for i, n in enumerate((H, W))]
        params = Conv2d(
            weight.astype(np.int8),
            self.rng.integers(-3000, 3000, out).astype(np.int32),
            (stride, stride),
            pads,
            (1, 1),
            C if depthwise else 1,
            int(self.rng.integers(-128, 128)),
            self.requantization(out, weight[0].size),
        )
        return self.op(params, (x,), 1, *shape, out)

    def add(self, a, b):
        params = [QuantParams(f32(s), int(z)) for s, z in ((0.05, 120), (0.03, 131), (0.06, 128))]
        return self.op(Add(*params), (a, b), *self.tensors[a].shape)

    def pool(self, x):
        _, H, W, C = self.tensors[x].shape
        kind = str(self.rng.choice(["max", "average"]))
        r = Requantization(f32([0.2]), 3) if kind == "average" else None
        params = Pool2d(kind, (2, 2), (2, 2), (0, 0, 0, 0), -5, False, f32(0.1), f32(0.1), r)
        return self.op(params, (x,), 1, H // 2, W // 2, C)

    def table(self, x):
        table = self.rng.integers(-128, 128, 256).astype(np.int8)
        return self.op(Table(table), (x,), *self.tensors[x].shape)

    def block(self, x):
        """Append a few steps, with or without a shortcut."""
        channels = self.tensors[x].shape[3]
        match int(self.rng.integers(6)):
            case 0:
                return self.conv(x, int(self.rng.integers(1, 24)), 3, int(self.rng.integers(1, 3)))
            case 1:
                return self.conv(x, 0, 3, int(self.rng.integers(1, 3)), depthwise=True)
            case 2:  # an inverted residual
                y = self.conv(self.conv(x, 3 * channels, 1), 0, 3, depthwise=True)
                return self.add(x, self.conv(y, channels, 1))
            case 3:  # a residual block whose shortcut has a convolution
                y = self.conv(self.conv(x, channels + 2), channels + 3)
                return self.add(y, self.conv(x, channels + 3, 1))
            case 4:
                return self.table(self.conv(x, channels, 5))
            case _:
                return self.pool(x) if min(self.tensors[x].shape[1:3]) > 3 else self.table(x)

    def plan(self, blocks=4):
        x = len(self.ops)
        for _ in range(blocks):
            x = self.block(x)
        sizes = [t.bytes for t in self.tensors]
        return Plan("net", self.tensors, self.ops, (0,), (x,), sizes)


@pytest.fixture(scope="module", params=SEEDS)
def seed(request):
    """A random network."""
    return request.param


def written(seed, folder, target, optimize):
    """Emit a random network; return the folder, the plan, raw samples and expected outputs."""
    plan = Builder(seed).plan()
    arrange(plan, target, optimize=optimize)
    x = np.random.default_rng(seed).integers(-128, 128, (SAMPLES, *plan.tensors[0].shape))
    x = x.astype(np.int8)
    emit(plan, folder, "net", target=target)
    return plan, x.tobytes(), Executor(plan).run_batch([x])[0].tobytes()


def run(folder, samples, flags, compiler=None, level=0):
    main = folder / "host" / "guarded.c"
    main.write_text(GUARDED)
    sources = [*model_sources(folder, "net"), main]
    program = compile_program(sources, flags=flags, include=[folder], compiler=compiler)
    return subprocess.run([program, str(level)], input=samples, capture_output=True, check=False)


def test_random_networks_do_run_strip_by_strip():
    plans = [Builder(seed).plan() for seed in SEEDS]
    for plan in plans:
        arrange(plan, C99, optimize="size")
    assert max(len(s.strips) for plan in plans for s in plan.streams) >= 3
    assert any(plan.rings for plan in plans)


def test_portable_c_gives_the_executors_bits(seed, tmp_path):
    _, samples, want = written(seed, tmp_path, C99, "size")
    done = run(tmp_path, samples, SANITIZERS)
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", want)


@pytest.mark.parametrize("optimize", ["speed", "size"])
@pytest.mark.skipif(host_target() != X86_64, reason="this machine is no x86-64")
def test_every_instruction_set_gives_the_executors_bits(seed, tmp_path, optimize):
    _, samples, want = written(seed, tmp_path, X86_64, optimize)
    for level in range(len(X86_64.levels)):
        done = run(tmp_path, samples, SANITIZERS, level=level)
        assert level == 0 or done.returncode in (0, 3), done.stderr  # 3: not on this processor
        assert done.returncode == 3 or done.stdout == want, X86_64.levels[level]


def test_no_step_reads_memory_that_none_has_written(seed, tmp_path):
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")
    _, samples, want = written(seed, tmp_path, C99, "size")
    flags = ("-O1", "-g", "-fsanitize=memory", "-fno-sanitize-recover=all")
    done = run(tmp_path, samples, flags, find_compiler("clang"))
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", want)
