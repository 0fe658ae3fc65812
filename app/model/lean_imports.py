"""Imports of transformers that a server has no use for: torch's compiler, and DTensor.

They take 3 s of processor time and 145 MiB. Models run without them: functions are only marked for
the compiler, and DTensor shares weights between devices. A later use imports the real ones.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

_COMPILER = "torch._dynamo"
_MASKS = "_trace_wrapped_higher_order_op"
"""The one module of the compiler that transformers uses, for masks."""


def _unmarked(function: Any = None, *_: Any, **__: Any) -> Any:
    return _unmarked if function is None else function


_MARKS = dict.fromkeys(("disable", "allow_in_graph", "assume_constant_result"), _unmarked)


class _Marks(ModuleType):
    """Stands for the compiler until it is used; its marks change no function."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what inspect asks of every module
            raise AttributeError(name)
        return _MARKS.get(name) or getattr(_compiler(), name)


class _Submodules(MetaPathFinder, Loader):
    """An import of another submodule imports the compiler first."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name.startswith(f"{_COMPILER}.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        _compiler()
        return importlib.import_module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """The module has run already."""


_SUBMODULES = _Submodules()


def _compiler() -> ModuleType:
    if isinstance(sys.modules.get(_COMPILER), _Marks):
        del sys.modules[_COMPILER]
        sys.meta_path.remove(_SUBMODULES)
    return importlib.import_module(_COMPILER)


def leave_out(*, distributed: bool) -> None:
    """Call before models of transformers are imported. ``distributed``: leave out DTensor, too."""
    file = Path(torch.__path__[0], "_dynamo", f"{_MASKS}.py")
    if _COMPILER not in sys.modules and file.exists():
        sys.modules[_COMPILER] = vars(torch)["_dynamo"] = marks = _Marks(_COMPILER)
        marks.__path__ = []
        sys.meta_path.insert(0, _SUBMODULES)
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
