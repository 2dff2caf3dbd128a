"""How each ONNX operator is quantized: one row an operator, the reason where it stays in float.

The rows are the single source for the converter's choices, `midge inspect --ops` and the docs.
"""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The ways to compute with 8-bit codes (docs/numerics.md)."""

    ACCUMULATE = "accumulate"  # R1: int32 sums of codes times int8 weights
    ADD = "add"  # two scales into a third
    MULTIPLY = "multiply"  # R1 with one product
    AVERAGE = "average"  # R1 with m = s_x / (s_y n)
    SUM = "sum"  # R1 with m = s_x / s_y
    PRELU = "prelu"  # R1 with a multiplier for each sign and channel
    SOFTMAX = "softmax"  # table of exponentials; output scale 1/256
    BOUND = "bound"  # Relu, Clip: saturation of the node before, or a table
    TABLE = "table"  # 256 entries
    SAME_SCALE = "same_scale"  # codes move; the output has the input's parameters
    CONCAT = "concat"  # codes move where the scales are one, else a table each
    FLOAT = "float"  # stays in float32


@dataclass(frozen=True, slots=True)
class Rule:
    """How one operator is quantized.

    Args:
        kind: the way of computing.
        operands: input positions that are activations; None stands for all.
        reason: why it stays in float, for FLOAT.
    """

    kind: Kind
    operands: tuple[int, ...] | None = (0,)
    reason: str = ""


def _rows(rule: Rule, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


def _float(reason: str, names: str) -> dict[str, Rule]:
    return _rows(Rule(Kind.FLOAT, None, reason), names)


RULES: dict[str, Rule] = {
    **_rows(Rule(Kind.ACCUMULATE), "Conv ConvTranspose Gemm MatMul"),
    **_rows(Rule(Kind.ADD, (0, 1)), "Add Sub"),
    **_rows(Rule(Kind.MULTIPLY, (0, 1)), "Mul"),
    **_rows(Rule(Kind.AVERAGE), "AveragePool GlobalAveragePool ReduceMean"),
    **_rows(Rule(Kind.SUM), "ReduceSum"),
    **_rows(Rule(Kind.PRELU), "PRelu"),
    **_rows(Rule(Kind.SOFTMAX), "Softmax"),
    **_rows(Rule(Kind.BOUND), "Relu Clip"),
    **_rows(
        Rule(Kind.TABLE),
        "Abs Celu Elu Erf Gelu HardSigmoid HardSwish LeakyRelu Mish Neg Selu Sigmoid Softplus "
        "Softsign Swish Tanh ThresholdedRelu",
    ),
    **_rows(
        Rule(Kind.SAME_SCALE),
        "DepthToSpace Expand Flatten Gather GlobalMaxPool Identity MaxPool Pad ReduceMax "
        "ReduceMin Reshape Resize Slice SpaceToDepth Split Squeeze Tile Transpose Unsqueeze",
    ),
    **_rows(Rule(Kind.CONCAT, None), "Concat Max Min"),
    **_float("its range is too wide for 8 bits", "Exp Log Pow Sqrt Reciprocal Div LogSoftmax"),
    **_float(
        "it normalizes in float",
        "LayerNormalization InstanceNormalization GroupNormalization "
        "BatchNormalization LpNormalization MeanVarianceNormalization",
    ),
    **_float("its range is too wide for 8 bits", "ReduceProd"),
    **_float("it is a reduction that has no integer form", "ReduceL2"),
    **_float("its state needs more than 8 bits", "LSTM GRU RNN"),
    **_float(
        "its answer is no real number",
        "ArgMax ArgMin Equal Greater Less Shape Cast TopK "
        "GreaterOrEqual LessOrEqual And Or Not Size NonZero NonMaxSuppression",
    ),
    **_float("it is control flow", "If Loop Scan"),
}


# What codes answer as well as real values do: they only ask for the order.
COMPARED = ("ArgMax", "ArgMin")


def rule_of(op_type: str) -> Rule:
    """Return the operator's row; one that has none stays in float."""
    return RULES.get(op_type) or Rule(Kind.FLOAT, None, "midge has no 8-bit form of it")
