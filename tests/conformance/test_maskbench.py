from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import shared, trials
from tests.conformance.peers import Leapjson
from tests.conformance.trials import Trial


@pytest.fixture(scope="module")
def sample(shared_data: Path) -> list[shared.Case]:
    """Every sixtieth schema."""
    return shared.maskbench(shared_data / "maskbench" / "dev.jsonl.gz")[::60]


def trouble(trial: Trial) -> str:
    if trial.outcome == "crash" or trial.invalid_accepted or trial.wrong_samples:
        return f"{trial.reason} {trial.invalid_accepted} {trial.wrong_samples}"
    return ""


def test_a_sample_of_maskbench_is_sound(sample: list[shared.Case]) -> None:
    found = {case["id"]: trouble(trials.by_bytes(case)) for case in sample}
    assert {name: text for name, text in found.items() if text} == {}


def test_a_sample_of_maskbench_is_followed_by_masks(sample: list[shared.Case]) -> None:
    tokenizer = shared.tokenizer("llama3_2")
    engine = Leapjson(tokenizer)
    for case in sample[::4]:
        trial = trials.with_masks(engine, tokenizer, case)
        assert trouble(trial) == "", case["id"]
        bytes_say = trials.by_bytes(case)
        assert trial.outcome == bytes_say.outcome
        assert trial.valid_rejected == bytes_say.valid_rejected, case["id"]
