"""Tokenizers, schemas and suites for tests and measurements, read from their archives.

They are in ``tests/data``; its README has the content, source and licence of each.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZipFile

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"
GPT2 = DATA / "tokenizers" / "gpt2"
QWEN2_5 = DATA / "tokenizers" / "qwen2_5"
MASKBENCH = DATA / "maskbench" / "dev.jsonl.xz"
SUITE = DATA / "json-schema-test-suite" / "tests.zip"

Case = dict[str, Any]
"""One line of MaskBench: ``id``, ``schema`` and ``tests``, each with ``data`` and ``valid``."""

_LLAMA3_2 = DATA.parents[2] / "shared" / "data" / "tokenizers" / "llama3_2"
_UNPACK = {".xz": lzma.decompress, ".gz": gzip.decompress}


@cache
def tokenizers() -> Mapping[str, Path]:
    """Folders by name: gpt2, qwen2_5, and llama3_2 if its folder exists.

    Llama's licence keeps its tokenizer out of this repository: it is read from the folder in the
    variable ``LLAMA3_2_TOKENIZER``, or from ``shared/data/tokenizers`` beside the checkout.
    """
    llama = Path(os.environ.get("LLAMA3_2_TOKENIZER", _LLAMA3_2))
    return {"gpt2": GPT2, "qwen2_5": QWEN2_5} | ({"llama3_2": llama} if llama.is_dir() else {})


def unpacked(path: Path) -> bytes:
    """A file's content, unpacked if its name ends in ``.xz`` or ``.gz``."""
    return _UNPACK.get(path.suffix, bytes)(path.read_bytes())


def tokenizer_json(folder: Path) -> bytes:
    """A folder's ``tokenizer.json``, packed or not. Raises ``FileNotFoundError``."""
    found = sorted(folder.glob("tokenizer.json*"))
    return unpacked(found[0] if found else folder / "tokenizer.json")


def maskbench(path: Path = MASKBENCH, count: int | None = None, seed: int = 0) -> list[Case]:
    """The cases of MaskBench in their order, or ``count`` of them drawn by ``seed``."""
    lines = unpacked(path).splitlines()
    if count is not None and count < len(lines):
        chosen = random.Random(seed).sample(range(len(lines)), count)
        lines = [lines[place] for place in sorted(chosen)]
    return [json.loads(line) for line in lines]


@cache
def official_suite(path: Path = SUITE) -> Mapping[str, Mapping[str, Any]]:
    """The cases of the JSON-Schema-Test-Suite: draft, then file (``optional/format/date``)."""
    drafts: dict[str, dict[str, Any]] = {}
    with ZipFile(path) as archive:
        for file in sorted(map(PurePosixPath, archive.namelist())):
            if file.suffix == ".json":
                _, draft, *name = file.with_suffix("").parts
                drafts.setdefault(draft, {})["/".join(name)] = json.loads(archive.read(str(file)))
    return drafts


def keyword_probes() -> list[dict[str, Any]]:
    """Schemas of one keyword each, with ``valid`` and ``invalid`` texts."""
    probes: list[dict[str, Any]] = json.loads((DATA / "keyword_probes.json").read_bytes())
    return probes
