"""Makes the demo that sees, draws pictures for it, and measures it.

    python -m tools.demo_vision train
    python -m tools.demo_vision evaluate
    python -m tools.demo_vision draw docs/images

README.md says what it needs and what the shipped weights were made with.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch
from PIL import Image

from app.demo import VISION_MODEL_PATH
from tools.demo_vision import evaluate
from tools.demo_vision.picture import missing_faces
from tools.demo_vision.scenes import KINDS, draw
from tools.demo_vision.train import Plan, answer, read

_WORK: Final = Path(".demo-vision")
"""Rendered pictures and the reader, which training makes anew where they are not there."""
_DRAWN_SEEDS: Final = {"receipt": 4, "badge": 0, "chart": 1, "card": 2}
"""Of the pictures in docs/images."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Carries out the command; `arguments` are those of the process where none are given."""
    given = _parser().parse_args(arguments)
    if missing := missing_faces():
        sys.exit(f"fonts are missing; tools/demo_vision/README.md says which: {', '.join(missing)}")
    if given.command == "train":
        torch.set_num_threads(given.threads)
        _train(given)
    elif given.command == "evaluate":
        evaluate.print_table(evaluate.Demo(given.folder), given.per_kind, given.seed)
    else:
        given.folder.mkdir(parents=True, exist_ok=True)
        for kind in KINDS:
            _, picture = draw(kind, f"shown {_DRAWN_SEEDS[kind]}", "held_out", "train")
            Image.fromarray(picture.pixels).save(given.folder / f"{kind}.png", optimize=True)


def _train(given: argparse.Namespace) -> None:
    """Both stages, or what was left of them."""
    reading = Plan(
        seed=given.seed,
        steps=given.read_steps,
        minutes=given.minutes,
        pool=given.work,
        chunks=given.chunks,
        out=given.work,
        batch=given.batch,
        learning_rate=4e-3,
        begin=given.begin,
    )
    if given.read_steps:
        read(reading)
    answering = Plan(
        seed=given.seed + 1,
        steps=given.answer_steps,
        minutes=given.minutes,
        pool=given.work,
        chunks=given.chunks,
        out=given.out,
        batch=given.batch,
        learning_rate=4e-3,
        begin=given.out if given.go_on else None,
    )
    answer(answering, given.work)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.demo_vision",
        description="Make the embedded demo that sees, or measure it.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("train", help="train it: first to read, then to answer")
    command.add_argument("--seed", type=int, default=7)
    command.add_argument("--read-steps", type=int, default=2000, help="0 takes the reader there is")
    command.add_argument("--answer-steps", type=int, default=2000)
    command.add_argument("--minutes", type=float, default=600.0, help="end each stage by then")
    command.add_argument("--chunks", type=int, default=14, help="of 1024 pictures, rendered once")
    command.add_argument("--batch", type=int, default=32)
    command.add_argument("--threads", type=int, default=2)
    command.add_argument("--begin", type=Path, help="folder of a reader to go on from")
    command.add_argument("--go-on", action="store_true", help="answer on from the folder's weights")
    command.add_argument("--work", type=Path, default=_WORK, help="folder of pictures and reader")
    command.add_argument("--out", type=Path, default=VISION_MODEL_PATH)
    command = commands.add_parser("evaluate", help="measure what it reads")
    command.add_argument("--per-kind", type=int, default=50, help="pictures of each kind")
    command.add_argument("--seed", type=int, default=2026)
    command.add_argument("--folder", type=Path, default=VISION_MODEL_PATH)
    command = commands.add_parser("draw", help="draw a picture of each kind")
    command.add_argument("folder", type=Path)
    return parser


if __name__ == "__main__":
    main()
