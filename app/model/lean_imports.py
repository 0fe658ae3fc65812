"""Imports of torch and transformers that a server has no use for: torch's compiler, sympy, DTensor.

They take 3.6 s of processor time and 170 MiB. Models run without them: functions are only marked
for the compiler, no shape is symbolic, and DTensor shares weights between devices. A later use
imports the real ones, but modules that have imported a function by name keep the simple one.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

_COMPILER = "torch._dynamo"
_MASKS = "_trace_wrapped_higher_order_op"
"""The one module of the compiler that transformers uses, for masks."""


def _unmarked(function: Any = None, *_: Any, **__: Any) -> Any:
    return _unmarked if function is None else function


_STAND_INS: dict[str, dict[str, Any]] = {
    _COMPILER: dict.fromkeys(("disable", "allow_in_graph", "assume_constant_result"), _unmarked),
    # Operations on the meta device ask whether their arguments are symbolic.
    "sympy": {"Basic": type("Basic", (), {})},
    "torch.fx.experimental.symbolic_shapes": {
        **dict.fromkeys(("expect_true", "guard_or_false", "guard_or_true"), bool),
        **dict.fromkeys(("guard_size_oblivious", "statically_known_true"), bool),
        "guarding_hint_or_throw": int,
        "has_guarding_hint": lambda _: True,
        "is_nested_int": lambda _: False,
        "sym_and": lambda *each: all(each),
        "sym_eq": lambda one, other: one == other if isinstance(one, int) else [*one] == [*other],
        "sym_or": lambda *each: any(each),
    },
}
"""Attributes by module: those that a start uses, and that need not be the real ones."""


class _StandIn(ModuleType):
    """Stands for a module until another attribute than those of ``_STAND_INS`` is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what inspect asks of every module
            raise AttributeError(name)
        own = _STAND_INS[self.__name__] if sys.modules.get(self.__name__) is self else {}
        return own[name] if name in own else getattr(_real(self.__name__), name)


class _Submodules(MetaPathFinder, Loader):
    """An import of a submodule imports the real module first."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        stands_in = isinstance(sys.modules.get(name.rpartition(".")[0]), _StandIn)
        return ModuleSpec(name, self) if stands_in else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        _real(spec.name.rpartition(".")[0])
        return importlib.import_module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """The module has run already."""


def _real(name: str) -> ModuleType:
    if isinstance(sys.modules.get(name), _StandIn):
        del sys.modules[name]
    return importlib.import_module(name)


def leave_out(*, distributed: bool) -> None:
    """Call before models of transformers are imported. ``distributed``: leave out DTensor, too."""
    file = Path(torch.__path__[0], "_dynamo", f"{_MASKS}.py")
    if _COMPILER not in sys.modules and file.exists():
        for name in _STAND_INS.keys() - sys.modules.keys():
            stand_in, parent = _StandIn(name), name.rpartition(".")[0]
            stand_in.__spec__, stand_in.__path__ = find_spec(name), []
            sys.modules[name] = stand_in
            if parent:
                vars(sys.modules[parent])[name.removeprefix(f"{parent}.")] = stand_in
        sys.meta_path.insert(0, _Submodules())
        spec: Any = spec_from_file_location(f"{_COMPILER}.{_MASKS}", file)
        sys.modules[spec.name] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[spec.name])
    if distributed:
        from transformers.utils.import_utils import is_torch_distributed_available

        attributes = vars(torch.distributed)
        is_available = attributes["is_available"]
        attributes["is_available"] = lambda: False
        is_torch_distributed_available()  # transformers remembers the answer
        attributes["is_available"] = is_available
