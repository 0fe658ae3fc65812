"""Programs as JSON, for a store that servers share: loading one executes no code from it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from app.constraint.json.text import json_pool
from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import ExpressionPool
from app.constraint.language.nodes import Notation
from app.constraint.language.remainders import Remainder
from app.constraint.limits import Limits
from app.constraint.program import Program, compile_program
from app.core.constraint import ConstraintSpec, Relaxation
from app.core.verbatim import Hole, Source

_CLASSES = {each.__name__: each for each in (Hole, Notation, Relaxation, Remainder, Source)}
_SEQUENCES = {"tuple": tuple, "set": set, "frozenset": frozenset, "dict": dict}
_MOST_EXPRESSIONS = 200_000
"""Maximum expressions of a stored program, some 10 MB of JSON: workers' answers are bounded."""
_ADDED = ("kinds", "operands", "nullable", "regular", "bodies")


@cache
def identity(limits: Limits) -> str:
    """A hexadecimal digest of the compiler's code and of ``limits``. A program of another identity
    may accept other answers."""
    digest = hashlib.blake2b(repr(limits).encode(), digest_size=16)
    for folder in ("constraint", "core"):
        for path in sorted((Path(__file__).parents[1] / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def compile_and_dump(spec: ConstraintSpec, limits: Limits) -> tuple[Program, bytes]:
    """The program, and its ``dump``; b"" if it has more than ``_MOST_EXPRESSIONS``.

    Raises as ``compile_program``.
    """
    program = compile_program(spec, limits)
    small = len(program.derivatives.pool) - program.derivatives.pool.num_shared <= _MOST_EXPRESSIONS
    return program, dump(program, limits) if small else b""


def dump(program: Program, limits: Limits) -> bytes:
    """JSON from which ``load`` makes the same program, which was compiled with ``limits``."""
    pool, derivatives = program.derivatives.pool, program.derivatives.__getstate__()
    _, (base, max_nodes, added, names) = pool.__reduce__()
    del derivatives["pool"], derivatives["widths"]
    parts = {field.name: getattr(program, field.name) for field in fields(program)}
    value = {
        "identity": identity(limits),
        **{"base": base is not None, "max_nodes": max_nodes, "names": names},
        **dict(zip(_ADDED, added, strict=False)),
        **{"derivatives": derivatives, "program": {**parts, "derivatives": None}},
    }
    return json.dumps(_plain(value), separators=(",", ":")).encode()


def load(data: bytes, limits: Limits) -> Program:
    """The dumped program. Raises ``ValueError``, ``TypeError`` or ``LookupError`` for others."""
    value = _restored(json.loads(data))
    if value["identity"] != identity(limits):
        raise ValueError("it was compiled by another version, or with other limits")
    pool: ExpressionPool
    pool = json_pool(value["max_nodes"]) if value["base"] else ExpressionPool(value["max_nodes"])
    for name in _ADDED:
        getattr(pool, name).extend(value[name])
    for number in range(pool.num_shared, len(pool)):
        pool.index[pool.kinds[number]][pool.operands[number]] = number
    vars(pool).update(value["names"])
    derivatives = Derivatives(pool)
    derivatives.__setstate__(value["derivatives"])
    return Program(**{**value["program"], "derivatives": derivatives})


def _plain(value: Any) -> Any:
    """``value`` as JSON; a type that JSON lacks is an object with its class as the only key."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes() | bytearray():
            return {type(value).__name__: value.decode("latin-1")}
        case list():
            return [_plain(each) for each in value]
        case dict():
            return {"dict": [[_plain(key), _plain(each)] for key, each in value.items()]}
    name = type(value).__name__
    if name in _SEQUENCES:
        return {name: [_plain(each) for each in value]}
    if type(value) is not _CLASSES.get(name):
        raise TypeError(f"a program holds a {type(value)}")
    members = (
        [getattr(value, each.name) for each in fields(value)] if is_dataclass(value) else value
    )
    return {name: [_plain(each) for each in members]}


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return [_restored(each) for each in value]
    if not isinstance(value, dict):
        return value
    ((name, inside),) = value.items()
    if name in ("bytes", "bytearray"):
        return (bytes if name == "bytes" else bytearray)(inside, "latin-1")
    if name in _SEQUENCES:
        return _SEQUENCES[name](_restored(each) for each in inside)
    return _CLASSES[name](*[_restored(each) for each in inside])
