"""Optimizers and the cosine schedule, with PyTorch's names, formulas and state."""

from collections.abc import Callable, Iterable, Mapping
from math import cos, pi, sqrt
from typing import Any

from midge.core.autograd.modes import enable_grad
from midge.core.backend import Array, xp_of
from midge.core.errors import InputError
from midge.core.tensor import Tensor

Group = dict[str, Any]


class Optimizer:
    """Base of the optimizers.

    Args:
        params: tensors, or dicts {"params": tensors, option: value} for groups of their own.
        defaults: options of a group that does not set them.

    Attributes:
        param_groups: dicts of options, with the tensors under "params".
        state: what the optimizer remembers, by tensor.
    """

    def __init__(self, params: Iterable[Any], defaults: Mapping[str, Any]) -> None:
        """Add the groups."""
        self.defaults = dict(defaults)
        self.state: dict[Tensor, dict[str, Any]] = {}
        self.param_groups: list[Group] = []
        given = [params] if isinstance(params, dict) else list(params)
        if isinstance(params, Tensor) or not given:
            raise InputError(
                f"{type(self).__name__}: give a non-empty list of parameters, such as "
                "model.parameters()."
            )
        if not isinstance(given[0], dict):
            given = [{"params": given}]
        for group in given:
            self.add_param_group(group)

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Add tensors with options of their own.

        Raises:
            InputError: an unknown or impossible option, no leaf, or a tensor that is here already.
        """
        name = type(self).__name__
        params = group["params"]
        tensors = [params] if isinstance(params, Tensor) else list(params)
        unknown = [key for key in group if key not in self.defaults and key != "params"]
        if unknown:
            raise InputError(f"{name}: option {unknown[0]!r} is unknown; it has {self.defaults}.")
        known = {id(t) for g in self.param_groups for t in g["params"]}
        for index, tensor in enumerate(tensors):
            if not isinstance(tensor, Tensor) or not tensor.is_leaf:
                raise InputError(f"{name}: parameter {index} is no leaf tensor.")
            if id(tensor) in known:
                raise InputError(f"{name}: parameter {index} is there twice.")
            known.add(id(tensor))
        full = {**self.defaults, **group, "params": tensors}
        self._check(full)
        self.param_groups.append(full)

    def _check(self, group: Group) -> None:
        """Refuse impossible options."""
        for option in ("lr", "weight_decay", "eps", "momentum"):
            if group.get(option, 0) < 0:
                raise InputError(f"{type(self).__name__}: {option} is {group[option]}, below 0.")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or set them to zero."""
        for group in self.param_groups:
            for tensor in group["params"]:
                if set_to_none:
                    tensor.grad = None
                elif tensor.grad is not None:
                    tensor.grad = Tensor(tensor.grad.array * 0)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every tensor that has a gradient.

        Args:
            closure: computes the loss again, gradients included; called first.

        Returns:
            What the closure returned, or None.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group in self.param_groups:
            for tensor in group["params"]:
                if tensor.grad is not None:
                    state = self.state.setdefault(tensor, {})
                    self._update(tensor.array, tensor.grad.array, state, group)
                    tensor._version[0] += 1
        return loss

    def _update(self, p: Array, grad: Array, state: dict[str, Any], group: Group) -> None:
        """Change one parameter in place."""
        raise NotImplementedError(f"{type(self).__name__} has no _update().")

    def state_dict(self) -> dict[str, Any]:
        """Return state and options, with tensors replaced by their numbers."""
        order = [t for g in self.param_groups for t in g["params"]]
        number = {id(t): i for i, t in enumerate(order)}
        groups = [
            {k: [number[id(t)] for t in v] if k == "params" else v for k, v in g.items()}
            for g in self.param_groups
        ]
        state = {i: dict(self.state[t]) for i, t in enumerate(order) if t in self.state}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over state and options of an optimizer over the same list of tensors.

        Raises:
            InputError: the groups have other sizes.
        """
        groups = state_dict["param_groups"]
        sizes = [len(g["params"]) for g in groups]
        own = [len(g["params"]) for g in self.param_groups]
        if sizes != own:
            raise InputError(
                f"{type(self).__name__}: the state has groups of {sizes} parameters, this "
                f"optimizer of {own}."
            )
        order = [t for g in self.param_groups for t in g["params"]]
        for group, loaded in zip(self.param_groups, groups, strict=True):
            group.update({k: v for k, v in loaded.items() if k != "params"})
        self.state = {
            order[int(i)]: {k: _own(v, order[int(i)]) for k, v in entry.items()}
            for i, entry in state_dict["state"].items()
        }


def _own(value: Any, like: Tensor) -> Any:
    """Return a copy of a state tensor in the memory layout, dtype and device of its parameter."""
    if not isinstance(value, Tensor):
        return value
    moved = value.detach().to(like)
    copy = xp_of(like.array).empty_like(like.array)
    copy[...] = moved.array
    return Tensor(copy)


def _zeros(state: dict[str, Any], name: str, like: Array) -> Array:
    """Return a state array, zeros in the layout of `like` at first."""
    if name not in state:
        state[name] = Tensor(xp_of(like).zeros_like(like))
    return state[name].array


class SGD(Optimizer):
    """Gradient descent with momentum.

    g = grad + weight_decay * p; v = momentum * v + (1 - dampening) * g (v = g at first);
    p = p - lr * v, or p - lr * (g + momentum * v) with Nesterov.

    Args:
        params: tensors or groups.
        lr: step size.
        momentum: weight of the past steps.
        dampening: share of the gradient kept out of v.
        weight_decay: factor of the L2 penalty.
        nesterov: look ahead.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        """Add the groups."""
        options = {"lr": lr, "momentum": momentum, "dampening": dampening}
        super().__init__(params, {**options, "weight_decay": weight_decay, "nesterov": nesterov})

    def _check(self, group: Group) -> None:
        super()._check(group)
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise InputError("SGD: nesterov needs momentum > 0 and dampening 0.")

    def _update(self, p: Array, grad: Array, state: dict[str, Any], group: Group) -> None:
        lr, momentum = group["lr"], group["momentum"]
        if group["weight_decay"]:
            grad = grad + group["weight_decay"] * p
        if momentum:
            if "momentum_buffer" in state:
                v = state["momentum_buffer"].array
                v *= momentum
                v += (1 - group["dampening"]) * grad
            else:
                v = _zeros(state, "momentum_buffer", p)
                v[...] = grad
            grad = grad + momentum * v if group["nesterov"] else v
        p -= lr * grad


