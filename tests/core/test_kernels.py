from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.core.kernels import PROCESSORS, features_of, kernel, name_image, runs_here

REPOSITORY = Path(__file__).resolve().parents[2]


def test_a_loop_without_a_cache_folder_is_compiled() -> None:
    names: dict[str, Any] = {}
    exec("def total(count):\n    return sum(range(count))", names)  # no file, so no cache folder
    total: Callable[[int], int] = kernel()(names["total"])
    assert total(5) == 10


def test_a_cached_loop_is_compiled_again_if_a_file_with_its_code_changes(
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
    assert answer("x * 10").startswith("11 Counter({")  # read from the cache on disk
    assert answer("x * 200") == "201 Counter()"


@pytest.mark.skipif(not runs_here("avx2"), reason="needs a processor with AVX2")
def test_loops_that_an_image_has_are_taken_and_not_compiled_again(tmp_path: Path) -> None:
    loops = tmp_path / "loops"
    loops.mkdir()
    (loops / "one.py").write_text(
        "from app.core.kernels import kernel\n\n@kernel()\ndef run(x):\n    return x + 1\n"
    )
    shipped, kept = tmp_path / "shipped", tmp_path / "kept"
    kind = next(each for each in PROCESSORS if runs_here(each))

    def answer(first: str, **environment: str) -> str:
        code = f"{first}; from loops.one import run; print(run(1), run.stats.cache_hits)"
        ran = subprocess.run(
            # -B: Python would reuse the byte code of a source with the same size and time stamp.
            [sys.executable, "-B", "-c", code],
            env={"PYTHONPATH": f"{tmp_path}:{REPOSITORY}", "HOME": str(tmp_path), **environment},
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    names = {"NUMBA_CPU_NAME": PROCESSORS[kind][0], "NUMBA_CPU_FEATURES": features_of(kind)}
    while_building = {"NUMBA_CACHE_DIR": str(shipped / kind), **names}
    assert answer("pass", **while_building) == "2 Counter()"
    name_image(shipped / kind)
    take = "from pathlib import Path; from app.core import kernels; kernels._use_shipped"
    at_start = f"{take}(Path({str(shipped)!r}), {str(kept)!r})"
    for _ in range(2):  # the second time, the cache is complete
        (loops / "one.py").touch()  # other time stamps do not matter
        assert answer(at_start, NUMBA_CACHE_DIR=str(kept)).startswith("2 Counter({")
    # A newer image has different loops; the folder that was copied from the older one exists.
    (loops / "one.py").write_text((loops / "one.py").read_text().replace("x + 1", "x + 2"))
    assert answer("pass", **while_building) == "3 Counter()"
    name_image(shipped / kind)
    assert answer(at_start, NUMBA_CACHE_DIR=str(kept)).startswith("3 Counter({")


def test_a_feature_is_there_only_if_loops_are_compiled_for_it() -> None:
    code = "from app.core.kernels import has; print(has('avx512bf16'), has('sse2'))"
    names = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": features_of("avx2") + ",+sse2"}
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(REPOSITORY), **names},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == ["False", str(runs_here("avx2"))]
