"""Patches of an NHWC array as rows of a matrix (im2col) and their sum back into it (col2im)."""

from collections.abc import Iterator
from typing import Any

from midge.core.backend import Array, xp_of
from midge.core.kernels.library import address, library_for
from midge.core.kernels.window import Pair, Window, c_window, crop, pad

# Bytes of patches made at a time: they stay in the second-level cache between the copy and the
# matrix product, and the whole matrix (kh * kw times the input) never exists.
CHUNK_BYTES = 1 << 20
# Without the C kernels each chunk costs several calls, so chunks are larger.
TWIN_CHUNK_BYTES = 1 << 23


class Patches:
    """The patches of one convolution, made a chunk of output rows at a time.

    Args:
        like: array whose dtype and device the patches have.
        shape: shape of the input [N, H, W, C].
        channels: the input channels [first, last) that take part (one group).
        out: height and width of the output.
        window: geometry.
    """

    def __init__(
        self, like: Array, shape: tuple[int, ...], channels: Pair, out: Pair, window: Window
    ) -> None:
        """Choose the size of a chunk and make room for one."""
        self.shape = shape
        self.channels = channels
        self.out = out
        self.window = window
        self.width = channels[1] - channels[0]
        self.columns = window.kernel[0] * window.kernel[1] * self.width
        self.library: Any = library_for(like)
        self.rows = shape[0] * out[0]
        row_bytes = out[1] * self.columns * like.dtype.itemsize
        if self.library is not None:
            self.step = max(1, CHUNK_BYTES // max(row_bytes, 1))
            self.record = c_window(shape, self.width, out, window)
        else:  # the twin works on whole images
            images = TWIN_CHUNK_BYTES // max(row_bytes * out[0], 1)
            self.step = max(1, images) * out[0]
        count = min(self.step, self.rows)
        self.buffer = xp_of(like).empty((count * out[1], self.columns), like.dtype)

    def chunks(self) -> Iterator[tuple[int, int, Array]]:
        """Yield (first, last, buffer): pixels of the output and room for their patches."""
        width = self.out[1]
        for row in range(0, self.rows, self.step):
            last = min(row + self.step, self.rows)
            yield row * width, last * width, self.buffer[: (last - row) * width]

    def gather(self, x: Array, first: int, last: int, col: Array) -> None:
        """Write the patches of output pixels [first, last) into col [pixels, kh * kw * C]."""
        r0, r1 = first // self.out[1], last // self.out[1]
        if self.library is not None:
            start = address(x) + 4 * self.channels[0]
            self.library.midge_im2col_f32(start, self.shape[3], address(col), self.record, r0, r1)
            return
        images = pad(x[r0 // self.out[0] : r1 // self.out[0]], self.window)
        taps = self._taps(col)
        for ky in range(self.window.kernel[0]):
            for kx in range(self.window.kernel[1]):
                rows, columns = self.window.tap(ky, kx, self.out)
                taps[:, :, :, ky, kx] = images[:, rows, columns, slice(*self.channels)]

    def scatter(self, col: Array, x: Array, first: int, last: int) -> None:
        """Add the patches in `col` to x [N, H, W, C], where `gather` took them."""
        r0, r1 = first // self.out[1], last // self.out[1]
        if self.library is not None:
            start = address(x) + 4 * self.channels[0]
            self.library.midge_col2im_f32(address(col), start, self.shape[3], self.record, r0, r1)
            return
        images = x[r0 // self.out[0] : r1 // self.out[0], :, :, slice(*self.channels)]
        padded = pad(xp_of(x).zeros_like(images), self.window)
        taps = self._taps(col)
        for ky in range(self.window.kernel[0]):
            for kx in range(self.window.kernel[1]):
                rows, columns = self.window.tap(ky, kx, self.out)
                padded[:, rows, columns] += taps[:, :, :, ky, kx]
        images += crop(padded, images.shape, self.window)

    def _taps(self, col: Array) -> Array:
        """Return the patches as [images, oh, ow, kh, kw, channels]."""
        return col.reshape(-1, *self.out, *self.window.kernel, self.width)