class Adam(Optimizer):
    """Adam; weight_decay is an L2 penalty on the gradient.

    m = b1 * m + (1 - b1) * g; v = b2 * v + (1 - b2) * g^2;
    p = p - lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)

    Args:
        params: tensors or groups.
        lr: step size.
        betas: b1 and b2.
        eps: added to the root.
        weight_decay: factor of the penalty.

    Source: Kingma and Ba, Adam, 2015.
    """

    decoupled = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        """Add the groups."""
        options = {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, options)

    def _check(self, group: Group) -> None:
        super()._check(group)
        if not all(0 <= beta < 1 for beta in group["betas"]):
            raise InputError(f"{type(self).__name__}: betas are {group['betas']}; use [0, 1).")

    def _update(self, p: Array, grad: Array, state: dict[str, Any], group: Group) -> None:
        xp = xp_of(p)
        lr, (beta1, beta2), decay = group["lr"], group["betas"], group["weight_decay"]
        state["step"] = step = state.get("step", 0) + 1
        m, v = _zeros(state, "exp_avg", p), _zeros(state, "exp_avg_sq", p)
        if decay and self.decoupled:
            p *= 1 - lr * decay
        elif decay:
            grad = grad + decay * p
        m += (1 - beta1) * (grad - m)
        v *= beta2
        v += (1 - beta2) * grad * grad
        denominator = xp.sqrt(v)
        denominator /= sqrt(1 - beta2**step)
        denominator += group["eps"]
        change = m / denominator
        change *= lr / (1 - beta1**step)
        p -= change


class AdamW(Adam):
    """Adam with decoupled weight decay: p = p * (1 - lr * weight_decay) before the step.

    Args:
        params: tensors or groups.
        lr: step size.
        betas: b1 and b2.
        eps: added to the root.
        weight_decay: share of the weights taken away a step, times lr.

    Source: Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019.
    """

    decoupled = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        """Add the groups."""
        super().__init__(params, lr, betas, eps, weight_decay)


class CosineAnnealingLR:
    """Learning rate that falls from its first value to eta_min along half a cosine.

    lr(t) = eta_min + (lr(0) - eta_min) * (1 + cos(pi * t / T_max)) / 2

    Args:
        optimizer: whose groups are changed.
        T_max: number of step() calls after which eta_min is reached.
        eta_min: last learning rate.

    Source: Loshchilov and Hutter, SGDR, 2017, equation 5.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        """Remember the first learning rates."""
        if T_max < 1:
            raise InputError(f"CosineAnnealingLR: T_max is {T_max}; it must be >= 1.")
        self.optimizer = optimizer
        self.T_max = T_max
        self.eta_min = eta_min
        self.last_epoch = 0
        self.base_lrs = [group["lr"] for group in optimizer.param_groups]

    def step(self) -> None:
        """Go one step on; call it after optimizer.step()."""
        self.last_epoch += 1
        share = (1 + cos(pi * self.last_epoch / self.T_max)) / 2
        for group, base in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            group["lr"] = self.eta_min + (base - self.eta_min) * share

    def get_last_lr(self) -> list[float]:
        """Return the learning rate of every group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the schedule."""
        return {
            "T_max": self.T_max,
            "eta_min": self.eta_min,
            "last_epoch": self.last_epoch,
            "base_lrs": list(self.base_lrs),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go to a position that `state_dict` returned; the optimizer's own state holds the lr."""
        self.T_max = state_dict["T_max"]
        self.eta_min = state_dict["eta_min"]
        self.last_epoch = state_dict["last_epoch"]
        self.base_lrs = list(state_dict["base_lrs"])
