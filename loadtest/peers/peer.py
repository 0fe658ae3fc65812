"""A peer: its installation, its process for a model's folder, and model conversion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.core.model_name import is_gguf
from loadtest.installing import NotInstalled, run
from loadtest.peers import environments
from loadtest.peers.environments import FOLDER, HERE
from loadtest.server import free_port, running_process

MODEL_NAME: Final = "peer"
"""The name under which every peer serves the model."""
SCRIPTS: Final = HERE / "scripts"


@dataclass(frozen=True, slots=True)
class Launch:
    """The variable parts of a peer's command line."""

    environment: Path
    """The folder of its environment."""
    model: Path
    """The model in the peer's own format."""
    port: int
    threads: int


@dataclass(frozen=True, slots=True)
class Conversion:
    """Conversion of a Hugging Face folder to the peer's own format, stored beside the weights."""

    script: str
    target: str
    """File or folder below the model's folder."""
    arguments: tuple[str, ...] = ()
    """Arguments of the script after the model's folder and the target."""


def _none(launch: Launch) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Peer:
    """Another server, on this machine's CPU."""

    name: str
    what: str
    """Description: engine, library for constraints, and batching."""
    environment: str
    """Name of ``requirements/<environment>.txt``; peers may share one."""
    dialect: str
    """Request format for constraints: a name in ``loadtest.dialects``."""
    command: Callable[[Launch], Sequence[str]]
    lacks: str = ""
    """Missing features, shown in the list."""
    conversion: Conversion | None = None
    variables: Callable[[Launch], Mapping[str, str]] = _none
    """Environment variables in addition to those of all peers."""

    def install(self) -> Path:
        """Install the environment if it is missing. Takes minutes; raises ``NotInstalled``."""
        return environments.install(self.environment)

    @property
    def is_installed(self) -> bool:
        return environments.is_installed(self.environment)

    @contextmanager
    def running(
        self, model: Path, log: Path, threads: int = 2, timeout: float = 600.0
    ) -> Iterator[str]:
        """Serve the Hugging Face folder ``model`` during the block; yields the base URL.

        Append the paths of OpenAI's API to the URL (``/v1/chat/completions``); the model's name is
        ``MODEL_NAME``. Its output goes to ``log``. Raises ``NotInstalled``, and RuntimeError with
        the end of the log if it is not ready after ``timeout`` seconds.
        """
        converted = self.converted(model.resolve())
        port = free_port()
        launch = Launch(FOLDER / self.environment, converted, port, threads)
        command = self.command(launch)
        variables = environments.variables(threads, self.variables(launch))
        url = f"http://127.0.0.1:{port}"
        with running_process(command, variables, log, f"{url}/health", timeout):
            yield url

    def converted(self, model: Path) -> Path:
        """The model in the peer's format; converted if the weights are newer. llama.cpp uses GGUF
        files as they are.

        Raises ``NotInstalled``.
        """
        if not self.is_installed:
            raise NotInstalled(f"run: python -m loadtest.peers install {self.name}")
        if self.conversion is None:
            return model
        target = model / self.conversion.target
        if is_gguf(model.name) and is_gguf(target.name):
            return model
        weights = model / "model.safetensors"
        if not target.exists() or target.stat().st_mtime < weights.stat().st_mtime:
            python = FOLDER / self.environment / "bin" / "python"
            script = SCRIPTS / self.conversion.script
            run([str(python), str(script), str(model), str(target), *self.conversion.arguments])
        return target
