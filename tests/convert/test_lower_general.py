"""Integers, truths and what is chosen by them: executor, ONNX Runtime and C agree bit for bit."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from midge.convert.executor import Executor
from midge.convert.executor_general import INTEGER
from midge.convert.lower import lower
from midge.convert.plan_general import Gather, Where
from midge.convert.verify import verify
from midge.core.errors import InputError, UnsupportedError

f32 = np.float32
RNG = np.random.default_rng(4)


def save(tmp_path, text, opset=17, **constants):
    """Write a model from onnx's text format and return its path."""
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> net {text}')
    model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in constants.items())
    path = tmp_path / "net.onnx"
    onnx.save(model, path)
    return path


GRAPHS = {
    "comparisons of real values": (
        """(float[3,4,5] x, float[4,1] t) =>
           (bool[3,4,5] a, bool[3,4,5] b, bool[3,4,5] c, bool[3,4,5] d,
            bool[3,4,5] e, bool[3,4,5] f)
        { r = Floor(x)
          s = Floor(t)
          a = Equal(r, s)
          b = Less(r, s)
          c = LessOrEqual(r, s)
          d = Greater(r, s)
          p = GreaterOrEqual(r, s)
          e = Not(p)
          q = Xor(a, b)
          u = And(q, d)
          f = Or(u, c) }""",
        {},
    ),
    "a choice": (
        """(float[2,3,4] x, float[3,1] t, bool[4] m) => (float[2,3,4] y, float[2,3,4] z)
        { p = Greater(x, t)
          y = Where(p, x, k)
          z = Where(m, t, x) }""",
        {"k": np.array([-1.5], f32)},
    ),
    "integers": (
        """(int32[3,4] x, int64[4] t) => (int32[3,4] y, int64[3,4] z, bool[3,4] w, int64[4] n)
        { i = Cast<to=7>(x)
          a = Sub(i, t)
          b = Mul(a, three)
          c = Div(b, two)
          z = Max(c, two)
          d = Cast<to=6>(c)
          y = Mod(d, five)
          w = Less(i, t)
          n = Neg(t) }""",
        {
            "three": np.array(3),
            "two": np.array([-2]),
            "five": np.array([5], np.int32),
        },
    ),
    "signs and waves": (
        """(float[4,5] x, int32[6] i) => (float[4,5] a, int32[6] b, float[4,5] w)
        { r = Round(x)
          a = Sign(r)
          j = Sub(i, hundred)
          b = Sign(j)
          p = Sin(x)
          q = Cos(p)
          s = Tan(q)
          t = Atan(s)
          u = Sinh(t)
          v = Cosh(u)
          h = Asinh(v)
          l = Clip(x, less, one)
          c = Acos(l)
          d = Asin(l)
          k = Mul(l, half)
          e = Atanh(k)
          f = Exp(e)
          m = Add(f, one)
          o = Acosh(m)
          w = Sum(h, c, d, o) }""",
        {
            "hundred": np.array(100, np.int32),
            "less": f32(-1),
            "one": f32(1),
            "half": f32(0.5),
        },
    ),
    "one of many": (
        """(int64[3,4] i, float[2] v) => (float[3,4,7] a, int64[3,5,4] b)
        { j = Mod(i, twelve)
          k = Sub(j, six)
          a = OneHot(k, seven, v)
          b = OneHot<axis=1>(k, five, ints) }""",
        {
            "twelve": np.array(12),
            "six": np.array(6),
            "seven": np.array([7]),
            "five": np.array(5),
            "ints": np.array([-3, 8]),
        },
    ),
    "one of many by real numbers": (
        """(float[3,4] x, float[2] v) => (float[3,4,5] a)
        { y = Mul(x, six)
          a = OneHot(y, five, v) }""",
        {"six": f32(6), "five": f32(5)},
    ),
    "the largest in order": (
        """(float[3,4,5] x) => (float[3,4,2] a, int64[3,4,2] b, float[3,4,5] c, int64[3,4,5] d,
                                float[3,4,1] e)
        { r = Round(x)
          a, b = TopK(r, two)
          c, d = TopK<axis=1, largest=0>(r, four)
          e, f = TopK(x, one) }""",
        {"two": np.array([2]), "four": np.array([4]), "one": np.array([1])},
    ),
    "the largest of them": (
        """(float[3,4,5] x) => (float[3,4,5] a, float[3,4,5] b, float[3,4,5] c)
        { r = Round(x)
          a = Hardmax(r)
          b = Hardmax<axis=1>(r)
          c = Shrink<lambd=0.7, bias=0.2>(x) }""",
        {},
    ),
    "casts": (
        """(float[6] x, int64[6] i, bool[6] m) =>
           (int32[6] a, float[6] b, float[6] c, bool[6] d, bool[6] e)
        { s = Mul(x, big)
          a = Cast<to=6>(s)
          b = Cast<to=1>(i)
          c = Cast<to=1>(m)
          d = Cast<to=9>(i)
          r = Round(x)
          e = Cast<to=9>(r) }""",
        {"big": np.array(100, f32)},
    ),
    "places of the largest and smallest": (
        """(float[2,5,6] x) => (int64[2,5] a, int64[2,1,6] b, int64[5,6] c, int64[2,5,1] d)
        { r = Floor(x)
          a = ArgMax<axis=-1, keepdims=0>(r)
          b = ArgMax<axis=1, select_last_index=1>(r)
          c = ArgMin<axis=0, keepdims=0>(x)
          d = ArgMin<axis=2, select_last_index=1>(r) }""",
        {},
    ),
    "a table of vectors": (
        """(int64[2,7] i, float[5,3] x) => (float[2,7,4] a, float[5,2,7] b, float[5,3] c)
        { a = Gather(table, i)
          j = Mod(i, three)
          b = Gather<axis=1>(x, j)
          c = Gather(x, uneven) }""",
        {
            "table": RNG.normal(0, 1, (9, 4)).astype(f32),
            "three": np.array(3),
            "uneven": np.array([0, 1, 4, -2, 1]),
        },
    ),
    "elements by index": (
        """(float[3,4,2] x) => (float[3,4,2] y, int64[3,4,2] z)
        { p = Floor(x)
          q = Cast<to=7>(p)
          i = Mod(q, four)
          y = GatherElements<axis=1>(x, i)
          z = GatherElements<axis=-2>(i, i) }""",
        {"four": np.array(4)},
    ),
    "moves of integers": (
        """(int32[2,3,4] x, bool[2,3] m) => (int32[4,6] y, int32[2,2,4] z, bool[3,2,1] w)
        { t = Transpose<perm=[2,0,1]>(x)
          y = Reshape(t, shape)
          s = Slice(x, one, two, axis)
          z = Concat<axis=1>(s, k)
          u = Unsqueeze(m, axis2)
          w = Transpose<perm=[1,0,2]>(u) }""",
        {
            "shape": np.array([4, 6]),
            "one": np.array([1]),
            "two": np.array([2]),
            "axis": np.array([1]),
            "axis2": np.array([2]),
            "k": np.arange(8, dtype=np.int32).reshape(2, 1, 4),
        },
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_all_engines_agree(tmp_path, name):
    text, constants = GRAPHS[name]
    report = verify(save(tmp_path, text, **constants), count=6)
    assert (report.mismatches, report.elements > 50) == (0, True), report.checks


def test_the_int64_of_the_file_is_said_to_be_int32():
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]> net (int64[3] x) => (int64[3] y){ y = Add(x, x) }'
    )
    plan = lower(ir.from_proto(model), name="net")
    assert plan.notices == ["input 'x' is int64 in the file and int32 in the C."]
    assert [y.tolist() for y in Executor(plan).run([np.array([1, -2, 3], np.int32)])] == [
        [2, -4, 6]
    ]


