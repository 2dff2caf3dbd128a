"""The tree below a Module: how attributes become parameters, buffers and sub-modules."""

from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar

from midge.core.errors import InputError, did_you_mean
from midge.core.nn.parameter import Parameter
from midge.core.tensor import Tensor

T = TypeVar("T")
Pairs = Iterator[tuple[str, T]]
_TABLES = ("_parameters", "_buffers", "_modules")


class Tree:
    """Base of Module: registration and walks; it knows nothing of calls, state or modes."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]
    _temporary: set[str]  # buffers that are not part of the state

    def __init__(self) -> None:
        """Start empty."""
        values = self.__dict__
        for table in _TABLES:
            values[table] = {}
        values["_temporary"] = set()

    def __setattr__(self, name: str, value: Any) -> None:
        """Register a Parameter or a Module; update a buffer; set anything else."""
        values = self.__dict__
        if "_parameters" not in values:
            if isinstance(value, Parameter | Tree):
                raise InputError(
                    f"{type(self).__name__}: call super().__init__() before assigning {name!r}."
                )
            object.__setattr__(self, name, value)
            return
        if isinstance(value, Parameter):
            self.register_parameter(name, value)
        elif isinstance(value, Tree):
            self.add_module(name, value)
        elif value is None and name in values["_parameters"]:
            values["_parameters"][name] = None
        elif name in values["_parameters"]:
            raise InputError(
                f"{type(self).__name__}.{name} is a parameter; assign a Parameter or None, not "
                f"{type(value).__name__}."
            )
        elif name in values["_buffers"]:
            self.register_buffer(name, value, name not in values["_temporary"])
        else:
            values["_modules"].pop(name, None)
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        """Find parameters, buffers and sub-modules; only called for other names."""
        values = self.__dict__
        for table in _TABLES:
            if table in values and name in values[table]:
                return values[table][name]
        raise AttributeError(
            f"{type(self).__name__} has no attribute {name!r}.{did_you_mean(name, dir(self))}"
        )

    def __delattr__(self, name: str) -> None:
        """Remove a parameter, a buffer, a sub-module or an attribute."""
        for table in _TABLES:
            if self.__dict__[table].pop(name, self) is not self:
                self._temporary.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        """List everything that attribute access finds."""
        names = list(super().__dir__())
        for table in _TABLES:
            names += self.__dict__.get(table, {})
        return names

    def _claim(self, name: str, table: str) -> None:
        """Make `name` free for an entry of `table`."""
        if not name or "." in name:
            raise InputError(f"{type(self).__name__}: {name!r} is no name; it must have no dot.")
        for other in _TABLES:
            if other != table:
                self.__dict__[other].pop(name, None)
        self.__dict__.pop(name, None)

    def register_parameter(self, name: str, parameter: Parameter | None) -> None:
        """Add a parameter, or None for one that this instance does not have."""
        if parameter is not None and parameter.grad_fn is not None:
            raise InputError(f"{name}: a parameter must be a leaf; detach() it first.")
        self._claim(name, "_parameters")
        self._parameters[name] = parameter

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is not trained; a persistent one is part of the state."""
        if tensor is not None and not isinstance(tensor, Tensor):
            raise InputError(f"{name}: a buffer must be a Tensor, not {type(tensor).__name__}.")
        self._claim(name, "_buffers")
        self._buffers[name] = tensor
        (self._temporary.discard if persistent else self._temporary.add)(name)

    def add_module(self, name: str, module: Any) -> None:
        """Add a sub-module."""
        if not isinstance(module, Tree):
            raise InputError(f"{type(self).__name__}.{name}: {type(module).__name__} is no Module.")
        self._claim(name, "_modules")
        self._modules[name] = module

    # -- walking the tree -------------------------------------------------------------------------

    def named_children(self) -> Pairs[Any]:
        """Yield the direct sub-modules with their names."""
        yield from self._modules.items()

    def children(self) -> Iterator[Any]:
        """Yield the direct sub-modules."""
        for _, module in self.named_children():
            yield module

    def named_modules(self, prefix: str = "") -> Pairs[Any]:
        """Yield this module and all below it, each once, with its dotted path."""
        seen: set[int] = set()
        stack: list[tuple[str, Any]] = [(prefix, self)]
        while stack:
            path, module = stack.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            yield path, module
            below = [(f"{path}.{n}" if path else n, m) for n, m in module.named_children()]
            stack += reversed(below)

    def modules(self) -> Iterator[Any]:
        """Yield this module and all below it, each once."""
        for _, module in self.named_modules():
            yield module

    def _named(self, table: str, prefix: str, recurse: bool, twice: bool) -> Pairs[Any]:
        """Yield the entries of one table, each tensor once unless `twice`."""
        seen: set[int] = set()
        modules = self.named_modules(prefix) if recurse else iter([(prefix, self)])
        for path, module in modules:
            for name, tensor in module.__dict__[table].items():
                if tensor is None or (id(tensor) in seen and not twice):
                    continue
                seen.add(id(tensor))
                yield (f"{path}.{name}" if path else name), tensor

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Pairs[Parameter]:
        """Yield the parameters, shared ones once, with their dotted names."""
        return self._named("_parameters", prefix, recurse, twice=False)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Yield the parameters, shared ones once."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Pairs[Tensor]:
        """Yield the buffers with their dotted names."""
        return self._named("_buffers", prefix, recurse, twice=False)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yield the buffers."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def get_submodule(self, target: str) -> Any:
        """Return the module with this dotted path; "" is this module."""
        module: Any = self
        for name in target.split(".") if target else ():
            found = module._modules.get(name)
            if found is None:
                hint = did_you_mean(target, [n for n, _ in self.named_modules()])
                raise InputError(f"{type(self).__name__} has no sub-module {target!r}.{hint}")
            module = found
        return module

    def apply(self, function: Callable[[Any], Any]) -> Self:
        """Call `function` on every module, children first; returns self."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    def _state(self) -> Pairs[Tensor]:
        """Yield parameters and persistent buffers with their names, shared ones under each."""
        stack: list[tuple[str, Any]] = [("", self)]
        while stack:
            path, module = stack.pop()
            for table in ("_parameters", "_buffers"):
                for name, tensor in module.__dict__[table].items():
                    if tensor is not None and name not in module._temporary:
                        yield f"{path}{name}", tensor
            stack += reversed([(f"{path}{n}.", m) for n, m in module.named_children()])
