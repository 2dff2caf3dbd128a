"""What C is written for: the instruction sets of a target and the kernels that they have."""

import platform
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np

from midge.convert.plan import Conv2d, FullyConnected, Plan, PlanOp

PANEL = 16  # output channels that a vector kernel makes side by side
QUAD = 4  # neighbouring weights of a channel
LARGEST_DEPTH = 2**16  # of a sum of products of two codes below 2^8 that fits int32
BLOCK_PIXELS = (6, 24)  # of a convolution that are multiplied at once: one tile, and many
SMALL_BLOCKS = (6, 3, 1)  # tried in this order where RAM counts most and there is a limit
BLOCK_BYTES = 16 * 1024  # of their windows, where there is room: half of a first-level cache


@dataclass(frozen=True, slots=True)
class Target:
    """A family of processors.

    Args:
        name: as --target has it.
        levels: instruction sets, one bit each of what `probe` returns, the best last.
        probe: C function that finds those of the processor, "" where there is one.
        packed: whether weights lie in panels for vector kernels.
        optimize: what counts most where the user says nothing, one of OPTIMIZE.
    """

    name: str
    levels: tuple[str, ...] = ("portable",)
    probe: str = ""
    packed: bool = False
    optimize: str = "size"

    def kernel(self, base: str, level: str) -> str:
        """Return the C function that carries out records of `base` with the means of `level`."""
        for known in reversed(self.levels[1 : self.levels.index(level) + 1]):
            if known in _BETWEEN.get(level, (known,)) and f"{base}_{known}" in _vector_kernels():
                return f"{base}_{known}"
        return base


# A level may not have the instructions of every earlier one.
_BETWEEN = {
    "avxvnni": ("avxvnni", "avx2"),
    "avx512f": ("avx512f", "avx2"),
    "avx512vnni": ("avx512vnni", "avx512f", "avx2"),
}
OPTIMIZE = ("speed", "size")
C99 = Target("c99")
X86_64 = Target(
    "x86-64",
    ("portable", "avx2", "avxvnni", "avx512f", "avx512vnni"),
    "midge_x86_levels",
    packed=True,
    optimize="speed",
)


def host_target() -> Target:
    """Return the target of this machine."""
    return X86_64 if platform.machine().lower() in ("x86_64", "amd64") else C99


def runtime_folder() -> Path:
    """Return the folder of the C runtime, with include/, src/, x86/ and targets/."""
    return Path(str(files("midge.runtime_c")))


def runtime_text(name: str) -> str:
    """Return a source or header of the C runtime."""
    (path,) = runtime_folder().glob(f"*/{name}")
    return path.read_text(encoding="utf-8")


@cache
def _vector_kernels() -> frozenset[str]:
    return frozenset(path.stem for path in (runtime_folder() / "x86").glob("midge_*.c"))


def is_packed(target: Target, params: Conv2d | FullyConnected) -> bool:
    """Tell whether the weights of a layer lie in panels."""
    depth = int(np.prod(params.weight.shape[1:], dtype=np.int64))
    groups = params.groups if isinstance(params, Conv2d) else 1
    return target.packed and groups == 1 and depth < LARGEST_DEPTH


def block_pixels(depth: int, pixels: int, most: int | None) -> int:
    """Return how many pixels of a convolution are multiplied at once.

    Args:
        depth: products per output, a multiple of QUAD.
        pixels: of the output.
        most: where RAM counts more than time; None takes what fits a cache.
    """
    few, many = BLOCK_PIXELS
    fitting = max(few, min(BLOCK_BYTES // (2 * depth) // few * few, many))
    return max(1, min(fitting if most is None else most, pixels))


def padded_depth(params: Conv2d | FullyConnected) -> int:
    """Return the products per output of an ungrouped layer, rounded up to a multiple of QUAD."""
    depth = int(np.prod(params.weight.shape[1:], dtype=np.int64))
    return -(-depth // QUAD) * QUAD


def fit_scratch(plan: Plan, target: Target, block: int | None = None) -> None:
    """Fill the Plan's scratch_bytes.

    Args:
        plan: not yet placed.
        target: of the C.
        block: most pixels that are multiplied at once; None takes what fits a cache.
    """
    plan.scratch_bytes = [scratch_bytes(plan, op, target, block) for op in plan.ops]


def scratch_bytes(plan: Plan, op: PlanOp, target: Target, block: int | None) -> int:
    """Return how many bytes a step needs for itself, the most of all levels."""
    if not target.packed or not isinstance(op.params, Conv2d | FullyConnected):
        return 0
    p = op.params
    pixels = int(np.prod(plan.tensors[op.output].shape, dtype=np.int64)) // p.weight.shape[0]
    vector = isinstance(p, FullyConnected) and pixels == 1
    if vector or not is_packed(target, p):
        return 0
    depth = padded_depth(p)
    return 2 * depth * block_pixels(depth, pixels, block)
