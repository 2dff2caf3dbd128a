from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from midge.core.backend import Array
from midge.core.errors import InputError
from midge.core.kernels import im2col
from midge.core.kernels.conv import conv2d, conv2d_grad_input, conv2d_grad_weight
from midge.core.kernels.window import Window

# Sums of at most 200 products of numbers near 1 in float32.
FLOAT32 = 2e-5
FLOAT64 = 1e-12


@dataclass(frozen=True)
class Case:
    shape: tuple[int, int, int, int]  # N, H, W, C
    outputs: int
    groups: int
    window: Window

    @property
    def out(self) -> tuple[int, int]:
        return self.window.output_size(*self.shape[1:3], "case")


CASES = {
    "3x3": Case((2, 6, 5, 3), 4, 1, Window((3, 3), padding=(1, 1, 1, 1))),
    "pointwise": Case((2, 4, 3, 5), 7, 1, Window((1, 1))),
    "pointwise stride 2": Case((2, 5, 6, 4), 3, 1, Window((1, 1), (2, 2))),
    "asymmetric": Case((1, 7, 6, 2), 3, 1, Window((3, 2), (2, 1), (0, 1, 1, 2))),
    "dilated": Case((2, 9, 8, 3), 2, 1, Window((3, 3), (1, 2), (2, 1, 2, 1), (2, 3))),
    "groups": Case((2, 5, 5, 6), 4, 2, Window((3, 3), (1, 1), (1, 1, 1, 1))),
    "pointwise groups": Case((2, 3, 3, 6), 9, 3, Window((1, 1))),
    "multiplier": Case((2, 5, 4, 3), 6, 3, Window((3, 3), padding=(1, 0, 0, 1))),
    "depthwise": Case((2, 6, 5, 61), 61, 61, Window((3, 3), padding=(1, 1, 1, 1))),
    "depthwise stride 2": Case((2, 7, 8, 9), 9, 9, Window((3, 3), (2, 2), (0, 0, 1, 1))),
    "depthwise dilated": Case((1, 9, 9, 5), 5, 5, Window((3, 2), (2, 1), (2, 1, 2, 1), (2, 3))),
    "kernel covers all": Case((3, 4, 4, 2), 3, 1, Window((4, 4))),
    "padding beyond kernel": Case((1, 3, 3, 2), 2, 1, Window((2, 2), (1, 1), (3, 3, 3, 3))),
    "tall": Case((2, 12, 3, 1), 5, 1, Window((10, 4), (2, 2), (4, 1, 5, 2))),
}


