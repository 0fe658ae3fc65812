"""The constraint of a command's options; shared by ``check`` and ``explain``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.constraint.limits import Limits
from app.core.constraint import ConstraintSpec
from app.core.errors import ConstraintError, LeapjsonError
from app.core.specs import Grammar, JsonSchema, Regex
from app.server.settings import Settings
from app.terminal.screen import paint_for

BAD_CONSTRAINT = 2
"""Exit status: the schema, pattern or grammar itself cannot be used."""


class UnusableInput(Exception):
    """A file cannot be read, or a schema is not JSON. ``str`` says which and why."""


@dataclass(frozen=True, slots=True)
class Constrained:
    """The constraint given by the options."""

    spec: ConstraintSpec
    schema: Any
    """The parsed schema, None for patterns and grammars."""
    title: str
    limits: Limits
    """Limits, as in the server's settings."""


def read_specification(options: argparse.Namespace) -> Constrained:
    """Raises ``UnusableInput``."""
    try:
        limits = Settings.read().constraint_limits()
    except LeapjsonError as error:
        name, _, reason = str(error).partition(": ")
        raise UnusableInput(f"LEAPJSON_{name.upper()}: {reason}") from None
    if options.regex is not None:
        return Constrained(Regex(options.regex), None, options.regex, limits)
    if options.grammar_file is not None:
        text = read_bytes(options.grammar_file).decode("utf-8", "replace")
        return Constrained(Grammar(text), None, Path(options.grammar_file).name, limits)
    schema = read_json(options.schema)
    spec = JsonSchema(schema, options.closed, options.whitespace, relax=options.relax)
    title = schema.get("title") if isinstance(schema, dict) else None
    name = title if isinstance(title, str) else Path(options.schema).name
    return Constrained(spec, schema, name, limits)


def reporting_errors(run: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """The exit status of a command; faulty input is reported, with ``BAD_CONSTRAINT``."""
    details: dict[str, str] = {}
    try:
        status = run(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # whoever read the output has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BAD_CONSTRAINT
    except UnusableInput as error:
        message = str(error)
    except RecursionError:
        message = "the schema is nested too deeply"
    except ConstraintError as error:
        message = str(error)
        found = {name: getattr(error, name, None) for name in ("code", "keyword", "pointer")}
        details = {name: value for name, value in found.items() if isinstance(value, str)}
    if getattr(options, "json", False):  # for scripts, which read standard output
        print(json.dumps({"error": {"message": message, **details}}))
    else:
        print(f"{paint_for(sys.stderr)('leapjson:', 'bold red')} {message}", file=sys.stderr)
    return BAD_CONSTRAINT


def read_json(name: str) -> Any:
    """The value in a file. Raises ``UnusableInput``."""
    try:
        return json.loads(read_bytes(name))
    except RecursionError:
        raise UnusableInput(f"{name}: the JSON is nested too deeply") from None
    except ValueError as error:
        raise UnusableInput(f"{name}: not JSON: {error}") from None


def read_bytes(name: str) -> bytes:
    """A file, or standard input for ``-``. Raises ``UnusableInput``."""
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise UnusableInput(f"{name}: {error.strerror}") from None
