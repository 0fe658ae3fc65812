"""Command line of the peers: ``python -m loadtest.peers install|list|train|convert|serve``."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from app.core.progress import reporting
from app.terminal.screen import open_screen
from loadtest.peers import PEERS, NotInstalled
from loadtest.peers.environments import FOLDER


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 1 if something could not be installed."""
    given = _parser().parse_args(arguments)
    match given.command:
        case "install":
            return _install(list(PEERS) if given.name == "all" else [given.name])
        case "list":
            for peer in PEERS.values():
                state = "installed" if peer.is_installed else "not installed"
                print(f"{peer.name:24} {state:14} {peer.what}")
                if peer.lacks:
                    print(f"{'':39} lacks: {peer.lacks}")
        case "train":
            _train(given)
        case "convert":
            print(PEERS[given.name].converted(given.model.resolve()))
        case "serve":
            _serve(given)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m loadtest.peers", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    install = commands.add_parser("install", help="make a peer's environment; takes minutes")
    install.add_argument("name", choices=[*PEERS, "all"])
    commands.add_parser("list", help="list the peers and whether they are installed")
    train = commands.add_parser("train", help="make the model that all of them serve")
    train.add_argument("--out", type=Path, default=FOLDER / "model")
    train.add_argument("--minutes", type=float, default=12.0, help="time limit for the schedule")
    train.add_argument("--steps", type=int, default=400)
    train.add_argument("--seed", type=int, default=7)
    train.add_argument("--threads", type=int, default=2)
    convert = commands.add_parser("convert", help="convert the model to a peer's own format")
    convert.add_argument("name", choices=list(PEERS))
    convert.add_argument("--model", type=Path, default=FOLDER / "model")
    serve = commands.add_parser("serve", help="run a peer until it is interrupted")
    serve.add_argument("name", choices=list(PEERS))
    serve.add_argument("--model", type=Path, default=FOLDER / "model")
    serve.add_argument("--log", type=Path, default=None)
    serve.add_argument("--threads", type=int, default=2)
    return parser


def _install(names: Sequence[str]) -> int:
    failed = 0
    for name in reporting(open_screen(sys.stderr).progress, "installing", names, unit="peers"):
        print(f"{name}: installing", flush=True)
        try:
            PEERS[name].install()
        except NotInstalled as why:
            failed = 1
            print(f"{name}: cannot be installed: {why}", file=sys.stderr, flush=True)
    return failed


def _train(given: argparse.Namespace) -> None:
    # Imported here because torch takes seconds to load.
    from tools.peer_model import Plan, train

    train(Plan(given.out, given.seed, given.steps, given.minutes, given.threads))


def _serve(given: argparse.Namespace) -> None:
    log = given.log or FOLDER / f"{given.name}.log"
    with (
        contextlib.suppress(KeyboardInterrupt),
        PEERS[given.name].running(given.model, log, given.threads) as url,
    ):
        print(f"{given.name}: {url}, log: {log}", flush=True)
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
