"""A separate environment for each client, below the git-ignored folder ``.clients``."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

from loadtest.installing import run
from tests.clients.catalogue import HERE, Client

FOLDER = HERE.parents[1] / ".clients"
QUIET = {
    "AGENTS_DISABLE_TRACING": "1",
    "ANONYMIZED_TELEMETRY": "False",
    "DO_NOT_TRACK": "1",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_TELEMETRY": "False",
    "LOGFIRE_SEND_TO_LOGFIRE": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OUTLINES_DISABLE_TELEMETRY": "1",
    "PYDANTIC_DISABLE_PLUGINS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""Variables that turn off telemetry, tracing, plugins and bytecode files."""


def install(client: Client) -> Path:
    """The client's environment, installed if it is missing or its pins have changed.

    Raises ``NotInstalled`` with the end of the installer's output.
    """
    folder = FOLDER / client.name
    stamp = folder / ".installed"
    wanted = _digest(client)
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _install_node(client, folder) if client.runtime == "node" else _install(client, folder)
        stamp.write_text(wanted)
    return folder


def command(client: Client, folder: Path) -> list[str]:
    """The command that starts the client's script in its environment."""
    if client.runtime == "python":
        return [str(folder / "bin" / "python"), str(client.path / "client.py")]
    # Node looks for packages in the folder of the script.
    for script in (client.path / "client.mjs", *(HERE / "common").glob("*.mjs")):
        shutil.copy(script, folder)
    return ["node", str(folder / "client.mjs")]


def variables(
    base_url: str, model: str, recorder: str | None, *, picture: Path | None = None
) -> dict[str, str]:
    """Environment variables of a script: the server's address, but no real keys or proxies.

    With a ``picture`` the script runs its checks of images, without one all others.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in ("PATH", "HOME", "LANG", "TMPDIR", "CHECK")
    }
    server = {"BASE_URL": base_url, "MODEL": model, "PYTHONPATH": str(HERE / "common")}
    # Some clients require a key, or read the address only from these variables.
    openai = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": base_url}
    optional = {"RECORDER": recorder, "PICTURE": picture and str(picture)}
    given = {name: value for name, value in optional.items() if value}
    return kept | QUIET | server | openai | given


def _digest(client: Client) -> str:
    names = ["package-lock.json"] if client.runtime == "node" else [client.requirements]
    content = b"".join((client.path / name).read_bytes() for name in names)
    return hashlib.sha256(content).hexdigest()


def _install(client: Client, folder: Path) -> None:
    run([sys.executable, "-m", "venv", str(folder)])
    requirements = str(client.path / client.requirements)
    run([str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "-r", requirements])


def _install_node(client: Client, folder: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(client.path / name, folder)
    run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(folder)])
