"""A compiler that misbehaves on request; runs in the compile workers of the tests."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from app.core.errors import UnsupportedSchema
from app.core.specs import JsonSchema, Regex

_SEEN: list[str] = []


def compile(spec: Regex, *arguments: Any) -> Any:
    match spec.pattern:
        case "hang":
            while True:
                pass
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "abort":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hog":
            return [bytearray(1 << 24) for _ in range(1 << 10)]
        case "warm":
            _SEEN.append("warm")
        case "warm?":
            return bool(_SEEN)
        case "standing":
            return os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)
        case "environment":
            return dict(os.environ)
        case "refuse":
            raise UnsupportedSchema("format", "/a", "no")
        case "bug":
            raise ValueError("a bug")
        case "deep":
            return _descend(0)
        case "large":
            return bytes(1 << 21)
        case "arguments":
            return arguments
        case "size":
            return SimpleNamespace(nbytes=1)
        case "chatty":
            print("printed by a library")
    return ("compiled", spec.pattern, os.getpid())


def wait_for_file(spec: JsonSchema, *arguments: Any) -> bytes:
    """Return when the file exists that the schema names."""
    while not Path(spec.schema["const"]).exists():
        time.sleep(0.01)
    return b"{}"


def _descend(depth: int) -> int:
    return _descend(depth + 1)
