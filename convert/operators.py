"""What midge does with each ONNX operator, read from the registries that do it.

Sources: core.opspec.OPS (gradients), quant.rules.RULES (the 8-bit form), the lowering tables (C).
`midge inspect --ops` prints it, docs/operators.md holds it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import midge.core.ops  # noqa: F401  fills OPS
from midge.convert.elementwise import BINARY, UNARY
from midge.convert.lower_dynamic import PRODUCTS
from midge.convert.lower_float_layers import LAYERS_F32
from midge.convert.lower_general import INTEGER
from midge.convert.lower_layers import LAYERS
from midge.convert.lower_moves import MOVES
from midge.convert.lower_pairs import PAIRS
from midge.convert.lower_pools import POOLS
from midge.convert.lower_prelu import PRELU
from midge.convert.lower_real import FLOAT
from midge.convert.lower_reductions import REDUCTIONS
from midge.core.opspec import OPS
from midge.quant.rules import COMPARED, RULES, Kind, rule_of

HOW = {
    Kind.ACCUMULATE: "int32 sums, int8 weights",
    Kind.ADD: "two scales into a third",
    Kind.MULTIPLY: "int32 product",
    Kind.AVERAGE: "int32 sum",
    Kind.SUM: "int32 sum",
    Kind.PRELU: "int32 product for each sign",
    Kind.SOFTMAX: "table of exponentials",
    Kind.BOUND: "limits of the layer before, or a table",
    Kind.TABLE: "table of 256 codes",
    Kind.SAME_SCALE: "codes move",
    Kind.CONCAT: "codes move, to one scale",
}
# Operators that the passes rewrite before there is C to write.
REWRITTEN = {"ConvTranspose": "as Conv", "BatchNormalization": "folded, or as Conv"}
# Operators without a form of their own in codes (one_table.py).
TABLES = dict.fromkeys(UNARY, "table, where one code moves it little") | dict.fromkeys(
    BINARY, "table, with a constant"
)
ORDER = dict.fromkeys(COMPARED, "codes are compared")
NONE = ""

PAGE = """# Operators

Made by `python -m midge.convert.operators`; `midge inspect --ops` prints the same table.

Every standard ONNX operator is imported, checked and carried along; what `midge quantize` leaves
in float runs in ONNX Runtime as it did. Constants, shape arithmetic and If with a known condition
are folded first.

- **gradient**: midge trains through it.
- **8 bit**: how `midge quantize` computes it, or why it stays in float.
- **C int8**, **C float32**: `midge compile` has a step for it. An operator with neither is refused
  by name.

QuantizeLinear and DequantizeLinear are read with their scales as they are; so are
DynamicQuantizeLinear with {products}, QLinearConv, QLinearMatMul and the QLinear operators and
QGemm of ONNX Runtime.
"""


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """One operator.

    Args:
        op_type: ONNX operator of the standard domain.
        gradient: midge trains through it.
        quantized: how it is computed with 8-bit codes, empty where it stays in float.
        reason: why it stays in float.
        int8: how the C computes codes, empty where it cannot.
        float32: how the C computes real values, empty where it cannot.
    """

    op_type: str
    gradient: bool
    quantized: str
    reason: str
    int8: str
    float32: str

    @property
    def refused(self) -> bool:
        """Whether `midge compile` refuses it by name."""
        return not self.int8 and not self.float32


def operator_table() -> list[OperatorRow]:
    """Return a row for every operator that any registry knows, by name."""
    trained = {spec.onnx for spec in OPS.values() if spec.backward is not None}
    known = {spec.onnx for spec in OPS.values()} - {""}
    names = known | set(RULES) | set(INT8) | set(FLOAT32)
    rows = []
    for name in sorted(names):
        rule = rule_of(name)
        how = HOW.get(rule.kind) or (REWRITTEN | ORDER | TABLES).get(name, NONE)
        rows.append(
            OperatorRow(
                op_type=name,
                gradient=name in trained,
                quantized=how,
                reason=NONE if how else rule.reason,
                int8=INT8.get(name, NONE),
                float32=FLOAT32.get(name, NONE),
            )
        )
    return rows


INT8: dict[str, str] = {
    **dict.fromkeys(BINARY, TABLES["Div"]),
    **dict.fromkeys(UNARY, "table"),
    **dict.fromkeys((*LAYERS, *PAIRS, *POOLS, *PRELU, *REDUCTIONS), "step"),
    **dict.fromkeys(MOVES, "codes move"),
    **REWRITTEN,
    **ORDER,
}
FLOAT32: dict[str, str] = {**dict.fromkeys((*FLOAT, *INTEGER, *LAYERS_F32), "step")} | {
    "ConvTranspose": REWRITTEN["ConvTranspose"]
}


def page() -> str:
    """Return the text of docs/operators.md."""
    return "\n".join([PAGE.format(products=" or ".join(PRODUCTS)), *_table()]) + "\n"


def _table() -> Iterator[str]:
    rows = operator_table()
    yield "| operator | gradient | 8 bit | C int8 | C float32 |"
    yield "|---|---|---|---|---|"
    for row in rows:
        cells = [row.op_type, "yes" if row.gradient else "", row.quantized or f"no: {row.reason}"]
        cells += ["refused", "refused"] if row.refused else [row.int8, row.float32]
        yield f"| {' | '.join(cells)} |"
    compiled = sum(not row.refused for row in rows)
    quantized = sum(bool(row.quantized) for row in rows)
    yield ""
    yield f"{len(rows)} operators: {quantized} have an 8-bit form, {compiled} compile to C."


if __name__ == "__main__":
    print(page(), end="")
