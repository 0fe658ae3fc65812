"""The command line that trains and evaluates the demo model."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from app.demo import MODEL_PATH
from tools.demo_model.__main__ import main


@pytest.fixture(autouse=True)
def _torchs_own_settings() -> Iterator[None]:
    threads = torch.get_num_threads()
    reduced = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()  # type: ignore[no-untyped-call]
    yield
    torch.set_num_threads(threads)
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(reduced)


def test_a_training_goes_on_from_a_folder_and_writes_one_that_can_be_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["train", "--begin", str(MODEL_PATH), "--steps", "1", "--out", str(tmp_path)])
    assert {file.name for file in tmp_path.iterdir()} == {
        file.name for file in MODEL_PATH.iterdir()
    }
    assert capsys.readouterr().out.startswith("1,869,504 parameters\ndone: 1 steps")
    main(["evaluate", "--per-kind", "2", "--seed", "5", "--folder", str(tmp_path)])
    kinds = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert kinds == ["kind", "city", "contact", "event", "invoice", "notes", "review", "all"]


def test_calls_of_functions_are_measured_by_a_command_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["evaluate-functions", "--per-kind", "1"])
    kinds = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert kinds == ["kind", "call", "form", "result", "no_call"]


def test_a_command_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert "{train,evaluate,evaluate-functions}" in capsys.readouterr().err
