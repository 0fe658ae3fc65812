"""Imports of torch and transformers that a server has no use for.

Compiler, export, quantisation, sympy and DTensor take 5 s of processor time and 195 MiB. Models
run without them: functions are only marked for the compiler, no shape is symbolic, few modules need
kernels in Python on the meta device (see ``with_kernels``), weights are quantised by other
packages, and DTensor shares weights between devices. A later use imports the real ones, but modules
that have imported a function by name keep the simple one.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar, cast

T = TypeVar("T")

_COMPILER = "torch._dynamo"
_MASKS = "_trace_wrapped_higher_order_op"
"""The one module of the compiler that transformers uses, for masks."""
_META = "torch._meta_registrations"
"""Kernels in Python for the meta device, of operations that have none in C++."""


def _unmarked(function: Any = None, *_: Any, **__: Any) -> Any:
    return _unmarked if function is None else function


_STAND_INS: dict[str, dict[str, Any]] = {
    _META: {},
    "torch.ao": {},
    **{f"torch.nn.{each}": {} for each in ("intrinsic", "qat", "quantizable", "quantized")},
    "torch.quantization": {},
    "torch.export": {},
    "torch._export": {"wrappers": SimpleNamespace(allow_in_pre_dispatch_graph=_unmarked)},
    _COMPILER: dict.fromkeys(("disable", "allow_in_graph", "assume_constant_result"), _unmarked),
    # The kernels in Python test whether their arguments are symbolic.
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
"""Replacements for the attributes that are used, by module."""


class _StandIn(ModuleType):
    """Stands for a module until another attribute than those of ``_STAND_INS`` is used."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__, self.__path__ = ModuleSpec(name, None), []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # ``inspect`` reads such names of every module
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
    for module in (_META, name):  # the real module may compute on the meta device
        if isinstance(sys.modules.get(module), _StandIn):
            sys.modules.pop(module, None)
        importlib.import_module(module)
    return sys.modules[name]


def with_kernels(build: Callable[[], T]) -> T:
    """``build()``, a model on the meta device, with torch's kernels in Python if it needs them."""
    try:
        return build()
    except NotImplementedError:
        if not isinstance(sys.modules.get(_META), _StandIn):
            raise
    _real(_META)
    return build()


class _Names(MetaPathFinder):
    """An import of transformers takes the names of its models from a file: see ``_names``."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != "transformers.utils.import_utils":
            return None
        spec: Any = PathFinder.find_spec(name, path)
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            module.define_import_structure = partial(_names, module.define_import_structure)

        spec.loader.exec_module = exec_module
        return cast(ModuleSpec, spec)


def _names(find: Any, path: Any, prefix: str | None = None) -> Any:
    """``find``, with its result for all models in a file: it reads 1,700 files, twice a start."""
    models, version = Path(path), sys.modules["transformers"].__version__
    models = models.parent if models.suffix else models
    if models.parts[-2:] != ("transformers", "models") or "dev" in version:
        return find(path, prefix=prefix)
    file = Path(__file__).with_name("__pycache__") / f"names-of-transformers-{version}.json"
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        pairs = find(models).items()
        found = [[[*needs], {at: [*each] for at, each in names.items()}] for needs, names in pairs]
        with suppress(OSError):
            file.parent.mkdir(exist_ok=True)
            (part := file.with_suffix(f".{os.getpid()}")).write_text(json.dumps(found))
            part.replace(file)
    before = f"{prefix}." if prefix else ""
    return {frozenset(a): {before + at: set(names) for at, names in b.items()} for a, b in found}


def leave_out(*, distributed: bool) -> None:
    """Import torch and transformers. ``distributed``: leave out DTensor, too.

    If torch was imported before, as by a module of ``--preload``, only that is left out.
    """
    early = "torch" not in sys.modules
    if early:
        sys.modules.update({name: _StandIn(name) for name in _STAND_INS if name not in sys.modules})
        sys.meta_path.insert(0, _Submodules())
    import torch

    if early:
        for name in _STAND_INS:  # import sets no attribute for a module that is there already
            parent, _, child = name.rpartition(".")
            if parent:
                setattr(importlib.import_module(parent), child, sys.modules[name])
        with suppress(ImportError, AttributeError):  # torch.Generator needs it in 2.13
            base = importlib.import_module("torch._opaque_base").OpaqueBaseMeta
            cast(Any, torch._C)._set_generator_metaclass(base)
        if (file := Path(torch.__path__[0], "_dynamo", f"{_MASKS}.py")).exists():
            spec: Any = spec_from_file_location(f"{_COMPILER}.{_MASKS}", file)
            sys.modules[spec.name] = module_from_spec(spec)
            spec.loader.exec_module(sys.modules[spec.name])
    sys.meta_path.insert(0, names := _Names())
    from transformers.utils import import_utils

    sys.meta_path.remove(names)
    if distributed:
        attributes = vars(torch.distributed)
        is_available = attributes["is_available"]
        attributes["is_available"] = lambda: False
        import_utils.is_torch_distributed_available()  # transformers remembers the answer
        attributes["is_available"] = is_available
