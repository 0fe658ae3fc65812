from __future__ import annotations

import pytest

from tests.conformance import trials
from tests.conformance.peers import Leapjson
from tests.conformance.tokenizers import tokenizer
from tests.conformance.trials import Trial
from tests.wide import many
from tools import datasets


@pytest.fixture(scope="module")
def sample() -> list[datasets.Case]:
    return datasets.maskbench(count=many(40, 2), seed=4)


def problems_of(trial: Trial) -> str:
    if trial.outcome == "crash" or trial.invalid_accepted or trial.wrong_samples:
        return f"{trial.reason} {trial.invalid_accepted} {trial.wrong_samples}"
    return ""


def test_a_sample_of_maskbench_is_sound(sample: list[datasets.Case]) -> None:
    found = {case["id"]: problems_of(trials.by_bytes(case)) for case in sample}
    assert {name: text for name, text in found.items() if text} == {}


@pytest.mark.parametrize("name", [name for name in datasets.tokenizers() if name != "gpt2"])
def test_a_sample_of_maskbench_is_followed_by_masks(name: str, sample: list[datasets.Case]) -> None:
    real = tokenizer(name)
    engine = Leapjson(real)
    for case in sample[::4]:
        trial = trials.with_masks(engine, real, case)
        assert problems_of(trial) == "", case["id"]
        bytes_say = trials.by_bytes(case)
        assert trial.outcome == bytes_say.outcome
        assert trial.valid_rejected == bytes_say.valid_rejected, case["id"]


@pytest.mark.parametrize("name", ["Github_hard---o66683", "Github_medium---o9906"])
def test_patterns_with_json_punctuation_are_followed_before_recursive_rules(name: str) -> None:
    [case] = [case for case in datasets.maskbench() if case["id"] == name]
    trial = trials.with_masks(Leapjson(tokenizer("gpt2")), tokenizer("gpt2"), case)
    assert trial.outcome == "compiled", trial.reason
    assert not trial.invalid_accepted
    assert trial.valid_rejected == trials.by_bytes(case).valid_rejected
