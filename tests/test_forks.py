from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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

STAYS = """
import os, signal

def test_that_does_not_end():
    os.write(int(os.environ["STAYS"]), b"here")
    signal.pause()
"""
OPTIONS = ("-p", "tests.conftest", "-p", "no:cacheprovider", "--import-mode=importlib")


def test_a_fork_that_dies_fails_its_tests_and_the_others_are_told_whole(tmp_path: Path) -> None:
    (tmp_path / "test_dies.py").write_text(DIES)
    (tmp_path / "test_lives.py").write_text(LIVES)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS, "--forks", "2", str(tmp_path)],
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


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a fork ends at its next report")
def test_a_fork_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    (tmp_path / "test_stays.py").write_text(STAYS)
    reader, writer = os.pipe()
    running = subprocess.Popen(
        [sys.executable, "-m", "pytest", *OPTIONS, "--forks", "2", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "STAYS": str(writer)},
        pass_fds=[writer],
        stdout=subprocess.DEVNULL,
    )
    os.close(writer)
    with open(reader, "rb") as pipe:
        assert pipe.read(4) == b"here"
        running.kill()
        running.wait()
        assert pipe.read() == b"", "the fork has closed it"
