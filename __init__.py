"""midge: neural networks on small devices, with the same bits everywhere.

The repository root is the package: ``core/`` is imported as ``midge.core``. Public names load on
first use, so that ``midge --help`` and ``import midge`` stay fast.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

__version__ = version("midge")

# public name -> module that defines it
_PUBLIC = {
    "CheckError": "midge.core.errors",
    "InputError": "midge.core.errors",
    "MidgeError": "midge.core.errors",
    "Session": "midge.convert.api",
    "Tensor": "midge.core",
    "ToolError": "midge.core.errors",
    "UnsupportedError": "midge.core.errors",
    "compile": "midge.convert.api",
    "load_module": "midge.convert.to_module",
    "quantize": "midge.convert.api",
    "verify": "midge.convert.api",
}

if TYPE_CHECKING:
    from midge.convert.api import Session, compile, quantize, verify
    from midge.convert.to_module import load_module
    from midge.core import Tensor
    from midge.core.errors import CheckError, InputError, MidgeError, ToolError, UnsupportedError

__all__ = [
    "CheckError",
    "InputError",
    "MidgeError",
    "Session",
    "Tensor",
    "ToolError",
    "UnsupportedError",
    "__version__",
    "compile",
    "load_module",
    "quantize",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import a public name the first time it is asked for."""
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'midge' has no attribute {name!r}")
