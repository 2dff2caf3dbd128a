"""Folders of images: preprocessed as told, refused where something is left to guess."""

import json

import numpy as np
import onnx
import pytest

from midge.convert.calibration_data import open_samples
from midge.convert.images import ImageOptions
from midge.convert.onnx_out import to_proto
from midge.convert.pipeline import QuantizeOptions, quantize_file
from midge.core.errors import InputError

Image = pytest.importorskip("PIL.Image")
NCHW = "(float[N,3,4,6] x) => (float[N,3,4,6] y) { y = Relu(x) }"
NHWC = "(float[N,4,6,1] x) => (float[N,4,6,1] y) { y = Relu(x) }"
MEAN, STD = (0.5, 0.25, 0.125), (0.5, 2.0, 4.0)
SAID = ImageOptions(MEAN, STD, 1 / 255, "nchw")
rng = np.random.default_rng(3)
PIXELS = rng.integers(0, 256, (4, 4, 6, 3)).astype(np.uint8)


@pytest.fixture
def folder(tmp_path):
    """Four images of 4 by 6 pixels, in kinds without loss, one of them in a folder below."""
    (tmp_path / "images" / "cats").mkdir(parents=True)
    for index, name in enumerate(["a.png", "b.bmp", "c.webp", "cats/d.PNG"]):
        path = tmp_path / "images" / name
        Image.fromarray(PIXELS[index]).save(path, lossless=True)
    return tmp_path / "images"


def fault(folder, model, options):
    with pytest.raises(InputError) as caught:
        list(open_samples(str(folder), model, images=options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_pixels_are_scaled_and_normalized_per_channel(folder, build):
    samples = [s["x"] for s in open_samples(str(folder), build(NCHW), images=SAID)]
    want = (PIXELS / 255 - MEAN) / STD
    np.testing.assert_array_equal(
        np.concatenate(samples), want.astype(np.float32).transpose(0, 3, 1, 2)
    )


def test_the_other_layout_and_one_channel(folder, build):
    options = ImageOptions((128.0,), (2.0,), 1.0, "nhwc")
    samples = [s["x"] for s in open_samples(str(folder), build(NHWC), images=options)]
    grey = np.asarray(Image.fromarray(PIXELS[0]).convert("L"))
    np.testing.assert_array_equal(samples[0][0, :, :, 0], (grey.astype(np.float32) - 128) / 2)


def test_lossy_images_are_read_too(tmp_path, build):
    Image.fromarray(PIXELS[0]).save(tmp_path / "a.jpg")
    (sample,) = open_samples(str(tmp_path), build(NCHW), images=SAID)
    assert sample["x"].shape == (1, 3, 4, 6)


@pytest.mark.parametrize("missing", ["mean", "std", "scale", "layout"])
def test_preprocessing_is_never_guessed(folder, build, missing):
    given = {"mean": MEAN, "std": STD, "scale": 1.0, "layout": "nchw", missing: None}
    text = fault(folder, build(NCHW), ImageOptions(**given))
    assert f"give --{missing} as in training" in text


def test_another_size_is_resized_only_on_request(tmp_path, build):
    Image.fromarray(np.full((8, 9, 3), 51, np.uint8)).save(tmp_path / "a.png")
    text = fault(tmp_path, build(NCHW), SAID)
    assert "a.png is 9 wide and 8 high, the model takes 6 by 4" in text
    assert "--resize" in text
    resized = ImageOptions(MEAN, STD, 1 / 255, "nchw", resize=True)
    (sample,) = open_samples(str(tmp_path), build(NCHW), images=resized)
    np.testing.assert_allclose(sample["x"][0, :, 3, 5], (0.2 - np.array(MEAN)) / STD, rtol=1e-6)


@pytest.mark.parametrize(
    ("graph", "options", "words"),
    [
        (NCHW, ImageOptions(MEAN, STD, 1.0, "nhwc"), "check --layout"),
        (NCHW, ImageOptions((1.0, 2.0), STD, 1.0, "nchw"), "--mean has 2 values"),
        (NCHW, ImageOptions(MEAN, (1.0, 0.0, 1.0), 1.0, "nchw"), "--std"),
        (NCHW, ImageOptions(MEAN, STD, 0.0, "nchw"), "--scale"),
        (NCHW, ImageOptions(MEAN, STD, float("nan"), "nchw"), "--scale"),
        (NCHW, ImageOptions(MEAN, STD, 1.0, "hwcn"), "'hwcn'"),
        ("(float[N,4] x) => (float[N,4] y) { y = Relu(x) }", SAID, "does not take one input"),
    ],
)
def test_options_that_do_not_fit_the_model_are_refused(folder, build, graph, options, words):
    assert words in fault(folder, build(graph), options)


def test_a_damaged_image_is_named(folder, build):
    (folder / "b.bmp").write_bytes(b"BM no image")
    assert "b.bmp is no readable image" in fault(folder, build(NCHW), SAID)


def test_a_truncated_image_is_named(folder, build):
    raw = (folder / "a.png").read_bytes()
    (folder / "a.png").write_bytes(raw[: len(raw) // 2])
    assert "a.png is no readable image" in fault(folder, build(NCHW), SAID)


def test_pixels_of_16_bits_are_not_cut_down_silently(tmp_path, build):
    Image.fromarray(np.full((4, 6), 4000, np.uint16)).save(tmp_path / "a.png")
    assert "a.png: its pixels are of mode 'I;16'" in fault(
        tmp_path, build(NHWC), ImageOptions((0.0,), (1.0,), 1.0, "nhwc")
    )


def test_arrays_take_no_preprocessing(tmp_path, build):
    np.save(tmp_path / "a.npy", np.zeros((2, 3, 4, 6), np.float32))
    assert "--mean, --std, --scale, --layout" in fault(tmp_path / "a.npy", build(NCHW), SAID)
    Image.fromarray(PIXELS[0]).save(tmp_path / "a.png")
    assert "both arrays and images" in fault(tmp_path, build(NCHW), SAID)


def test_what_was_done_stands_in_the_report_and_the_parameters(folder, build, tmp_path):
    weights = rng.standard_normal((2, 3, 1, 1)).astype(np.float32)
    model = build("(float[N,3,4,6] x) => (float[N,2,4,6] y) { y = Conv(x, w) }", w=weights)
    onnx.save(to_proto(model), tmp_path / "m.onnx")
    out = tmp_path / "m.int8.onnx"
    report = quantize_file(tmp_path / "m.onnx", out, str(folder), QuantizeOptions(images=SAID))
    assert any("(pixel * 0.00392156863 - 0.5,0.25,0.125) / 0.5,2,4" in x for x in report.notices)
    record = json.loads(report.parameters.read_text())["calibration"]["images"]
    assert record == {
        "mean": list(MEAN),
        "std": list(STD),
        "scale": 1 / 255,
        "layout": "nchw",
        "resize": None,
    }