def taps(case: Case) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Yield oy, ox, ky, kx, iy, ix of every tap that lies inside the input."""
    (kh, kw), (sy, sx) = case.window.kernel, case.window.stride
    (dy, dx), (top, left) = case.window.dilation, case.window.padding[:2]
    for oy, ox, ky, kx in np.ndindex(*case.out, kh, kw):
        iy, ix = oy * sy + ky * dy - top, ox * sx + kx * dx - left
        if 0 <= iy < case.shape[1] and 0 <= ix < case.shape[2]:
            yield oy, ox, ky, kx, iy, ix


def reference_conv(case: Case, x: Array, w: Array, gy: Array) -> tuple[Array, Array, Array]:
    """Return y, gx and gw from the definition, in float64."""
    x, w, gy = (a.astype(np.float64) for a in (x, w, gy))
    y, gx, gw = np.zeros_like(gy), np.zeros_like(x), np.zeros_like(w)
    inputs, outputs = x.shape[3] // case.groups, case.outputs // case.groups
    for oy, ox, ky, kx, iy, ix in taps(case):
        for group in range(case.groups):
            c = slice(group * inputs, (group + 1) * inputs)
            o = slice(group * outputs, (group + 1) * outputs)
            y[:, oy, ox, o] += x[:, iy, ix, c] @ w[o, ky, kx].T
            gx[:, iy, ix, c] += gy[:, oy, ox, o] @ w[o, ky, kx]
            gw[o, ky, kx] += gy[:, oy, ox, o].T @ x[:, iy, ix, c]
    return y, gx, gw


def draw(case: Case, rng: np.random.Generator, dtype: type) -> tuple[np.ndarray, ...]:
    x = rng.standard_normal(case.shape).astype(dtype)
    inside = case.shape[3] // case.groups
    w = rng.standard_normal((case.outputs, *case.window.kernel, inside)).astype(dtype)
    gy = rng.standard_normal((case.shape[0], *case.out, case.outputs)).astype(dtype)
    return x, w, gy


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_conv_and_its_gradients_follow_the_definition(
    name: str, dtype: type, backend: str, rng: np.random.Generator
) -> None:
    case = CASES[name]
    x, w, gy = draw(case, rng, dtype)
    y, gx, gw = reference_conv(case, x, w, gy)
    atol = FLOAT32 if dtype is np.float32 else FLOAT64
    np.testing.assert_allclose(conv2d(x, w, None, case.out, case.window, case.groups), y, 0, atol)
    found = conv2d_grad_input(gy, w, x.shape, case.window, case.groups)
    np.testing.assert_allclose(found, gx, 0, atol)
    found = conv2d_grad_weight(x, gy, case.window, case.groups)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, gw, 0, atol)


@pytest.mark.parametrize("name", ["3x3", "depthwise", "groups", "pointwise"])
def test_bias_is_added_to_every_pixel(name: str, backend: str, rng: np.random.Generator) -> None:
    case = CASES[name]
    x, w, _ = draw(case, rng, np.float32)
    bias = rng.standard_normal(case.outputs).astype(np.float32)
    plain = conv2d(x, w, None, case.out, case.window, case.groups)
    found = conv2d(x, w, bias, case.out, case.window, case.groups)
    np.testing.assert_array_equal(found, plain + bias)


@pytest.mark.parametrize("name", ["3x3", "asymmetric", "dilated", "groups", "tall"])
def test_chunks_of_one_row_give_the_same(
    name: str, backend: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    x, w, gy = draw(case, rng, np.float32)
    y, gx, gw = reference_conv(case, x, w, gy)
    monkeypatch.setattr(im2col, "CHUNK_BYTES", 1)
    monkeypatch.setattr(im2col, "TWIN_CHUNK_BYTES", 1)
    window, groups = case.window, case.groups
    np.testing.assert_allclose(conv2d(x, w, None, case.out, window, groups), y, 0, FLOAT32)
    np.testing.assert_allclose(conv2d_grad_input(gy, w, x.shape, window, groups), gx, 0, FLOAT32)
    np.testing.assert_allclose(conv2d_grad_weight(x, gy, window, groups), gw, 0, FLOAT32)


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("depthwise")])
def test_the_c_of_depthwise_has_the_bits_of_its_twin(
    name: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both add the taps in one order and no product is fused, so this is exact on every machine.
    from midge.core.kernels import library

    if library.load() is None:
        pytest.skip("no C compiler")
    case = CASES[name]
    x, w, _ = draw(case, rng, np.float32)
    fast = conv2d(x, w, None, case.out, case.window, case.groups)
    monkeypatch.setattr(library, "load", lambda: None)
    twin = conv2d(x, w, None, case.out, case.window, case.groups)
    np.testing.assert_array_equal(fast, twin)


def test_the_same_call_gives_the_same_bits(backend: str, rng: np.random.Generator) -> None:
    case = Case((4, 16, 16, 8), 8, 1, Window((3, 3), padding=(1, 1, 1, 1)))
    x, _, gy = draw(case, rng, np.float32)
    first = conv2d_grad_weight(x, gy, case.window, 1)
    for _ in range(3):
        np.testing.assert_array_equal(conv2d_grad_weight(x, gy, case.window, 1), first)


def test_an_empty_batch_gives_empty_and_zero_results(backend: str) -> None:
    x = np.zeros((0, 5, 5, 2), np.float32)
    w = np.ones((3, 3, 3, 2), np.float32)
    window = Window((3, 3))
    y = conv2d(x, w, None, (3, 3), window, 1)
    assert y.shape == (0, 3, 3, 3)
    assert not conv2d_grad_weight(x, y, window, 1).any()


def test_a_window_larger_than_its_input_is_refused() -> None:
    with pytest.raises(InputError, match="larger than the 3x3 input"):
        Window((5, 5)).output_size(3, 3, "conv2d")
    with pytest.raises(InputError, match="must be >= 1"):
        Window((3, 3), (0, 1)).output_size(3, 3, "conv2d")
