"""Storage orders: every claim of a Layout is checked by moving numbered elements."""

from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from midge.convert import layout as lay
from midge.convert.layout import Layout


def stored(flat, layout):
    """The bytes of row-major elements in a storage order."""
    return flat.reshape(layout.factors).transpose(layout.order).reshape(-1)


@st.composite
def layouts(draw):
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=5))
    return Layout(tuple(shape), tuple(draw(st.permutations(range(len(shape))))))


@st.composite
def shapes(draw, size):
    """A shape with this many elements."""
    shape = []
    while size > 1:
        factor = draw(st.sampled_from([k for k in range(2, size + 1) if size % k == 0]))
        shape.append(factor)
        size //= factor
    return (*shape, *[1] * draw(st.integers(0, 1)))


@given(layouts())
@settings(deadline=None)
def test_the_canonical_spelling_is_the_same_order_and_unique(layout):
    flat = np.arange(prod(layout.factors))
    short = layout.canonical()
    assert np.array_equal(stored(flat, short), stored(flat, layout))
    assert short.canonical() == short
    assert layout.is_identity() == np.array_equal(stored(flat, layout), flat)


@given(layouts(), st.data())
@settings(deadline=None)
def test_transpose_after_reshape_renames_digits_and_moves_nothing(layout, data):
    flat = np.arange(prod(layout.factors))
    shape = data.draw(shapes(len(flat)))
    perm = data.draw(st.permutations(range(len(shape))))
    after = layout.transposed(shape, perm)
    if after is not None:
        moved = flat.reshape(shape).transpose(perm).reshape(-1)
        assert np.array_equal(stored(moved, after), stored(flat, layout))


@given(layouts(), st.data())
@settings(deadline=None)
def test_a_permutation_turns_one_order_into_another(layout, data):
    flat = np.arange(prod(layout.factors))
    shape = data.draw(shapes(len(flat)))
    target = lay.permuted(shape, data.draw(st.permutations(range(len(shape)))))
    step = lay.permutation(layout, target)
    if step is not None:
        moved = stored(flat, layout).reshape(step[0]).transpose(step[1]).reshape(-1)
        assert np.array_equal(moved, stored(flat, target))


def test_axes_of_size_one_are_free():
    assert lay.channels_last((1, 64, 1, 1)).is_identity()
    assert lay.channels_last((1, 1, 49, 10)).is_identity()
    assert not lay.channels_last((1, 3, 2, 2)).is_identity()


def test_a_line_counts_as_an_image_of_height_one():
    assert lay.image_shape((2, 8, 30)) == (2, 8, 1, 30)
    assert lay.channels_last((2, 8, 30)).storage_shape == (2, 1, 30, 8)


def test_digits_that_a_cut_would_split_unevenly_are_refused():
    assert lay.permuted((2, 3), (1, 0)).axes((3, 2)) is None
    assert lay.permuted((2, 6), (1, 0)).axes((2, 2, 3)) is not None
