"""Pictures for training, rendered once and kept in a folder, since rendering is slow."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch

from tools.demo_vision.corpus import rendered
from tools.demo_vision.scenes import KINDS, Kind, Record

CHUNK: Final = 1024
SEEDS: Final[dict[str, int]] = {"scenes": 1000, "pages": 2000}
"""The seed of the first chunk of each sort."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A batch of pictures.

    `pictures` are [batch, 1, SIDE, SIDE] from -1 to 1; `labels` are [batch, PATCHES, HEADS].
    """

    pictures: torch.Tensor
    labels: torch.Tensor
    kinds: list[Kind]
    records: list[Record]


def render(folder: Path, sort: str, number: int) -> None:
    """Renders a chunk of scenes or pages, unless it exists."""
    folder.mkdir(parents=True, exist_ok=True)
    seed = SEEDS[sort] + number
    if (folder / f"{seed}.json").exists():
        return
    kinds: tuple[Kind, ...] = ("page",) if sort == "pages" else KINDS
    pictures, labels, records = rendered(seed, CHUNK, kinds)
    np.save(folder / f"{seed}.p.npy", pictures)
    np.save(folder / f"{seed}.l.npy", labels)
    (folder / f"{seed}.json").write_text(json.dumps(records))


def batches(folder: Path, sort: str, chunks: int, size: int, seed: int) -> Iterator[Drawn]:
    """Endless batches over all chunks in turn, each time with another contrast and order."""
    rng = np.random.default_rng(seed)
    while True:
        for number in range(chunks):
            render(folder, sort, number)
            name = str(SEEDS[sort] + number)
            pictures = np.load(folder / f"{name}.p.npy")
            labels = np.load(folder / f"{name}.l.npy")
            records = json.loads((folder / f"{name}.json").read_text())
            order = rng.permutation(len(records))
            for start in range(0, len(order) - size + 1, size):
                picked = order[start : start + size]
                gain = torch.from_numpy(rng.uniform(0.65, 1.1, (size, 1, 1, 1))).float()
                shift = torch.from_numpy(rng.uniform(-0.15, 0.15, (size, 1, 1, 1))).float()
                values = torch.from_numpy(pictures[picked]).float()[:, None] / 127.5 - 1
                yield Drawn(
                    (values * gain + shift).clamp(-1, 1),
                    torch.from_numpy(labels[picked]).long(),
                    [KINDS[index % len(KINDS)] for index in picked],
                    [records[index] for index in picked],
                )


def both(one: Drawn, other: Drawn) -> Drawn:
    """Two batches joined into one."""
    return Drawn(
        torch.cat([one.pictures, other.pictures]),
        torch.cat([one.labels, other.labels]),
        one.kinds + other.kinds,
        one.records + other.records,
    )
