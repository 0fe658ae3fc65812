"""The servers to measure: already running ones, and ones that are started here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from loadtest.dialects import DIALECTS, Dialect
from loadtest.peers import PEERS
from loadtest.server import running_server
from loadtest.workloads import Workload


@dataclass(frozen=True, slots=True)
class Target:
    """A server that is already running, or one to start: ``leapjson`` or a peer."""

    url: str = ""
    """URL of a running server."""
    started: str = ""
    """Name of a server to start."""
    settings: tuple[tuple[str, str], ...] = ()
    """For ``leapjson``: ``LEAPJSON_`` variables without the prefix."""

    @property
    def dialect(self) -> str:
        if self.url:
            return "openai"
        return "leapjson" if self.started == "leapjson" else PEERS[self.started].dialect


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of a comparison: a server, its dialect and its extra request fields."""

    name: str
    target: Target
    dialect: Dialect
    body: Mapping[str, Any] = field(default_factory=dict)
    """Additional fields of every request."""
    instead: Workload | None = None
    """Workload measured in place of the run's."""


def target(text: str, settings: tuple[tuple[str, str], ...] = ()) -> Target:
    """The target for a URL, ``leapjson``, or a peer's name. Raises ValueError for other texts."""
    if "://" in text:
        return Target(text.rstrip("/").removesuffix("/v1"))
    if text == "leapjson" or text in PEERS:
        return Target(started=text, settings=settings if text == "leapjson" else ())
    known = ", ".join(["leapjson", *PEERS])
    raise ValueError(f"{text!r} is neither a URL nor a server that can be started: {known}")


def arm(name: str, where: Target, dialect: str | None = None, **others: Any) -> Arm:
    """Raises ValueError for an unknown dialect."""
    chosen = dialect or where.dialect
    if chosen not in DIALECTS:
        raise ValueError(f"there is no dialect {chosen!r}; known: {', '.join(DIALECTS)}")
    return Arm(name, where, DIALECTS[chosen], **others)


@contextmanager
def running(where: Target, model: Path | None, logs: Path) -> Iterator[str]:
    """The URL of the target, which is started for the block unless it is already running.

    ``model`` is a folder; None is the demo model, which peers do not support. Logs are written to
    the folder ``logs``. Raises ValueError for a peer without a model, RuntimeError with the end of
    the log if a server does not start.
    """
    logs.mkdir(parents=True, exist_ok=True)
    if where.url:
        yield where.url
    elif where.started == "leapjson":
        with running_server(model, logs / "leapjson.log", dict(where.settings)) as server:
            yield server.url
    else:
        if model is None:
            raise ValueError(f"{where.started} needs --model-folder")
        with PEERS[where.started].running(model, logs / f"{where.started}.log") as url:
            yield url


def served_model(client: httpx.Client) -> str:
    """The name of the first model that the server lists."""
    models = client.get("/v1/models").raise_for_status().json()["data"]
    name: str = models[0]["id"]
    return name
