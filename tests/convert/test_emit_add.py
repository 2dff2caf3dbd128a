"""Integer forms of Add and Sub, and their exact emulation, against the definition on all pairs."""

import numpy as np
import pytest

from midge.convert import emit_pairs
from midge.convert.build import host_program
from midge.convert.emit import emit
from midge.convert.emit_add import find_form, reference
from midge.convert.plan import Add, Plan, PlanOp, PlanTensor
from midge.quant.scheme import QuantParams

CODES = np.arange(-128, 128, dtype=np.int8)


def configurations(count, seed=6):
    """Random, power-of-two, decimal and far-apart scales; the extreme zero points among others."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        scales = (
            rng.uniform(0.001, 1, 3),
            2.0 ** rng.integers(-8, 1, 3),
            rng.integers(1, 100, 3) / 1000,
            2.0 ** rng.uniform(-40, 10, 3),
            2.0 ** np.array([-60, 0, 1]) * rng.uniform(0.5, 1, 3),
        )[i % 5]
        dtype = ("uint8", "int8")[i // 5 % 2]
        zero_points = rng.integers(0, 256, 3)
        if i % 3 == 0:
            zero_points = rng.choice([0, 255], 3)
        low = 0 if dtype == "uint8" else -128
        yield Add(
            *(
                QuantParams(np.float32(s), int(z) + low, dtype)
                for s, z in zip(scales, zero_points, strict=True)
            ),
            subtract=i // 10 % 2 == 1,
        )


def test_a_form_equals_the_definition_on_every_pair():
    found = 0
    for params in configurations(40):
        form = find_form(params)
        if form is None:
            continue
        found += 1
        total = CODES[:, None].astype(object) * form.ma + CODES[None, :].astype(object) * form.mb
        total = total + form.k
        assert abs(total).max() + 2**form.shift < 2 ** (form.bits - 1)
        half = (1 << (form.shift - 1)) - 1
        y = (total + half + (total >> form.shift & 1)) >> form.shift
        assert np.array_equal(np.clip(y.astype(np.int64), -128, 127), reference(params))
    assert found >= 20


@pytest.mark.parametrize("exact", [False, True], ids=["form", "exact"])
def test_the_kernels_equal_the_definition_on_every_pair(exact, tmp_path, monkeypatch):
    if exact:
        monkeypatch.setattr(emit_pairs, "find_form", lambda params: None)
    A, B = (np.ravel(g).astype(np.int8) for g in np.meshgrid(CODES, CODES, indexing="ij"))
    adds = list(configurations(40))
    pairs = A.size
    tensors = [PlanTensor("a", (pairs,), "int8", 0), PlanTensor("b", (pairs,), "int8", 1)]
    tensors += [PlanTensor(f"y{i}", (pairs,), "int8", i + 2) for i in range(len(adds))]
    ops = [PlanOp(f"add{i}", params, (0, 1), i + 2) for i, params in enumerate(adds)]
    outputs = tuple(range(2, len(tensors)))
    plan = Plan("adds", tensors, ops, (0, 1), outputs, [pairs] * len(tensors))
    plan.offsets = [pairs * i for i in range(len(tensors))]
    plan.arena_bytes = pairs * len(tensors)
    emit(plan, tmp_path, "adds")
    got = np.frombuffer(host_program(tmp_path, "adds").run(A.tobytes() + B.tobytes()), np.int8)
    for params, y in zip(adds, got.reshape(len(adds), 256, 256), strict=True):
        assert np.array_equal(y, reference(params)), params
