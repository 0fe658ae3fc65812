from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.core.kernels import kernel

REPOSITORY = Path(__file__).resolve().parents[2]


def test_a_loop_that_can_be_kept_nowhere_is_compiled_all_the_same() -> None:
    names: dict[str, Any] = {}
    exec("def total(count):\n    return sum(range(count))", names)  # in no file, so beside none
    total: Callable[[int], int] = kernel()(names["total"])
    assert total(5) == 10


def test_a_kept_loop_is_compiled_again_when_a_file_changes_whose_code_is_in_it(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "loops"
    folder.mkdir()
    begin = "from app.core.kernels import kernel\n\n@kernel()\n"
    (folder / "outer.py").write_text(
        f"from loops.inner import step\n{begin}def run(x):\n    return step(x) + 1\n"
    )

    def answer(step: str) -> str:
        (folder / "inner.py").write_text(f"{begin}def step(x):\n    return {step}\n")
        code = "from loops.outer import run; print(run(1), run.stats.cache_hits)"
        ran = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": f"{tmp_path}:{REPOSITORY}", "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        (found,) = ran.stdout.splitlines()
        return found

    assert answer("x * 10") == "11 Counter()"
    assert answer("x * 10").startswith("11 Counter({")  # read from the disk
    assert answer("x * 200") == "201 Counter()"
