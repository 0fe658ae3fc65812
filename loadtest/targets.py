"""The servers to measure: some run already, some are started here."""

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
class At:
    """A server that runs already."""

    url: str

    @property
    def dialect(self) -> str:
        return "openai"


@dataclass(frozen=True, slots=True)
class Leapjson:
    """This project's server; ``settings`` are ``LEAPJSON_`` variables without the prefix."""

    settings: tuple[tuple[str, str], ...] = ()

    @property
    def dialect(self) -> str:
        return "leapjson"


@dataclass(frozen=True, slots=True)
class PeerServer:
    """Another project's server, by its name in ``loadtest.peers``."""

    name: str

    @property
    def dialect(self) -> str:
        return PEERS[self.name].dialect


Target = At | Leapjson | PeerServer


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of a comparison: a server, and what is different about its requests."""

    name: str
    target: Target
    dialect: Dialect
    body: Mapping[str, Any] = field(default_factory=dict)
    """Fields on top of every request."""
    instead: Workload | None = None
    """Measured in place of the run's workload."""


def target(text: str, settings: tuple[tuple[str, str], ...] = ()) -> Target:
    """A URL, ``leapjson``, or a peer's name. Raises ValueError for anything else."""
    if "://" in text:
        return At(text.rstrip("/").removesuffix("/v1"))
    if text == "leapjson":
        return Leapjson(settings)
    if text in PEERS:
        return PeerServer(text)
    known = ", ".join(["leapjson", *PEERS])
    raise ValueError(f"{text!r} is neither a URL nor a server that can be started: {known}")


def arm(name: str, where: Target, dialect: str | None = None, **others: Any) -> Arm:
    """Raises ValueError for an unknown dialect."""
    chosen = dialect or where.dialect
    if chosen not in DIALECTS:
        raise ValueError(f"there is no dialect {chosen!r}, but {', '.join(DIALECTS)}")
    return Arm(name, where, DIALECTS[chosen], **others)


@contextmanager
def running(where: Target, model: Path | None, logs: Path) -> Iterator[str]:
    """The URL of the target, which is started for the block unless it runs already.

    ``model`` is a folder; None is the demo model, which peers do not have. Logs are written to
    the folder ``logs``. Raises ValueError without a model for a peer, RuntimeError with the end
    of its log where a server does not start.
    """
    logs.mkdir(parents=True, exist_ok=True)
    match where:
        case At(url):
            yield url
        case Leapjson(settings):
            with running_server(model, logs / "leapjson.log", dict(settings)) as server:
                yield server.url
        case PeerServer(name):
            if model is None:
                raise ValueError(f"{name} needs --model-folder")
            with PEERS[name].running(model, logs / f"{name}.log") as url:
                yield url


def served_model(client: httpx.Client) -> str:
    """The name of the first model that the server lists."""
    models = client.get("/v1/models").raise_for_status().json()["data"]
    name: str = models[0]["id"]
    return name
