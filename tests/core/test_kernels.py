from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.core.kernels import PROCESSORS, features_of, kernel, name_image, runs_here

REPOSITORY = Path(__file__).resolve().parents[2]
BEGIN = "from app.core.kernels import kernel\n\n@kernel()\n"
FORKS = """
import json, os, sys
import numba.core.config, numba.core.registry, numba.np.arrayobj, numba.np.linalg, numba.np.random
import numba.np.polynomial, numba.experimental.jitclass, numba.typed, numba.cpython.unicode
for line in sys.stdin:
    first, environment = json.loads(line)
    processor = "_toplevel_target_context"
    assert processor not in vars(numba.core.registry.cpu_target), "numba has looked at it"
    if not os.fork():
        os.environ.update(environment)
        numba.core.config.reload_config()
        exec(f"{first}; from loops.outer import run; print(run(1), run.stats.cache_hits)", {})
        sys.stdout.flush()
        os._exit(0)
    assert os.wait()[1] == 0
"""


@pytest.fixture
def answer(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Calls a loop in a process with settings of numba: a fork of one that has imported numba."""
    # -B: Python would reuse the byte code of a source with the same size and time stamp.
    command = [sys.executable, "-B", "-c", FORKS]
    paths = {"PYTHONPATH": f"{tmp_path}:{REPOSITORY}", "HOME": str(tmp_path)}
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process: Any
    (tmp_path / "loops").mkdir()
    with subprocess.Popen(command, env=paths, **pipes) as process:

        def answer(first: str = "pass", **environment: str) -> str:
            print(json.dumps([first, environment]), file=process.stdin, flush=True)
            return str(process.stdout.readline().strip())

        yield answer
    assert process.returncode == 0


def test_a_loop_without_a_cache_folder_is_compiled() -> None:
    names: dict[str, Any] = {}
    exec("def total(count):\n    return sum(range(count))", names)  # no file, so no cache folder
    total: Callable[[int], int] = kernel()(names["total"])
    assert total(5) == 10


def test_a_cached_loop_is_compiled_again_if_a_file_with_its_code_changes(
    tmp_path: Path, answer: Callable[..., str]
) -> None:
    (tmp_path / "loops" / "outer.py").write_text(
        f"from loops.inner import step\n{BEGIN}def run(x):\n    return step(x) + 1\n"
    )
    inner = tmp_path / "loops" / "inner.py"
    inner.write_text(f"{BEGIN}def step(x):\n    return x * 10\n")
    assert answer() == "11 Counter()"
    inner.touch()
    assert answer().startswith("11 Counter({")  # read from the cache on disk
    inner.write_text(inner.read_text().replace("10", "200"))
    assert answer() == "201 Counter()"


def test_a_cached_loop_whose_types_have_gone_is_compiled_again(
    tmp_path: Path, answer: Callable[..., str]
) -> None:
    kinds = "class {}(NamedTuple):\n    x: int\n"
    loop = tmp_path / "loops" / "inner.py"
    text = f"from typing import NamedTuple\n{kinds}{BEGIN}def step(pair):\n    return pair.x * 10\n"
    outer = "from loops.inner import {0}, step\ndef run(x):\n    return step({0}(x))\n"
    outer += "run.stats = step.stats\n"
    for name in ("Pair", "Renamed"):
        loop.write_text(text.format(name))
        (tmp_path / "loops" / "outer.py").write_text(outer.format(name))
        assert answer() == "10 Counter()"


def test_a_cached_loop_leaves_the_compiler_and_its_runtime_unused(
    tmp_path: Path, answer: Callable[..., str]
) -> None:
    (tmp_path / "loops" / "outer.py").write_text(
        "import numpy as np\nfrom numba.core.runtime import rtsys\n"
        f"{BEGIN}def total(x):\n    return np.full(3, x).sum()\n"
        "def run(x):\n    return total(x), rtsys._library.cache_info().currsize\n"
        "run.stats = total.stats\n"
    )
    assert answer() == "(3, 1) Counter()"
    assert answer().startswith("(3, 0) Counter({")


@pytest.mark.skipif(not runs_here("avx2"), reason="needs a processor with AVX2")
def test_loops_that_an_image_has_are_taken_and_not_compiled_again(
    tmp_path: Path, answer: Callable[..., str]
) -> None:
    loop = tmp_path / "loops" / "outer.py"
    loop.write_text(f"{BEGIN}def run(x):\n    return x + 1\n")
    shipped, kept = tmp_path / "shipped", tmp_path / "kept"
    kind = next(each for each in PROCESSORS if runs_here(each))
    names = {"NUMBA_CPU_NAME": PROCESSORS[kind][0], "NUMBA_CPU_FEATURES": features_of(kind)}
    while_building = {"NUMBA_CACHE_DIR": str(shipped / kind), **names}
    assert answer(**while_building) == "2 Counter()"
    name_image(shipped / kind)
    take = "from pathlib import Path; from app.core import kernels; kernels._use_shipped"
    at_start = f"{take}(Path({str(shipped)!r}), {str(kept)!r})"
    for _ in range(2):  # the second time, the cache is complete
        loop.touch()  # other time stamps do not matter
        assert answer(at_start, NUMBA_CACHE_DIR=str(kept)).startswith("2 Counter({")
    # A newer image has different loops; the folder that was copied from the older one exists.
    loop.write_text(loop.read_text().replace("x + 1", "x + 2"))
    assert answer(**while_building) == "3 Counter()"
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
