"""Every kernel, in every build, gives the bits that NumPy gives."""

import itertools
import shutil

import numpy as np
import pytest

from midge.convert.build import host_program
from midge.convert.emit import emit
from midge.core.native import find_compiler

BUILDS = [("gcc", "-O0"), ("gcc", "-O2"), ("gcc", "-O3"), ("clang", "-O2")]
SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def compiler(name):
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    return find_compiler(name)


def first_difference(net, got):
    """Name the operator, sample and element where raw results leave the expected ones."""
    assert len(got) == len(net.results)
    if got == net.results:
        return None
    at = int(np.flatnonzero(np.frombuffer(got, "u1") != np.frombuffer(net.results, "u1"))[0])
    position = 0
    for s, (op, want) in itertools.product(range(2), zip(net.ops, net.wants, strict=True)):
        if at < position + want[s].nbytes:
            return op.name, f"sample {s}", f"byte {at - position}", op.params
        position += want[s].nbytes
    return None


@pytest.fixture(scope="module")
def folder(zoo, tmp_path_factory):
    directory = tmp_path_factory.mktemp("zoo")
    emit(zoo.plan(), directory, "zoo")
    return directory


@pytest.mark.parametrize("requant", ["float", "int"])
@pytest.mark.parametrize(("name", "level"), BUILDS)
def test_every_operator_gives_the_reference_codes(zoo, folder, name, level, requant):
    program = host_program(folder, "zoo", compiler=compiler(name), flags=(level,), requant=requant)
    assert first_difference(zoo, program.run(zoo.samples)) is None


@pytest.mark.parametrize("requant", ["float", "int"])
def test_sanitizers_find_nothing(zoo, folder, requant):
    program = host_program(
        folder, "zoo", compiler=compiler("gcc"), flags=SANITIZERS, requant=requant
    )
    assert first_difference(zoo, program.run(zoo.samples)) is None
