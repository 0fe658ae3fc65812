"""The CPU and memory limits of a container, read from the files of its control group."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.model.device import granted_cores, granted_memory

ALL = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@pytest.mark.parametrize(
    ("written", "cores"),
    [
        ("max 100000\n", ALL),
        ("100000 100000\n", 1),
        ("50000 100000\n", 1),
        ("190000 100000\n", 1),
        ("100000000 100000\n", ALL),
        ("", ALL),
        ("nonsense\n", ALL),
    ],
)
def test_the_cores_granted_are_whole_ones_and_at_least_one(
    written: str, cores: int, tmp_path: Path
) -> None:
    (tmp_path / "cpu.max").write_text(written)
    assert granted_cores(tmp_path / "cpu.max") == cores


def test_without_a_control_group_the_cores_are_those_of_the_process(tmp_path: Path) -> None:
    assert granted_cores(tmp_path / "missing") == ALL


def test_the_memory_granted_is_the_limit_of_the_control_group(tmp_path: Path) -> None:
    machine = granted_memory(tmp_path / "missing")
    written = tmp_path / "memory.max"
    for text, granted in [
        ("max\n", machine),
        (f"{machine // 4}\n", machine // 4),
        (f"{machine * 4}\n", machine),
    ]:
        written.write_text(text)
        assert granted_memory(written) == granted
