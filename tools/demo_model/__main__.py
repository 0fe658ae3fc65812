"""Makes the demo model, and measures it.

    python -m tools.demo_model train --steps 2455
    python -m tools.demo_model evaluate
    python -m tools.demo_model evaluate-functions

README.md has the commands behind the shipped weights.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from app.demo import MODEL_PATH
from tools.demo_model import evaluate, evaluate_functions
from tools.demo_model.train import Plan, train


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command; `arguments` default to those of the process."""
    given = _parser().parse_args(arguments)
    if given.command == "train":
        torch.set_num_threads(given.threads)
        # Despite its name it also applies on a CPU: attention sums in bfloat16, not in float32.
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
        train(
            Plan(
                seed=given.seed,
                steps=given.steps,
                minutes=given.minutes,
                out=given.out,
                save_every=given.save_every,
                begin=given.begin,
                learning_rate=given.rate,
                level=given.level,
            )
        )
    else:
        measured = evaluate if given.command == "evaluate" else evaluate_functions
        measured.print_table(evaluate.Demo(given.folder), given.per_kind, given.seed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.demo_model",
        description="Make the embedded demo model, or measure it.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("train", help="train a new model, or continue a training")
    command.add_argument("--seed", type=int, default=7)
    command.add_argument("--steps", type=int, default=6000)
    command.add_argument("--minutes", type=float, default=600.0, help="end the schedule by then")
    command.add_argument("--threads", type=int, default=2)
    command.add_argument("--save-every", type=int, default=1000, help="steps between checkpoints")
    command.add_argument("--begin", type=Path, help="folder of a model to continue")
    command.add_argument("--rate", type=float, default=3e-3, help="highest learning rate")
    command.add_argument("--level", type=float, default=0.4, help="share of steps before it falls")
    command.add_argument("--out", type=Path, default=MODEL_PATH)
    for name, per_kind, about in (
        ("evaluate", 34, "measure its extractions"),
        ("evaluate-functions", 60, "measure its function calls"),
    ):
        command = commands.add_parser(name, help=about)
        command.add_argument("--per-kind", type=int, default=per_kind, help="examples of each kind")
        command.add_argument("--seed", type=int, default=2026)
        command.add_argument("--folder", type=Path, default=MODEL_PATH)
    return parser


if __name__ == "__main__":
    main()
