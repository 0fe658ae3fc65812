"""Options of the report."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.bench.gpu_report.parts import PARTS


@dataclass(frozen=True, slots=True)
class Options:
    device: str
    """``cuda`` or ``cpu``."""
    tiny: bool
    """Tiny shapes and few repetitions."""
    seconds: float
    """Time limit of all parts together."""
    out: Path
    parts: tuple[str, ...]
    tokenizer: Path | None
    """A folder with ``tokenizer.json``, packed or not; None: one of the repository's."""
    graphs: bool = True
    """Whether steps are replayed from CUDA graphs."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> Options:
        values: dict[str, Any] = json.loads(text)
        folder = values["tokenizer"]
        return cls(
            **values
            | {
                "out": Path(values["out"]),
                "parts": tuple(values["parts"]),
                "tokenizer": None if folder is None else Path(folder),
            }
        )


def parse(arguments: Sequence[str] | None, description: str | None) -> Options:
    parser = argparse.ArgumentParser(
        prog="python3 -m loadtest.gpu_report",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [part.name for part in PARTS]
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes: to try the report itself")
    parser.add_argument("--seconds", type=float, default=570, help="time limit of all parts")
    parser.add_argument("--out", type=Path, default=Path("gpu-report.json"), help="the JSON file")
    parser.add_argument("--part", nargs="+", choices=names, default=names, help="parts to run")
    parser.add_argument("--tokenizer", type=Path, help="a folder with tokenizer.json")
    given = parser.parse_args(arguments)
    if given.device == "cpu" and not given.tiny:
        parser.error("the CPU is for trying this out: add --tiny; figures need CUDA")
    return Options(
        device=given.device,
        tiny=given.tiny,
        seconds=given.seconds,
        out=given.out,
        parts=tuple(name for name in names if name in given.part),
        tokenizer=given.tokenizer,
    )
