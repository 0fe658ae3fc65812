"""The committed tokenizer and weights: exact, small, and good enough to demonstrate the server."""

import json
from typing import Any

import pytest
from transformers import AutoConfig

from app.answer.tools import FunctionTool
from app.demo import MODEL_PATH
from tools.demo_model.corpus import examples
from tools.demo_model.evaluate import Demo, score_free, score_given
from tools.demo_model.evaluate_functions import score_tools
from tools.demo_model.scene import Scene, calls_as_text, written_out
from tools.demo_model.tokenizer import ASSISTANT, END, conversation


@pytest.fixture(scope="module")
def demo() -> Demo:
    return Demo()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain words, and  two spaces\n",
        '{"name": "Zoë", "n": [1, 20.5, true], "w": {"a b": null}}',
        "東京 Łódź 🦘 é é",
        "\x00\t\r\n\x7f",
    ],
)
def test_the_tokenizer_gives_back_every_text(demo: Demo, text: str) -> None:
    ids = demo.tokenizer.encode(text, add_special_tokens=False)
    assert demo.tokenizer.decode(ids) == text


def test_every_byte_is_a_token(demo: Demo) -> None:
    vocabulary = demo.tokenizer.get_vocab()
    singles = [token for token in vocabulary if len(token) == 1]
    assert len(singles) == 256


def test_a_value_has_the_same_tokens_in_a_paragraph_and_in_json(demo: Demo) -> None:
    def tokens(text: str) -> list[str]:
        found: list[str] = demo.tokenizer.tokenize(text)
        return found

    value = tokens("Varoth Lindqvist")
    assert tokens("met Varoth Lindqvist there")[2 : 2 + len(value)] == value
    assert tokens('": "Varoth Lindqvist"')[1 : 1 + len(value)] == value


def test_the_chat_template_writes_what_the_model_was_trained_on(demo: Demo) -> None:
    for example in examples("talk", count=20, seed=1):
        assert demo.prompt(example.messages) == conversation(example)[0]
    assert demo.prompt([{"role": "user", "content": "Hi"}]) == f"<|user|>Hi{END}{ASSISTANT}"


def test_the_end_of_a_turn_ends_generation(demo: Demo) -> None:
    end = demo.tokenizer.convert_tokens_to_ids(END)
    config: Any = AutoConfig.from_pretrained(MODEL_PATH)
    assert demo.tokenizer.eos_token_id == end
    assert config.eos_token_id == end
    assert demo.model.generation_config.eos_token_id == end
    assert json.loads((MODEL_PATH / "generation_config.json").read_text())["eos_token_id"] == end


def test_the_folder_is_smaller_than_12_megabytes() -> None:
    assert sum(file.stat().st_size for file in MODEL_PATH.iterdir()) < 12_000_000


def test_it_says_who_it_is_and_stops(demo: Demo) -> None:
    (answer,) = demo.complete([demo.prompt([{"role": "user", "content": "Who are you?"}])])
    assert "Leapjson" in answer
    assert "demo model" in answer


def test_it_extracts_held_out_contacts(demo: Demo) -> None:
    asked = [e for e in examples("contact", 24, seed=11, split="held_out") if e.decided][:10]
    score = score_free(demo, asked)
    assert score.parsed >= 7
    assert score.free >= 0.65


def test_it_finds_the_value_of_a_key_that_only_the_server_knows(demo: Demo) -> None:
    asked = list(examples("event", 12, seed=12, split="held_out"))
    assert score_given(demo, asked).given >= 0.8


def test_it_fills_in_the_parameters_of_a_function_that_takes_a_record(demo: Demo) -> None:
    score = score_tools(demo, list(examples("form", 16, seed=13, split="held_out")))
    assert score.decided >= 10
    assert score.required_functions >= 9
    assert score.required_right / score.fields >= 0.5


def test_it_calls_a_function_and_says_what_it_returned(demo: Demo) -> None:
    tools = [FunctionTool("get_weather", "Get the weather.", {
        "type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"],
    })]  # fmt: skip

    def answered(*turns: dict[str, Any]) -> str:
        scene = Scene(turns, tuple(tools), (), "")
        (answer,) = demo.complete([demo.prompt(written_out(scene))])
        return answer

    asked = {"role": "user", "content": "What is the weather like in Paris today?"}
    arguments = {"location": "Paris"}
    assert answered(asked) == calls_as_text([("get_weather", arguments)])
    assert answered({"role": "user", "content": "Hello!"}).startswith("Hello!")
    function = {"name": "get_weather", "arguments": arguments}
    calls = [{"id": "call_1", "type": "function", "function": function}]
    answer = answered(
        asked,
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_1", "content": "18 degrees and sunny"},
    )
    assert "18 degrees" in answer
    assert not answer.startswith("{")
