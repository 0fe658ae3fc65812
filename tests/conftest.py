"""Configuration of all tests: the environment, Hypothesis profiles, and tests to leave out.

Tests marked ``wide`` are left out unless ``-m`` names the mark or the test is named by its id. Each
of them repeats for many inputs, or at full size, what another test proves for one of each kind, or
tests an instrument instead of the server: see ``tests/wide.py``.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests import forks, wide

_NO_CLOCK: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [hypothesis.HealthCheck.too_slow],
}
hypothesis.settings.register_profile("same", derandomize=True, database=None, **_NO_CLOCK)
hypothesis.settings.register_profile("fuzz", print_blob=True, **_NO_CLOCK)
hypothesis.settings.load_profile("same")

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if not Path("/dev/nvidia0").exists():
    # Before triton is imported: the import decides whether its library functions are interpreted.
    os.environ.setdefault("TRITON_INTERPRET", "1")

LIBRARIES: Mapping[str, bool] = {
    "outlines": sys.version_info < (3, 14),
    "triton": sys.platform == "linux",
}
"""Libraries that some versions of Python or systems lack, and whether this one has them."""
IMPORTED_BY: Mapping[str, Sequence[str]] = {
    "outlines": ["constraint/test_python_types.py"],
    "triton": [
        "tools/bench/test_gpu_report.py",
        "tools/bench/test_graph_fit.py",
        "model/cuda/test_attention.py",
        "model/cuda/test_compilations.py",
        "model/cuda/test_elementwise.py",
        "model/cuda/test_graphs.py",
        "model/cuda/test_launches.py",
        "model/cuda/test_layers.py",
        "model/cuda/test_products.py",
        "model/cuda/test_sampling.py",
        "model/parallel/test_fused_layers.py",
    ],
}
collect_ignore = [
    file for name, files in IMPORTED_BY.items() if not LIBRARIES[name] for file in files
]
LEFT_OUT = pytest.StashKey[Counter[str]]()
WIDE = "wide: make test-all"
TOGETHER = ("tests/browser/", "tests/e2e/test_s", "tests/telemetry/")
"""Prefixes of the paths of files that share a server."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--forks", type=int, default=0, help="processes that run the tests; see tests/forks.py"
    )


def pytest_configure(config: pytest.Config) -> None:
    if Path("/dev/nvidia0").exists():
        # Collecting tests may use the GPU, and a process that has used a GPU cannot be forked.
        config.option.forks = 0
    if config.option.forks > 1:
        # Forks and the servers that they start share the cores: one thread each. A fork of a
        # process with threads of OpenMP would wait for them forever.
        assert "torch" not in sys.modules, "OpenMP has read its number of threads"
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    gc.disable()  # imports and collection leave little garbage: saves a sixth of the time
    if "wide" in config.option.markexpr:
        os.environ["LEAPJSON_TEST_ALL"] = "1"  # before the tests are imported: see ``wide.many``


def is_here(name: str) -> bool:
    """Whether a program, one of ``LIBRARIES``, or the fonts of demo-vision are installed."""
    if name == "fonts":
        from tools.demo_vision.picture import missing_faces

        return not missing_faces()
    return LIBRARIES[name] if name in LIBRARIES else shutil.which(name) is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect ``wide`` tests, and tests marked ``needs(...)`` if nothing named is installed."""
    named = [each for each in config.args if "::" in each]
    wide.mark(items, whole_files=not named)
    left_out: dict[pytest.Item, str] = {}
    for item in items:
        if (
            item.get_closest_marker("wide")
            and "wide" not in config.option.markexpr
            and not any(item.nodeid.startswith(each) for each in named)
        ):
            left_out[item] = WIDE
        for marker in item.iter_markers("needs"):
            if not any(map(is_here, marker.args)):
                left_out[item] = f"needs {' or '.join(marker.args)}"
    config.stash[LEFT_OUT] = Counter(left_out.values())
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))


def pytest_collection_finish() -> None:
    gc.enable()
    gc.set_threshold(10_000, 2, 100)  # as in the server: halves the time of the garbage collector


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    config = session.config
    count: int = config.option.forks
    if count < 2 or config.option.collectonly or config.option.usepdb or session.testsfailed:
        return None

    def together(file: str) -> str:
        return next((each for each in TOGETHER if file.startswith(each)), file)

    forks.run(session, count, together)
    return True


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for reason, number in config.stash.get(LEFT_OUT, Counter()).items():
        terminalreporter.write_line(f"left out, {reason}: {number}")
    skipped = Counter(report.longrepr[2] for report in terminalreporter.stats.get("skipped", []))
    for reason, number in skipped.items():
        terminalreporter.write_line(f"left out, {reason.removeprefix('Skipped: ')}: {number}")
    for file in collect_ignore:
        terminalreporter.write_line(f"left out, library not installed: {file}")