def test_special_numbers_compare_and_convert_alike(tmp_path):
    path = save(
        tmp_path,
        """(float[6] x, float[6] t) => (bool[6] a, bool[6] b, bool[6] c, float[6] y)
        { a = Equal(x, t)
          b = LessOrEqual(x, t)
          c = Cast<to=9>(x)
          y = Where(a, x, t) }""",
    )
    x = np.array([np.nan, np.inf, -0.0, 0.0, -np.inf, 1e-45], f32)
    t = np.array([np.nan, np.inf, 0.0, np.nan, 1.0, 0.0], f32)
    assert verify(path, [{"x": x, "t": t}]).holds


def test_an_index_outside_is_moved_inside_whatever_the_engine(tmp_path):
    path = save(
        tmp_path, "(int32[4] i) => (float[4] y) { y = Gather(k, i) }", k=np.arange(3, dtype=f32)
    )
    samples = [{"i": np.array([7, -9, -1, 2], np.int32)}]
    assert verify(path, samples, with_ort=False).holds
    model = ir.from_proto(onnx.load(path))
    (y,) = Executor(lower(model, name="net")).run([samples[0]["i"]])
    assert y.tolist() == [2, 0, 2, 2]


@pytest.mark.parametrize("kind", ["div", "mod", "fmod"])
def test_division_rounds_as_c_does_and_by_zero_gives_zero(kind):
    a, b = np.array([7, -7, 7, -7, 5, -(2**31)]), np.array([2, 2, -2, -2, 0, -1])
    want = {
        "div": [3, -3, -3, 3, 0, 2**31],
        "mod": [1, 1, -1, -1, 0, 0],
        "fmod": [1, -1, 1, -1, 0, 0],
    }
    assert INTEGER[kind](a, b).tolist() == want[kind]


def test_what_has_no_form_is_refused_by_name(tmp_path):
    text = "(float[3] x) => (float16[3] y) { y = Cast<to=10>(x) }"
    with pytest.raises((InputError, UnsupportedError), match="FLOAT16"):
        lower(ir.from_proto(onnx.load(save(tmp_path, text))), name="net")
    text = "(int64[3] x) => (int64[3] y) { y = Add(x, k) }"
    path = save(tmp_path, text, k=np.array([2**40]))
    with pytest.raises(InputError, match="'k' holds integers outside of int32"):
        lower(ir.from_proto(onnx.load(path)), name="net")


def test_a_table_stays_among_the_constants(tmp_path):
    text, constants = GRAPHS["a table of vectors"]
    plan = lower(ir.from_proto(onnx.load(save(tmp_path, text, **constants))), name="net")
    tables = [op.params.table for op in plan.ops if isinstance(op.params, Gather)]
    assert [t is not None for t in tables].count(True) == 1
    assert not any(isinstance(op.params, Where) for op in plan.ops)
