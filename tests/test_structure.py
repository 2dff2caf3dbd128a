"""The shape of the tree: who imports whom, how long a file may be, what it may not mention."""

import ast
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

ROOT = Path(str(files("midge")))
# layer -> the layers it may import; runtime_c is C and imports nothing
MAY_IMPORT = {
    "core": {"core"},
    "quant": {"quant", "core"},
    "convert": {"convert", "quant", "core", "runtime_c"},
    "models": {"models", "core"},
    "runtime_c": {"runtime_c"},
    "cli": {"cli", "convert", "quant", "core", "models", "runtime_c"},
}
MAX_LINES = 400
MAX_FOLDERS_BELOW_TOP = 2
MAX_FUNCTION_LINES = 70  # a screen; docstrings of public functions are long
MACHINE_PATH = re.compile(r"/(?:work|home|root|Users|tmp/[a-z])[/\w]|[A-Z]:\\\\Users")
CHECKED = ("*.py", "*.c", "*.h", "*.S", "*.ld", "*.sh", "*.html", "*.css", "*.yaml", "*.md")

pytestmark = pytest.mark.skipif(
    not (ROOT / "pyproject.toml").exists(), reason="there is no checkout beside the package"
)


def sources(*patterns: str) -> Iterator[Path]:
    """Yield the files of the tree, tests and pages included."""
    for top in (*MAY_IMPORT, "tests", "docs"):
        for pattern in patterns:
            yield from sorted((ROOT / top).rglob(pattern))
    for pattern in patterns:
        yield from sorted(ROOT.glob(pattern))


def relative(file: Path) -> str:
    """Return a path for a message."""
    return file.relative_to(ROOT).as_posix()


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, module) of every import, wherever it stands; relative ones start with a dot."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield node.lineno, module
            if module == "midge":
                yield from ((node.lineno, f"midge.{alias.name}") for alias in node.names)


@pytest.mark.parametrize("layer", sorted(MAY_IMPORT))
def test_a_layer_imports_only_the_layers_below_it(layer: str) -> None:
    wrong = [
        f"{relative(file)}:{line} imports {module}"
        for file in sorted((ROOT / layer).rglob("*.py"))
        for line, module in imports(file)
        if (parts := module.split("."))[0] == "midge"
        and len(parts) > 1
        and parts[1] in MAY_IMPORT
        and parts[1] not in MAY_IMPORT[layer]
    ]
    assert not wrong


def test_imports_are_absolute_and_name_midge() -> None:
    wrong = [
        f"{relative(file)}:{line} imports {module}"
        for file in sources("*.py")
        for line, module in imports(file)
        if module.startswith(".") or module.split(".")[0] in MAY_IMPORT
    ]
    assert not wrong


def test_no_file_is_longer_than_the_limit() -> None:
    lengths = {
        relative(file): len(file.read_text(encoding="utf-8").splitlines())
        for file in sources("*.py", "*.c", "*.h")
    }
    assert not {name: lines for name, lines in lengths.items() if lines > MAX_LINES}


def test_functions_fit_a_screen() -> None:
    long = [
        f"{relative(file)}:{node.lineno} {node.name}"
        for file in sources("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > MAX_FUNCTION_LINES
    ]
    assert not long


def test_folders_are_at_most_two_levels_below_the_top() -> None:
    deep = [
        relative(file)
        for file in sources("*")
        if file.is_file()
        and not any(part.startswith((".", "__pycache__")) for part in file.relative_to(ROOT).parts)
        and len(file.relative_to(ROOT).parts) - 2 > MAX_FOLDERS_BELOW_TOP
    ]
    assert not deep


def test_nothing_names_a_path_of_one_machine() -> None:
    wrong = [
        f"{relative(file)}:{number} {line.strip()}"
        for file in sources(*CHECKED)
        if file != Path(__file__)
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert not wrong


def test_every_module_starts_with_what_it_holds() -> None:
    silent = [
        relative(file)
        for file in sources("*.py")
        if "tests" not in file.parts
        and not ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert not silent


def test_no_open_promise_stands_in_the_code() -> None:
    promise = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
    wrong = [
        f"{relative(file)}:{number}"
        for file in sources("*.py", "*.c", "*.h")
        if file.name != Path(__file__).name
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if promise.search(line)
    ]
    assert not wrong
