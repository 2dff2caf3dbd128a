"""Random numbers: one counter-based generator, drawn on the host, so every device gets the same.

Philox numbers depend on the seed and the position in the stream only. Masks and initial weights are
drawn by NumPy and moved, which costs a copy on a GPU and keeps runs equal everywhere.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from midge.core.autograd.modes import STATE
from midge.core.backend import Array
from midge.core.errors import InputError

GeneratorState = dict[str, Any]


class Generator:
    """A stream of random numbers.

    Args:
        seed: start of the stream, >= 0.
    """

    def __init__(self, seed: int = 0) -> None:
        """Start at `seed`."""
        self.manual_seed(seed)

    def manual_seed(self, seed: int) -> "Generator":
        """Start the stream again at `seed`."""
        if seed < 0:
            raise InputError(f"seed {seed} must not be negative.")
        self._numpy = np.random.Generator(np.random.Philox(seed))
        return self

    def get_state(self) -> GeneratorState:
        """Return the position in the stream."""
        state: GeneratorState = dict(self._numpy.bit_generator.state)
        return state

    def set_state(self, state: GeneratorState) -> None:
        """Go back to a position that `get_state` returned."""
        self._numpy.bit_generator.state = state

    def numpy(self) -> np.random.Generator:
        """Return the NumPy generator that draws.

        Raises:
            InputError: a trace is being recorded; the numbers would be frozen into the graph.
        """
        if STATE.tracer is not None:
            raise InputError(
                "random numbers drawn while tracing would become constants; call eval() first."
            )
        return self._numpy

    def uniform(self, shape: Sequence[int], dtype: Any = np.float32) -> Array:
        """Return numbers from [0, 1) as a NumPy array."""
        return self._draw(self.numpy().random, shape, dtype)

    def normal(self, shape: Sequence[int], dtype: Any = np.float32) -> Array:
        """Return standard normal numbers as a NumPy array."""
        return self._draw(self.numpy().standard_normal, shape, dtype)

    def integers(self, low: int, high: int, shape: Sequence[int]) -> Array:
        """Return int64 numbers from low..high-1 as a NumPy array."""
        return self.numpy().integers(low, high, tuple(shape), dtype=np.int64)

    def permutation(self, n: int) -> Array:
        """Return 0..n-1 in random order as an int64 NumPy array."""
        return self.numpy().permutation(n)

    @staticmethod
    def _draw(draw: Any, shape: Sequence[int], dtype: Any) -> Array:
        # NumPy draws float32 and float64; other floats are rounded from float32.
        wide = dtype if np.dtype(dtype).itemsize >= 4 else np.float32
        return np.asarray(draw(tuple(shape), dtype=wide)).astype(dtype, copy=False)


default_generator = Generator(0)


def manual_seed(seed: int) -> Generator:
    """Seed the default generator, which every random function uses unless told otherwise."""
    return default_generator.manual_seed(seed)


def get_rng_state() -> GeneratorState:
    """Return the position of the default generator."""
    return default_generator.get_state()


def set_rng_state(state: GeneratorState) -> None:
    """Go back to a position of the default generator."""
    default_generator.set_state(state)
