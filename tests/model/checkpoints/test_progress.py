"""Progress of downloading and reading a model; nothing else is printed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file

from app.demo import MODEL_PATH
from tests.model.checkpoints.hub import running_hub

ROOT = Path(__file__).parents[3]


def save_in_two_files(folder: Path) -> int:
    """Save the demo model with its weights in two files; returns the number of tensors."""
    shutil.copytree(MODEL_PATH, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    weights = load_file(next(MODEL_PATH.glob("*.safetensors")))
    names = sorted(weights)
    places = {
        name: f"model-{1 + (number % 2):05}-of-00002.safetensors"
        for number, name in enumerate(names)
    }
    for file in set(places.values()):
        mine = {name: weights[name] for name in names if places[name] == file}
        save_file(mine, folder / file, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return len(names)


def test_a_model_of_the_hub_reports_bytes_once_and_tensors_at_each_load(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    tensors = save_in_two_files(folder)
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    with running_hub("owner/model", folder) as url:
        hub = {"HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "0"}
        done = subprocess.run(
            [sys.executable, "-m", "tests.model.checkpoints.loading_progress", "owner/model"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **hub},
            capture_output=True,
            text=True,
            timeout=600,
        )
    assert done.returncode == 0, done.stderr
    (download, reading), again = json.loads(done.stdout)  # stdout has only the stages
    assert done.stderr == ""  # and stderr nothing
    assert (download["name"], download["unit"]) == ("downloading from the Hub", "B")
    assert (download["reached"][-1], download["of"]) == (size, size)
    assert (reading["name"], reading["unit"]) == ("reading the weights", "tensors")
    assert (reading["reached"], reading["of"]) == ([*range(1, tensors + 1)], tensors)
    assert all(stage["ended"] for stage in (download, reading))
    assert [stage["name"] for stage in again] == ["reading the weights"]
