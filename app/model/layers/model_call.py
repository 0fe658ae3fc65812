"""Calls a model's forward with the arguments that it accepts.

Not every forward takes ``position_ids``: some models have positions in their attention only. Not
every one takes ``logits_to_keep``: there the rows are selected at the output embedding's input.

Two kinds of models count positions themselves: RoBERTa and the like, over the tokens that are not
padding, starting after the padding id; and position embeddings that get no positions. A step's row
holds parts of many sequences, so ``give_positions`` makes both use the step's positions. A padding
token inside a text is a token like any other.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Protocol

from torch import Tensor, nn
from transformers import PreTrainedModel

from app.core.errors import UnsupportedModel
from app.model.device import failure_of

_WANTS_MORE = (AttributeError, IndexError, KeyError, TypeError, ValueError)
_FROM_PADDING = "create_position_ids_from_input_ids"
_HOOKED = "has_position_hooks"
"""Attribute of models whose positions are taken by hooks."""


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
    with head.register_forward_pre_hook(lambda _, inputs: (inputs[0][:, rows], *inputs[1:])):
        return _logits(model, arguments)


class Route(Protocol):
    """A route for the calls of a model's layers."""

    @property
    def target(self) -> object | None:
        """Receiver of the calls; None while no step runs."""


def either_way(
    route: Route, own: Callable[..., Any], in_step: Callable[..., Any]
) -> Callable[..., Any]:
    """A function that is ``in_step`` while a step runs through ``route``, and ``own`` otherwise."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return (own if route.target is None else in_step)(*args, **kwargs)

    return function


def code_names(module: nn.Module) -> tuple[str, ...]:
    """Names in the code of a module's forward, in the order of their first use."""
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return () if code is None else code.co_names


def put_in_steps(
    module: Any, name: str, route: Route
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function replaces ``module``'s attribute ``name`` while a step runs."""

    def put(in_step: Callable[..., Any]) -> Callable[..., Any]:
        setattr(module, name, either_way(route, getattr(module, name), in_step))
        return in_step

    return put


@contextlib.contextmanager
def text_alone(model: PreTrainedModel) -> Iterator[None]:
    """For a model's first passes: ``UnsupportedModel`` if they need more inputs than text, or torch
    has no kernel for the shape of a layer."""
    try:
        yield
    except (*_WANTS_MORE, RuntimeError) as error:
        if failure_of(error) is not None:
            raise
        raise UnsupportedModel(
            f"{type(model).__name__} does not run on two tokens of text: {error}"
        ) from error


def takes_positions(model: PreTrainedModel) -> bool:
    """Whether the model, or a part of it that it passes unknown arguments to, takes positions.

    Hooks of ``give_positions`` may take them where no forward does.
    """
    kind = type(model)
    if _takes(kind, "position_ids") or _HOOKED in vars(model):
        return True
    each = _parameters(kind.forward).values()
    passes_on = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in each)
    parts = [part for part in model.children() if isinstance(part, PreTrainedModel)]
    return passes_on and any(map(takes_positions, parts))


def _logits(model: PreTrainedModel, arguments: dict[str, Any]) -> Tensor:
    logits: Tensor = model(**arguments).logits
    return logits


@lru_cache
def _parameters(forward: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(forward).parameters


def _takes(kind: type[PreTrainedModel], name: str) -> bool:
    return name in _parameters(kind.forward)


def give_positions(model: PreTrainedModel) -> None:
    """Make models that count from another start, or themselves, take ``position_ids`` from 0."""
    first = max((_first_position(module) for module in model.modules()), default=0)
    if not takes_positions(model):
        _pass_positions(model, [module for module in model.modules() if _counts(module)])
    elif first:
        _shift(model, first)


def _shift(model: PreTrainedModel, first: int) -> None:
    def shift(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
        if kwargs.get("position_ids") is not None:
            kwargs["position_ids"] = kwargs["position_ids"] + first
        return args, kwargs

    model.register_forward_pre_hook(shift, with_kwargs=True)
    text: Any = model.config.get_text_config()
    text.max_position_embeddings -= first  # those before it are padding's


def _pass_positions(model: PreTrainedModel, counters: list[nn.Module]) -> None:
    given: list[Tensor | None] = [None]
    """Positions of the step, [T]; None: the model counts them itself."""

    def take(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
        positions = kwargs.pop("position_ids", None)
        given[0] = None if positions is None else positions[0]
        return args, kwargs

    def give(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
        if given[0] is not None:
            kwargs["position_ids"] = given[0]
        return args, kwargs

    for module in counters:
        module.register_forward_pre_hook(give, with_kwargs=True)
    if counters:
        model.register_forward_pre_hook(take, with_kwargs=True)
        vars(model)[_HOOKED] = True


def _first_position(module: Any) -> int:
    padding = getattr(module, "padding_idx", None)
    return padding + 1 if hasattr(module, _FROM_PADDING) and isinstance(padding, int) else 0


def _counts(module: nn.Module) -> bool:
    """Whether ``module`` is an embedding that counts positions itself unless it is given them."""
    own: Callable[..., Any] = type(module).forward
    if not isinstance(module, nn.Embedding) or own is nn.Embedding.forward:
        return False
    names = inspect.signature(own).parameters
    counted = {"past_key_values_length", "cache_length"}  # before transformers 5.24, and from it on
    return "position_ids" in names and not counted.isdisjoint(names)
