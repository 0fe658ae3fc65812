from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIES = """
import os

def test_before():
    pass

def test_that_dies():
    os._exit(3)

def test_after():
    pass
"""
LIVES = """
import os

def test_output_is_its_own(capfd):
    os.write(1, b"here")
    assert capfd.readouterr().out == "here"

def test_that_fails(tmp_path):
    print("what it printed")
    assert list(tmp_path.iterdir()) == [1]
"""


def test_a_fork_that_dies_fails_its_tests_and_the_others_are_told_whole(tmp_path: Path) -> None:
    (tmp_path / "test_dies.py").write_text(DIES)
    (tmp_path / "test_lives.py").write_text(LIVES)
    options = ("-p", "tests.conftest", "--forks", "2", "--import-mode=importlib")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-p", "no:cacheprovider", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "3 failed, 2 passed" in done.stdout
    assert done.stdout.count("not run to its end: ForkProcess") >= 2
    assert "ended with 3" in done.stdout
    assert "what it printed" in done.stdout
    assert "assert [] == [1]" in done.stdout
