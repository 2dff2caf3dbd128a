"""The operator table: the page is what the registries say, and the registries agree."""

from pathlib import Path

import onnx

from midge.convert import executor_float, executor_ops
from midge.convert.emit_float import FLOAT_RECORDS
from midge.convert.emit_records import RECORDS
from midge.convert.operators import FLOAT32, INT8, operator_table, page
from midge.quant.rules import RULES, Kind

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_registries_say():
    assert (ROOT / "docs" / "operators.md").read_text(encoding="utf-8") == page(), (
        "run: python -m midge.convert.operators > docs/operators.md"
    )


def test_every_operator_exists_in_onnx():
    standard = {s.name for s in onnx.defs.get_all_schemas() if s.domain == ""}
    assert {row.op_type for row in operator_table()} <= standard


def test_whatever_is_quantized_compiles_to_integer_c():
    quantized = {name for name, rule in RULES.items() if rule.kind != Kind.FLOAT}
    assert quantized - set(INT8) == set()


def test_what_stays_in_float_has_a_reason():
    assert all(row.quantized or row.reason for row in operator_table())


def test_executor_and_c_have_the_same_steps():
    assert set(executor_ops.KERNELS) == set(RECORDS)
    assert set(executor_float.FLOAT_KERNELS) == set(FLOAT_RECORDS)


def test_what_has_neither_form_is_refused():
    refused = {row.op_type for row in operator_table() if row.refused}
    assert refused.isdisjoint(INT8)
    assert refused.isdisjoint(FLOAT32)
    assert {"Loop", "NonZero", "If"} <= refused
