"""Runs the clients against servers of the two demo models and writes docs/clients.md."""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from loadtest.installing import NotInstalled
from loadtest.server import running_server
from tests.clients.catalogue import CLIENTS, FEATURES, HERE, Client
from tests.clients.environments import FOLDER, command, install, variables
from tests.clients.recorder import recording
from tests.clients.table import Outcome, Report, page

PAGE = HERE.parents[1] / "docs" / "clients.md"
MODEL = "leapjson-demo"
VISION_MODEL = "leapjson-demo-vision"
PICTURE = HERE.parents[1] / "docs" / "images" / "card.png"
CLIENT_SECONDS = 900
SETTINGS = {"DEFAULT_MAX_TOKENS": "300"}
"""The demo model does not always end an answer, and few checks set a limit on its length."""
VISION_SETTINGS = {**SETTINGS, "MODEL": "demo-vision"}


@dataclass(frozen=True, slots=True)
class Target:
    """A server, its model, and the path of the test image if the model reads images."""

    url: str
    model: str
    picture: Path | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit status: 1 if a check failed or a client did not run."""
    options = _parser().parse_args(arguments)
    clients = [client for client in CLIENTS if not options.only or client.name in options.only]
    ready = {client.name: _installed(client) for client in clients}
    reports = []
    with (
        _server(options.url, SETTINGS) as url,
        _server(options.vision_url, VISION_SETTINGS) as vision_url,
    ):
        targets = (Target(url, MODEL), Target(vision_url, VISION_MODEL, PICTURE))
        for client in clients:
            folder = ready[client.name]
            if isinstance(folder, Path):
                reports.append(_run(client, folder, targets, record=options.record))
            else:
                reports.append(folder)
            _tell(reports[-1])
    if not options.only:
        PAGE.write_text(page(reports, _runtimes()))
        print(f"written: {PAGE.relative_to(Path.cwd())}")
    return int(any(report.failed for report in reports))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.run", description=__doc__)
    names = [client.name for client in CLIENTS]
    parser.add_argument(
        "--only", action="append", choices=names, help="run this client only; do not write the page"
    )
    parser.add_argument("--url", help="URL of a running server, instead of starting one")
    parser.add_argument("--vision-url", help="URL of a running server, for the image checks")
    parser.add_argument(
        "--record", action="store_true", help="write every exchange to .clients/recorded/CLIENT"
    )
    return parser


def _installed(client: Client) -> Path | Report:
    print(f"{client.name}: setting up", flush=True)
    try:
        return install(client)
    except NotInstalled as why:
        return Report(client, (), f"cannot be installed: {why}")


@contextlib.contextmanager
def _server(url: str | None, settings: Mapping[str, str]) -> Iterator[str]:
    if url is not None:
        yield url
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(None, Path(folder) / "log", {**settings, "DATA": folder}) as server,
    ):
        yield server.url


def _run(client: Client, folder: Path, targets: Sequence[Target], *, record: bool) -> Report:
    outcomes: tuple[Outcome, ...] = ()
    problems = []
    with (folder / "log").open("w") as log:
        for target in targets:
            found, problem = _run_on(target, client, folder, log, record=record)
            outcomes += found
            problems += [problem] if problem else []
    if not problems and not outcomes:
        problems = ["ran no checks"]
    return Report(client, outcomes, "; ".join(problems) or None)


def _run_on(
    target: Target, client: Client, folder: Path, log: IO[str], *, record: bool
) -> tuple[tuple[Outcome, ...], str | None]:
    """The outcomes of the checks, and the problem if the client did not run to its end."""
    with contextlib.ExitStack() as stack:
        recorder = None
        if record:
            exchanges = FOLDER / "recorded" / (client.name + ("-images" if target.picture else ""))
            recorder = stack.enter_context(recording(target.url, exchanges)).url
        base_url = f"{recorder or target.url}/v1"
        try:
            done = subprocess.run(
                command(client, folder),
                env=variables(base_url, target.model, recorder, picture=target.picture),
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                timeout=CLIENT_SECONDS,
                check=False,
            )
        except FileNotFoundError as error:
            return (), f"cannot be run: {error}"
        except subprocess.TimeoutExpired as error:
            output = error.stdout or b""
            text = output.decode() if isinstance(output, bytes) else output
            return _outcomes(text), f"timed out after {CLIENT_SECONDS} seconds"
    problem = f"exit status {done.returncode}" if done.returncode else None
    return _outcomes(done.stdout), problem


def _outcomes(output: str) -> tuple[Outcome, ...]:
    """The outcomes in ``output``; other lines are printed by libraries and skipped."""
    outcomes = []
    for line in output.splitlines():
        if line.startswith('{"feature"'):
            fields = json.loads(line)
            assert fields["feature"] in FEATURES, fields
            outcomes.append(
                Outcome(fields["feature"], fields["check"], fields["ok"], fields["detail"])
            )
    return tuple(outcomes)


def _tell(report: Report) -> None:
    counts = Counter(outcome.ok for outcome in report.outcomes)
    absent = f", {counts[None]} not applicable" if counts[None] else ""
    print(f"{report.client.name}: {counts[True]} ok, {counts[False]} failed{absent}", flush=True)
    if report.problem:
        print(f"  {report.problem}")
    for outcome in report.outcomes:
        if outcome.ok is False:
            detail = " ".join(outcome.detail.split())[:600]
            print(f"  {outcome.feature}: {outcome.check}: {detail}", flush=True)


def _runtimes() -> str:
    runtimes = [f"Python {platform.python_version()}"]
    with contextlib.suppress(FileNotFoundError):
        node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False)
        runtimes.append(f"Node {node.stdout.strip().removeprefix('v')}")
    return " and ".join(runtimes)


if __name__ == "__main__":
    sys.exit(main())
