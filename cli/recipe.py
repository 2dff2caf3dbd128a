"""Recipes: YAML files whose keys are checked against a schema, with the line of every fault."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from midge.core.errors import InputError, did_you_mean

Schema = Mapping[str, Any]
TEXT = "tag:yaml.org,2002:str"


def read_recipe(path: Path, schema: Schema) -> dict[str, Any]:
    """Return a recipe as plain dicts, every key known to `schema`.

    Args:
        path: a YAML file.
        schema: key -> True for a plain value, or a nested schema for a mapping.

    Raises:
        InputError: the file is missing or no YAML, or a key is unknown or given twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as text ({error}).") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or "no YAML"
        raise InputError(f"{path}: {where}{problem}.") from None
    except RecursionError:
        raise InputError(f"{path}: it is nested too deep.") from None
    if not isinstance(root, yaml.MappingNode):
        raise InputError(f"{path}: a recipe is a list of `key: value` lines.")
    _check(path, root, schema, "")
    value: dict[str, Any] = yaml.SafeLoader("").construct_document(root)
    return value


def _check(path: Path, node: yaml.MappingNode, schema: Schema, prefix: str) -> None:
    """Refuse unknown and repeated keys, here and below."""
    seen: set[str] = set()
    for key_node, value_node in node.value:
        key, line = str(key_node.value), key_node.start_mark.line + 1
        if key not in schema:
            hint = did_you_mean(key, schema) or f" Known: {', '.join(sorted(schema))}."
            raise InputError(f"{path}: line {line}: key {prefix + key!r} is unknown.{hint}")
        if key in seen:
            raise InputError(f"{path}: line {line}: key {prefix + key!r} stands twice.")
        seen.add(key)
        _keep_as_text(key_node, *(k for k, _ in _pairs(value_node)))
        nested = schema[key]
        if isinstance(nested, Mapping):
            if not isinstance(value_node, yaml.MappingNode):
                raise InputError(f"{path}: line {line}: {prefix + key!r} takes keys of its own.")
            if nested:
                _check(path, value_node, nested, f"{prefix}{key}.")


def _pairs(node: yaml.Node) -> list[tuple[yaml.Node, yaml.Node]]:
    return node.value if isinstance(node, yaml.MappingNode) else []


def _keep_as_text(*keys: yaml.Node) -> None:
    """Let keys stay the names that they are: YAML reads an input called `on` as true."""
    for key in keys:
        if isinstance(key, yaml.ScalarNode):
            key.tag = TEXT


def dataclass_schema(record: type) -> Schema:
    """Return the schema of a dataclass: its field names."""
    return {f.name: True for f in fields(record)}


def build(record: type, values: Mapping[str, Any], where: str) -> Any:
    """Make a dataclass from recipe values, converting numbers to the type of the default.

    Raises:
        InputError: a value has the wrong type.
    """
    converted = {}
    for f in fields(record):
        if f.name not in values:
            continue
        value, kind = values[f.name], type(f.default)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise InputError(f"{where}.{f.name}: {value!r} is no {kind.__name__}.")
        converted[f.name] = value
    return record(**converted)
