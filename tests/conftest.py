"""What holds for all tests: the environment, and which of them this machine cannot run."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("untimed")

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
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
        "loadtest/test_gpu_estimate.py",
        "loadtest/test_gpu_report.py",
        "loadtest/test_graph_fit.py",
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


def is_here(name: str) -> bool:
    """Whether a program, one of ``LIBRARIES``, or what demo-vision is drawn with can be used."""
    if name == "fonts":
        from tools.demo_vision.picture import missing_faces

        return not missing_faces()
    return LIBRARIES[name] if name in LIBRARIES else shutil.which(name) is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests marked ``needs(...)`` where none of what they name is here."""
    left_out: dict[pytest.Item, str] = {}
    for item in items:
        for marker in item.iter_markers("needs"):
            if not any(map(is_here, marker.args)):
                left_out[item] = " or ".join(marker.args)
    config.stash[LEFT_OUT] = Counter(left_out.values())
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for name, number in config.stash.get(LEFT_OUT, Counter()).items():
        terminalreporter.write_line(f"left out for want of {name}: {number}")
    for file in collect_ignore:
        terminalreporter.write_line(f"left out for want of a library: {file}")
