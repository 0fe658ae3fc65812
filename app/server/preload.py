"""Python types that are compiled before the first request: ``--preload module:Type``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

from app.constraint.limits import Limits
from app.core.constraint import Constraint, ConstraintSpec
from app.core.errors import LeapjsonError

_WARM_STEPS = 64


def load_types(names: Sequence[str], limits: Limits) -> dict[str, ConstraintSpec]:
    """Import the types and compile each once, to find errors early; the specifications by name.

    ``names`` are like ``module:Type``; modules may be in the working directory. A pydantic model
    becomes the schema that OpenAI's SDK sends for it. ``limits``: those of requests. Raises
    ``LeapjsonError`` that names ``module:Type``.
    """
    if not names:
        return {}
    from app.constraint import compile_program, from_python_type

    loaded = {}
    for name in names:
        try:
            spec = from_python_type(_import(name), strict=True, close_objects=True)
            compile_program(spec, limits)
        except (LeapjsonError, ImportError) as error:
            raise LeapjsonError(f"cannot preload {name}: {error}") from error
        loaded[name] = spec
    return loaded


def warm(constraint: Constraint) -> None:
    """Compute the first masks along a shortest answer, so that no request waits for them."""
    state = constraint.start()
    for _ in range(_WARM_STEPS):
        state.mask()
        onward = state.forced() or state.shortest_completion()[:1]
        if not onward:
            return
        state.accept_bytes(onward)


def _import(name: str) -> Any:
    """Raises ``ImportError`` or ``LeapjsonError``."""
    module, _, attribute = name.partition(":")
    if not (module and attribute):
        raise LeapjsonError("write it as module:Type")
    directory = str(Path.cwd())
    sys.path.insert(0, directory)  # as ``python -m`` has it, also for the ``leapjson`` command
    try:
        found = import_module(module)
    except ImportError:
        raise
    except Exception as error:
        raise LeapjsonError(f"importing it failed: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(directory)
    try:
        return attrgetter(attribute)(found)
    except AttributeError as error:
        raise LeapjsonError(str(error)) from error
