"""Observers: ranges that no order and no batching can change, and methods that survive outliers."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midge.core.errors import InputError
from midge.quant.histogram import (
    HistogramObserver,
    entropy_range,
    mse_range,
    percentile_range,
)
from midge.quant.observers import AverageObserver, MinMaxObserver, MovingAverageObserver

METHODS = (percentile_range, mse_range, entropy_range)
rng = np.random.default_rng(2)


def observe(make, *arrays):
    observer = make()
    for array in arrays:
        observer.update(np.asarray(array, np.float32))
    return observer.range()


def histogram(method):
    return lambda: HistogramObserver(method)


def sqnr_db(x, bounds):
    """SQNR of 8-bit codes over a range that is widened to hold 0."""
    low, high = min(bounds[0], 0), max(bounds[1], 0)
    step = (high - low) / 255
    q = np.clip(np.rint(x / step), np.rint(low / step), np.rint(high / step)) * step
    return 10 * np.log10((x**2).sum() / ((x - q) ** 2).sum())


ARRAYS = st.lists(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20), min_size=1, max_size=6
)


@settings(max_examples=15, deadline=None)
@given(ARRAYS, st.randoms())
def test_order_and_batching_change_nothing(arrays, random):
    flat = [v for a in arrays for v in a]
    shuffled = random.sample(flat, len(flat))
    makers = [MinMaxObserver, *map(histogram, METHODS)]
    for make in makers:
        assert observe(make, *arrays) == observe(make, flat) == observe(make, shuffled)
    order = random.sample(arrays, len(arrays))
    assert observe(AverageObserver, *arrays) == observe(AverageObserver, *order)


@pytest.mark.parametrize(
    "make", [MinMaxObserver, AverageObserver, MovingAverageObserver, *map(histogram, METHODS)]
)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(make, bad):
    with pytest.raises(InputError, match="not finite"):
        observe(make, [1.0, bad])


@pytest.mark.parametrize(
    "make", [MinMaxObserver, AverageObserver, MovingAverageObserver, *map(histogram, METHODS)]
)
def test_nothing_seen_is_no_range(make):
    with pytest.raises(InputError, match="no value"):
        observe(make, [])


def test_min_max_is_exact():
    assert observe(MinMaxObserver, [1, 2], [-3, 0.5]) == (-3, 2)


def test_average_is_the_mean_of_the_extremes():
    assert observe(AverageObserver, [0, 1], [0, 3], [-3, 2]) == (-1, 2)


def test_a_moving_average_starts_at_the_first_array_and_follows():
    observer = MovingAverageObserver(momentum=0.5)
    for high in (8.0, 4.0, 4.0):
        observer.update(np.array([0, high], np.float32))
    assert observer.range() == (0, 5)


@pytest.mark.parametrize("method", METHODS)
def test_one_outlier_in_ten_thousand_does_not_swallow_the_bulk(method):
    bulk = rng.standard_normal(10_400)
    for outliers in ([1e6], [-1e6], [1e6, -1e6]):
        bounds = observe(histogram(method), bulk, outliers)
        assert sqnr_db(bulk, bounds) > 35


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "draw", ["normal", "relu", "laplace", "uniform", "shifted", "sparse", "tiny"]
)
def test_every_method_keeps_ordinary_data(method, draw):
    x = {
        "normal": rng.standard_normal(20_000),
        "relu": np.maximum(rng.standard_normal(20_000), 0),
        "laplace": rng.laplace(size=20_000),
        "uniform": rng.uniform(-1, 1, 20_000),
        "shifted": rng.uniform(5, 9, 20_000),
        "sparse": np.where(rng.uniform(size=20_000) > 0.999, rng.uniform(1, 2, 20_000), 0),
        "tiny": rng.standard_normal(20_000) * 1e-9,
    }[draw]
    bounds = observe(histogram(method), x)
    assert sqnr_db(x, bounds) > 28


def test_mse_is_at_least_as_good_as_min_max():
    for scale in (1, 3, 10):
        x = np.concatenate([rng.standard_normal(5000), rng.standard_normal(50) * scale])
        mse = sqnr_db(x, observe(histogram(mse_range), x))
        assert mse > sqnr_db(x, observe(MinMaxObserver, x)) - 0.1


def test_a_percentile_leaves_as_much_on_both_sides():
    x = np.linspace(-1, 1, 200_001)
    low, high = observe(histogram(percentile_range), x)
    assert low == pytest.approx(-0.999, abs=1e-4)
    assert high == pytest.approx(0.999, abs=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_zeros_alone_give_the_range_zero(method):
    assert observe(histogram(method), np.zeros(5)) == (0, 0)


def test_a_histogram_takes_constant_memory():
    observer = HistogramObserver(percentile_range)
    x = rng.standard_normal(50_000).astype(np.float32)
    observer.update(x)
    tracemalloc.start()
    for _ in range(4):
        observer.update(x)
    start = tracemalloc.get_traced_memory()[0]
    for _ in range(40):
        observer.update(x)
    grown = tracemalloc.get_traced_memory()[0] - start
    tracemalloc.stop()
    assert grown < 200_000
