"""Sequential, ModuleList and Flatten: what arranges other modules and shapes."""

from collections.abc import Iterable, Iterator
from typing import Any

from midge.core.nn.module import Module
from midge.core.tensor import Tensor


class _Ordered(Module):
    """Modules under the names "0", "1", ... or under given names, in order."""

    def __len__(self) -> int:
        """Return the number of modules."""
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the modules."""
        return iter(self._modules.values())

    def __getitem__(self, index: Any) -> Any:
        """Return one module, or a container of the same kind for a slice."""
        modules = list(self._modules.values())
        if isinstance(index, slice):
            part = type(self)()
            for module in modules[index]:
                part.append(module)
            return part
        if not -len(modules) <= index < len(modules):
            raise IndexError(f"{type(self).__name__} has {len(modules)} modules, not {index}.")
        return modules[index]

    def append(self, module: Module) -> Any:
        """Add a module at the end; returns self."""
        self.add_module(str(len(self._modules)), module)
        return self


class Sequential(_Ordered):
    """Modules called one after another, each on the output of the one before.

    Args:
        modules: the modules, or one dict that names them.
    """

    def __init__(self, *modules: Any) -> None:
        """Add the modules."""
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], dict):
            for name, module in modules[0].items():
                self.add_module(name, module)
            return
        for module in modules:
            self.append(module)

    def forward(self, x: Any) -> Any:
        """Return the output of the last module."""
        for module in self._modules.values():
            x = module(x)
        return x


class ModuleList(_Ordered):
    """A list of modules; it has no forward().

    Args:
        modules: the modules.
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        """Add the modules."""
        super().__init__()
        self.extend(modules)

    def extend(self, modules: Iterable[Module]) -> "ModuleList":
        """Add modules at the end; returns self."""
        for module in modules:
            self.append(module)
        return self


class Flatten(Module):
    """Joins the dimensions start_dim..end_dim.

    Args:
        start_dim: first dimension that is joined.
        end_dim: last one.
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        """Keep the dimensions."""
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, x: Tensor) -> Tensor:
        """Return x with fewer dimensions."""
        return x.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """Return the dimensions."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"
