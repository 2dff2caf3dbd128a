"""midge inspect --ops: the operator table, for people and for machines."""


def test_the_operators_are_listed(midge):
    status, out, _ = midge("inspect", "--ops")
    assert status == 0
    assert "int32 sums, int8 weights" in next(
        ln for ln in out.splitlines() if ln.split()[:1] == ["Conv"]
    )
    assert "refused" in next(line for line in out.splitlines() if "NonMaxSuppression" in line)


def test_the_operators_are_listed_as_json(midge_json):
    rows = {row["op_type"]: row for row in midge_json("inspect", "--ops")["operators"]}
    assert rows["Sigmoid"]["int8"] == "table"
    assert rows["LpNormalization"]["reason"] == "it normalizes in float"


def test_a_model_beside_ops_is_refused(midge):
    status, _, err = midge("inspect", "--ops", "net.onnx")
    assert status == 2
    assert "--ops takes no MODEL" in err
