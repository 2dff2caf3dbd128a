"""--strict: a quantization that left something in float, or calibrated on nothing, is an error."""

from collections.abc import Iterable, Sequence

from midge.convert.coverage import Coverage
from midge.core.errors import CheckError

# What the user asked for is no surprise.
CHOSEN = ("excluded by --nodes-to-exclude", "not among --op-types-to-quantize")


def check_strict(coverage: Iterable[Coverage], collapsed: Sequence[str]) -> None:
    """Refuse a result with nodes in float that the user did not choose, or with collapsed ranges.

    Args:
        coverage: of every node.
        collapsed: tensors that are 0 throughout the calibration data.

    Raises:
        CheckError: naming every such node with its reason, and every such tensor.
    """
    found = [
        f"{c.node} ({c.op_type}) stays in float: {c.reason}"
        for c in coverage
        if c.state in ("float", "refused") and c.reason not in CHOSEN
    ]
    found += [f"{name!r} is 0 throughout the calibration data" for name in collapsed]
    if found:
        raise CheckError(f"--strict, nothing was written: {'; '.join(found)}.")
