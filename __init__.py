"""midge: neural networks on small devices, with the same bits everywhere.

The repository root is the package: ``core/`` is imported as ``midge.core``. Public names load on
first use, so that ``midge --help`` and ``import midge`` stay fast.
"""

from importlib import import_module
from importlib.metadata import version
from typing import Any

__version__ = version("midge")

# public name -> module that defines it
_PUBLIC = {
    "CheckError": "midge.core.errors",
    "InputError": "midge.core.errors",
    "MidgeError": "midge.core.errors",
    "Tensor": "midge.core",
}

__all__ = ["CheckError", "InputError", "MidgeError", "Tensor", "__version__"]


def __getattr__(name: str) -> Any:
    """Import a public name the first time it is asked for."""
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'midge' has no attribute {name!r}")
