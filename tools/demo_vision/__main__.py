"""Trains the vision demo, draws pictures for it, and measures it.

    python -m tools.demo_vision train
    python -m tools.demo_vision evaluate
    python -m tools.demo_vision draw docs/images

README.md has the requirements, and the settings behind the shipped weights.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch
from PIL import Image

from app.demo import VISION_MODEL_PATH
from tools.demo_vision import evaluate
from tools.demo_vision.picture import Picture, missing_faces
from tools.demo_vision.scenes import KINDS, Kind, Record, draw
from tools.demo_vision.train import Plan, answer, polish, read

_WORK: Final = Path(".demo-vision")
"""Folder of the rendered pictures, which training reuses, and of the reader."""
_SHOWN: Final[dict[Kind, int]] = {"receipt": 6, "badge": 0, "chart": 0, "card": 0}
"""Seeds of the pictures in docs/images."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command; `arguments` default to those of the process."""
    given = _parser().parse_args(arguments)
    if missing := missing_faces():
        sys.exit(f"fonts are missing (see tools/demo_vision/README.md): {', '.join(missing)}")
    if given.command == "train":
        torch.set_num_threads(given.threads)
        _train(given)
    elif given.command == "evaluate":
        demo = evaluate.Served(given.url) if given.url else evaluate.Demo(given.folder)
        evaluate.print_table(demo, given.per_kind, given.seed)
    else:
        given.folder.mkdir(parents=True, exist_ok=True)
        for kind in KINDS:
            _, picture = shown(kind)
            Image.fromarray(picture.pixels).save(given.folder / f"{kind}.png", optimize=True)


def shown(kind: Kind) -> tuple[Record, Picture]:
    """The picture of a kind in docs/images, with words that are in no training picture."""
    return draw(kind, f"shown {_SHOWN[kind]}", "held_out", "train")


def _train(given: argparse.Namespace) -> None:
    """Run those of the three stages that have steps."""
    plan = Plan(
        seed=given.seed,
        steps=given.read_steps,
        minutes=given.minutes,
        pool=given.work,
        chunks=given.chunks,
        out=given.work,
        batch=given.batch,
        learning_rate=4e-3,
    )
    if plan.steps:
        read(plan)
    plan = replace(plan, seed=given.seed + 1, steps=given.answer_steps, out=given.out)
    if plan.steps:
        answer(plan, given.work)
    plan = replace(plan, seed=given.seed + 2, steps=given.polish_steps, begin=given.out)
    if plan.steps:
        polish(replace(plan, learning_rate=3e-3, level=0.25), given.work)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.demo_vision",
        description="Train or measure the embedded vision demo.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("train", help="train it: reading, answering, then both")
    command.add_argument("--seed", type=int, default=7)
    for stage, steps in (("read", 2842), ("answer", 700), ("polish", 850)):
        about = f"steps of this stage; 0 skips it ({steps})"
        command.add_argument(f"--{stage}-steps", type=int, default=steps, help=about)
    command.add_argument("--minutes", type=float, default=600.0, help="time limit of each stage")
    command.add_argument("--chunks", type=int, default=15, help="chunks of 1024 pictures")
    command.add_argument("--batch", type=int, default=32)
    command.add_argument("--threads", type=int, default=2)
    command.add_argument("--work", type=Path, default=_WORK, help="folder of pictures and reader")
    command.add_argument("--out", type=Path, default=VISION_MODEL_PATH)
    command = commands.add_parser("evaluate", help="measure its answers")
    command.add_argument("--per-kind", type=int, default=50, help="pictures of each kind")
    command.add_argument("--seed", type=int, default=2026)
    command.add_argument("--folder", type=Path, default=VISION_MODEL_PATH)
    command.add_argument("--url", help="server to measure: http://127.0.0.1:8000")
    command = commands.add_parser("draw", help="draw a picture of each kind")
    command.add_argument("folder", type=Path)
    return parser


if __name__ == "__main__":
    main()
