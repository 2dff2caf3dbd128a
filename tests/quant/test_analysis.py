"""Signal-to-quantization-noise ratios."""

import numpy as np
import pytest

from midge.core.errors import InputError
from midge.quant.analysis import layer_quality, sqnr_db
from midge.quant.scheme import QuantParams


def test_a_tenth_of_the_amplitude_is_twenty_decibels():
    x = np.array([3.0, -4.0])
    assert sqnr_db(x, 0.9 * x) == pytest.approx(20)


def test_equal_values_have_no_noise_and_silence_has_no_signal():
    assert sqnr_db(np.ones(3), np.ones(3)) == np.inf
    assert sqnr_db(np.zeros(3), np.ones(3)) == -np.inf


def test_two_shapes_are_refused():
    with pytest.raises(InputError, match=r"reference has shape \[2\], value \[3\]"):
        sqnr_db(np.zeros(2), np.zeros(3))


def test_tensors_of_both_networks_are_compared_in_real_values():
    params = {name: QuantParams(np.float32(0.5), 10) for name in "abc"}
    codes = {"a": np.array([10, 12, 255], np.uint8), "b": np.array([0, 20], np.uint8)}
    real = {"a": np.array([0.0, 1.0, 122.5]), "z": np.zeros(1)}
    (quality,) = layer_quality(real, codes, params)
    assert (quality.name, quality.sqnr_db) == ("a", np.inf)
    assert quality.saturated == pytest.approx(1 / 3)


def test_networks_without_a_common_tensor_are_refused():
    with pytest.raises(InputError, match="share no tensor name"):
        layer_quality({}, {"a": np.zeros(1, np.uint8)}, {"a": QuantParams(np.float32(1), 0)})
