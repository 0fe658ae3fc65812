"""What holds for all tests: the environment, sizes, and which tests are left out here.

Tests marked ``wide`` are left out unless ``-m`` names the mark or the test is named by its id. Each
of them repeats for many inputs, or at full size, what another test proves for one of each kind, or
proves an instrument and not the server: see ``tests/wide.py``.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests import wide

_NO_CLOCK: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [hypothesis.HealthCheck.too_slow],
}
hypothesis.settings.register_profile("same", derandomize=True, database=None, **_NO_CLOCK)
hypothesis.settings.register_profile("fuzz", print_blob=True, **_NO_CLOCK)
hypothesis.settings.load_profile("same")

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers and the servers that they start share the cores: one thread each.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
if not Path("/dev/nvidia0").exists():
    # Before anything imports triton: its own library functions are compiled or interpreted then.
    os.environ.setdefault("TRITON_INTERPRET", "1")

LIBRARIES: Mapping[str, bool] = {
    "outlines": sys.version_info < (3, 14),
    "triton": sys.platform == "linux",
}
"""Libraries that are not there for every Python or system, and whether they are for this one."""
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
TOGETHER = ("tests/e2e/test_s", "tests/telemetry/")
"""Beginnings of files that share the server of a session."""


def pytest_configure(config: pytest.Config) -> None:
    if "wide" in config.option.markexpr:
        os.environ["LEAPJSON_TEST_ALL"] = "1"  # before the tests are imported: see ``wide.many``


def is_here(name: str) -> bool:
    """Whether a program, one of ``LIBRARIES``, or what demo-vision is drawn with can be used."""
    if name == "fonts":
        from tools.demo_vision.picture import missing_faces

        return not missing_faces()
    return LIBRARIES[name] if name in LIBRARIES else shutil.which(name) is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out ``wide`` tests, and those marked ``needs(...)`` where none of that is here."""
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
                left_out[item] = f"for want of {' or '.join(marker.args)}"
    config.stash[LEFT_OUT] = Counter(left_out.values())
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests of one file run in one process, and so do files that share a server."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    scheduler = LoadFileScheduling(config, log)

    def together(nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((each for each in TOGETHER if file.startswith(each)), file)

    scheduler._split_scope = together
    return scheduler


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)  # of a worker of pytest-xdist
    if output is not None:
        output["left_out"] = json.dumps(session.config.stash.get(LEFT_OUT, Counter()))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker collects all tests, so any of them knows what is left out."""
    told = getattr(node, "workeroutput", {}).get("left_out")
    if told is not None:
        node.config.stash[LEFT_OUT] = Counter(json.loads(told))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for reason, number in config.stash.get(LEFT_OUT, Counter()).items():
        terminalreporter.write_line(f"left out, {reason}: {number}")
    skipped = Counter(report.longrepr[2] for report in terminalreporter.stats.get("skipped", []))
    for reason, number in skipped.items():
        terminalreporter.write_line(f"left out, {reason.removeprefix('Skipped: ')}: {number}")
    for file in collect_ignore:
        terminalreporter.write_line(f"left out for want of a library: {file}")
