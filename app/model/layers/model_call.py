"""Calling a model's forward with what it takes.

Not every forward takes ``position_ids``: some models have no positions but in their attention. Not
every one takes ``logits_to_keep``: there the rows are picked where they enter the output embedding.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Protocol

from torch import Tensor
from transformers import PreTrainedModel

from app.core.errors import UnsupportedModel

_WANTS_MORE = (AttributeError, IndexError, KeyError, NotImplementedError, TypeError, ValueError)


def logits_of(
    model: PreTrainedModel, token_ids: Tensor, positions: Tensor | None, rows: Tensor | int
) -> Tensor:
    """Logits of one text, without a cache: [R, width]. See ``logits_of_texts``."""
    logits: Tensor = logits_of_texts(model, token_ids, positions, rows)[0]
    return logits


def logits_of_texts(
    model: PreTrainedModel, token_ids: Tensor, positions: Tensor | None, rows: Tensor | int
) -> Tensor:
    """Logits of texts of one length, without a cache: [B, R, width].

    ``token_ids`` and ``positions`` are [B, T]; without positions the model makes up its own.
    ``rows`` [R] are those of T to compute logits for; 0: all.
    """
    arguments: dict[str, Any] = {"input_ids": token_ids, "use_cache": False}
    if positions is not None and takes_positions(model):
        arguments["position_ids"] = positions
    if _takes(type(model), "logits_to_keep"):
        return _logits(model, arguments | {"logits_to_keep": rows})
    if isinstance(rows, int):
        return _logits(model, arguments)
    head: Any = model.get_output_embeddings()
    if head is None:
        raise UnsupportedModel(f"{type(model).__name__} cannot generate text: no output embedding")
    hook = head.register_forward_pre_hook(lambda _, inputs: (inputs[0][:, rows], *inputs[1:]))
    try:
        return _logits(model, arguments)
    finally:
        hook.remove()


class Route(Protocol):
    """A way out of a model's layers."""

    @property
    def target(self) -> object | None:
        """Where it leads; None while no step runs."""


def either_way(
    route: Route, own: Callable[..., Any], in_step: Callable[..., Any]
) -> Callable[..., Any]:
    """A function that is ``in_step`` while a step runs through ``route``, and ``own`` otherwise."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return (own if route.target is None else in_step)(*args, **kwargs)

    return function


def put_in_steps(
    module: Any, name: str, route: Route
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: what ``module`` has of that ``name`` is the function while a step runs."""

    def put(in_step: Callable[..., Any]) -> Callable[..., Any]:
        setattr(module, name, either_way(route, getattr(module, name), in_step))
        return in_step

    return put


@contextlib.contextmanager
def text_alone(model: PreTrainedModel) -> Iterator[None]:
    """Around a model's first passes: one that fails for want of something else is refused."""
    try:
        yield
    except _WANTS_MORE as error:
        raise UnsupportedModel(
            f"{type(model).__name__} does not run on text alone: {error}"
        ) from error


def hand_positions(model: PreTrainedModel) -> None:
    """Have ``position_ids`` handed to ``model``: its hooks take them where its forward does not."""
    vars(model)["hears_positions"] = True


def takes_positions(model: PreTrainedModel) -> bool:
    """Whether the model, or a part of it that it hands unknown arguments to, takes positions."""
    kind = type(model)
    if _takes(kind, "position_ids") or "hears_positions" in vars(model):
        return True
    parts = [part for part in model.children() if isinstance(part, PreTrainedModel)]
    return _takes_others(kind) and any(map(takes_positions, parts))


def _logits(model: PreTrainedModel, arguments: dict[str, Any]) -> Tensor:
    logits: Tensor = model(**arguments).logits
    return logits


@lru_cache
def _parameters(forward: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(forward).parameters


def _takes(kind: type[PreTrainedModel], name: str) -> bool:
    return name in _parameters(kind.forward)


def _takes_others(kind: type[PreTrainedModel]) -> bool:
    each = _parameters(kind.forward).values()
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in each)
