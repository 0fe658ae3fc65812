"""Parts of ``tools.bench.costs``, and a short run of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from statistics import median

import jsonschema
import numpy as np
import pytest
import torch

from app.constraint import Compiler
from app.core.specs import JsonSchema
from app.demo import MODEL_PATH
from tools.bench.costs.__main__ import main
from tools.bench.costs.batch import MODES, Extent, Mode, Sheets, window
from tools.bench.costs.context import lengths_within, prompts
from tools.bench.costs.sampler import few, nearly_all
from tools.bench.costs.schema_size import ROOM, Sample, long_enum, mask_times, wide
from tools.bench.costs.stepping import Step, Stepper, Words, model_config
from tools.bench.costs.weights import CONTEXT, ROWS, plan_of

HEADINGS = ("sampler", "batch", "schema", "context")
SAMPLES = [wide(1), wide(2), wide(23), long_enum(1), long_enum(2_000)]


@pytest.fixture(scope="module", autouse=True)
def threads_of_other_tests() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def words() -> Words:
    return Words.of(MODEL_PATH)


@pytest.fixture(scope="module")
def compiler(words: Words) -> Compiler:
    return Compiler(words.vocabulary)


@pytest.fixture(scope="module")
def stepper(words: Words) -> Stepper:
    return Stepper(model_config(MODEL_PATH, words, threads=1), words, most_running=4)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_generated_schema_admits_the_answer_beside_it(
    sample: Sample, words: Words, compiler: Compiler
) -> None:
    jsonschema.Draft202012Validator.check_schema(sample.schema)
    jsonschema.validate(sample.answer, sample.schema)
    state = compiler.compile(JsonSchema(sample.schema)).start()
    for token in words.tokenizer.encode(json.dumps(sample.answer)):
        state.accept(token)
    assert state.is_complete


def test_a_wide_schema_has_as_many_properties_as_were_asked_for() -> None:
    for number in (1, 10, 37):
        assert len(wide(number).schema["properties"]) == number
        assert len(wide(number).schema["required"]) == number


def test_the_values_of_a_long_enum_differ() -> None:
    assert len(set(long_enum(10_000).schema["properties"]["choice"]["enum"])) == 10_000


@pytest.mark.parametrize("spare", [0, ROOM])
def test_a_mask_is_timed_where_an_answer_branches_and_nowhere_else(
    spare: int, words: Words, compiler: Compiler
) -> None:
    constraint = compiler.compile(
        JsonSchema({"type": "array", "items": {"enum": ["ab", "xy"]}, "minItems": 3, "maxItems": 3})
    )
    pieces = words.vocabulary.token_bytes
    tokens = [pieces.index(bytes([byte])) for byte in b'["xy", "ab", "xy"]']
    assert len(mask_times(constraint, tokens, spare)) == 3
    assert len(mask_times(constraint, tokens, spare, most=2)) == 2


def test_sampler_masks_allow_nearly_all_tokens_and_ten() -> None:
    for vocabulary in (1_000, 1_025):
        allowed = [
            np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
            for mask in (nearly_all(vocabulary), few(vocabulary))
        ]
        assert allowed[0] == [token for token in range(vocabulary) if token % 100]
        assert allowed[1] == list(range(16, 26))


def test_lengths_leave_room_for_the_steps_that_decode() -> None:
    assert lengths_within([128, 1_900, 2_030], positions=2_048, steps=20) == [128, 1_900]


def test_prompts_are_the_same_every_time_and_no_two_begin_alike() -> None:
    some = prompts(32, 8, 50_000, seed=3)
    assert some == prompts(32, 8, 50_000, seed=3)
    assert {len(prompt) for prompt in some} == {32}
    assert len({prompt[0] for prompt in some} | {prompts(33, 1, 50_000, 3)[0][0]}) == 9


@pytest.mark.parametrize("answers", ROWS)
def test_sequences_of_a_step_have_blocks_of_their_own(answers: int) -> None:
    plan = plan_of(answers, block_size=16)
    assert [len(span.tokens) for span in plan] == [1] * answers
    assert all(16 * len(span.block_tables[0]) > CONTEXT for span in plan)
    blocks = [block for span in plan for block in span.block_tables[0]]
    assert len(set(blocks)) == len(blocks)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_steps_gain_the_tokens_that_answers_have_in_the_end(mode: Mode, stepper: Stepper) -> None:
    requests = Sheets(stepper).of(mode, 120)
    for _ in range(3):
        stepper.add(next(requests))
    steps: list[Step] = []
    while stepper.live:
        steps.append(stepper.step())
    usages = [chunk.usage for step in steps for chunk in step.ended]
    assert len(usages) == 3
    assert sum(step.gained for step in steps) == sum(usage.completion_tokens for usage in usages)
    # Medians, as other work of the machine can distort either time of one step.
    assert median(step.forward for step in steps) > 0
    assert median(step.host for step in steps) > 0


def test_a_window_keeps_the_batch_full_and_leaves_nothing_behind(stepper: Stepper) -> None:
    extent = Extent(batches=(4,), seconds=0.0, steps=60, answers=1)
    steps = window(stepper, Sheets(stepper).of(MODES[-1], 8), 4, 2, extent)
    assert len(steps) == 60
    assert {step.grew for step in steps} == {4}
    assert sum(len(step.ended) for step in steps) > 4
    assert stepper.live == 0


@pytest.mark.parametrize("arguments", [["nonsense"], ["batch", "speed"]])
def test_tables_that_there_are_not_are_named(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert f"no such table: {arguments[-1]}" in capsys.readouterr().err


def test_a_short_run_fills_every_cell_that_a_model_and_a_server_can(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--quick", "--threads", "1", "--model-folder", str(MODEL_PATH)]
    main(["batch", "schema", "context", "sampler", *options])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    rows = [line.strip("| ").split(" | ") for line in lines if not line.startswith("|---")]
    assert [row[0] for row in rows if row[0] in HEADINGS] == list(HEADINGS)
    without = [row for row in rows if "" in map(str.strip, row)]
    assert [row[0] for row in without] == ["none"], "only the row without a schema lacks such costs"
    assert not any("refused" in cell for row in rows for cell in row)
