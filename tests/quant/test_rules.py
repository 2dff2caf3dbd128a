"""The table of rules: complete, consistent, and with a reason for each float."""

import onnx.defs
import pytest

from midge.quant.rules import RULES, Kind, rule_of

KNOWN = {s.name for s in onnx.defs.get_all_schemas()}


def test_every_row_is_an_onnx_operator():
    assert set(RULES) <= KNOWN | {"Swish"}  # Swish is younger than some onnx releases


@pytest.mark.parametrize("name", sorted(RULES))
def test_float_rows_have_a_reason_and_others_have_operands(name):
    rule = RULES[name]
    assert bool(rule.reason) == (rule.kind == Kind.FLOAT)
    if rule.kind not in (Kind.FLOAT, Kind.CONCAT):
        assert rule.operands


def test_an_operator_without_a_row_stays_in_float_with_a_reason():
    assert rule_of("NoSuchOperator").kind == Kind.FLOAT
    assert rule_of("NoSuchOperator").reason
