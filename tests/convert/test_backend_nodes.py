"""The passes against onnx's own node tests: whatever operator comes, its results stay."""

import warnings

import numpy as np
import onnx
import pytest

from midge.convert.canonical import canonicalize
from midge.convert.onnx_in import read_model
from midge.convert.onnx_out import to_proto
from midge.convert.ort import make_session, run
from midge.core.errors import InputError, ToolError

EVERY = 9  # of about 1,900 cases: a sample that takes seconds
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def cases():
    """A sample of the cases that have a model."""
    node = pytest.importorskip("onnx.backend.test.case.node")
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx computes expected values of every kind
        found = node.collect_testcases(None)
    return [c for c in found[::EVERY] if c.model is not None]


def outputs(model, feeds):
    """What ONNX Runtime makes of the feeds, or None where it has no kernel."""
    try:
        session = make_session(model, level="none", threads=1)
        inputs = {i.name for i in session.get_inputs()}
        return run(session, {k: v for k, v in feeds.items() if k in inputs})
    except ToolError:
        return None


@pytest.mark.slow
def test_canonical_models_compute_what_the_given_ones_do(cases, tmp_path):
    compared = 0
    for case in cases:
        path = tmp_path / "case.onnx"
        path.write_bytes(case.model.SerializeToString())
        try:
            model = read_model(path, dynamic=True)
        except InputError:
            continue
        canonicalize(model)
        proto = to_proto(model)
        onnx.checker.check_model(proto)
        names = [i.name for i in case.model.graph.input]
        feeds = dict(zip(names, case.data_sets[0][0], strict=False))
        want = outputs(case.model, feeds)
        if want is None:
            continue
        got = outputs(proto, feeds)
        assert got is not None, case.name
        for a, b in zip(want, got, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype), case.name
            if a.dtype == np.float32:  # ORT masks logits with the smallest number, ONNX with -inf
                a, b = (np.maximum(v, np.finfo(np.float32).min) for v in (a, b))
            if a.dtype.kind in "fiub":
                np.testing.assert_allclose(b, a, err_msg=case.name, **TOLERANCE)
        compared += 1
    assert compared > 100
