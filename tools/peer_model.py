"""The model that every peer serves: ``python -m loadtest.peers train --out FOLDER`` trains it.

A Llama of 160M weights with a byte-level BPE of 32,000 tokens. It only has to cost as much as such
a model and to complete its JSON: the first layers learn the two tasks of ``loadtest.tasks``, the
others add next to nothing to the residual stream. A server thus computes and reads as much for a
token as usual, while training can skip these layers. The weights depend only on the seed, the
number of steps, and the order in which threads add up.

Every answer that it learns is valid against its schema in ``loadtest.tasks``. Each name has usual
values; one field in three differs from them, so that an answer is likely but
never certain.
"""

from __future__ import annotations

import json
import random
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn import functional
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from app.terminal.screen import open_screen
from loadtest.tasks import CHARACTER, CHARACTERS, CITIES
from tools.bench.model_folder import CHAT_TEMPLATE
from tools.demo_model.corpus import mixture
from tools.progress import reporting_share

END: Final = "<|endoftext|>"
VOCABULARY: Final = 32_000
_TRAINED: Final = 3
"""Layers that are trained; the others come after them."""
_UNTRAINED_STD: Final = 1e-6
"""Standard deviation of the other layers' output projections. Not zero: OpenVINO stores equal
constants once, and would read a seventh less than its peers do."""
_IGNORED: Final = -100
_STEP: Final = 16
"""Rows are padded to a multiple of this many tokens: the kernels of a few shapes stay cached."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of a training run."""

    out: Path
    seed: int
    steps: int
    minutes: float
    """Wall-clock minutes after which the schedule ends, at any step."""
    threads: int = 2
    rows: int = 8
    """Sheets a step, of about 100 tokens each."""
    learning_rate: float = 1.5e-3


def config(layers: int) -> LlamaConfig:
    """The shape of the public 160M Llama (768 wide, 12 heads), with this many of its 12 layers."""
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=layers,
        num_attention_heads=12,
        num_key_value_heads=12,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        rms_norm_eps=1e-5,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=None,
    )


def train(plan: Plan) -> None:
    """Trains and writes the model's folder. Prints the loss as it goes."""
    torch.set_num_threads(plan.threads)
    torch.manual_seed(plan.seed)
    tokenizer = train_tokenizer(plan.seed)
    model = LlamaForCausalLM(config(_TRAINED))
    model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=plan.learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True
    )
    batches = _batches(tokenizer, plan)
    start, step = time.monotonic(), 0
    told = open_screen(sys.stderr).progress
    for progress in reporting_share(told, "training", lambda step: _progress(plan, step, start)):
        # The rate rises over the first twentieth, then falls to zero in a straight line.
        optimizer.param_groups[0]["lr"] = plan.learning_rate * min(20 * progress, 1 - progress)
        loss = _update(model, optimizer, *next(batches))
        step += 1
        if step % 20 == 0:
            print(f"step {step} loss {loss:.3f} {time.monotonic() - start:.0f} s", flush=True)
    export(model, tokenizer, plan)
    print(f"done: {step} steps, {time.monotonic() - start:.0f} s, written to {plan.out}")


def train_tokenizer(seed: int) -> Tokenizer:
    """Byte-level BPE as GPT-2 splits text: sheets, extraction tasks, prose and code, in a minute.

    The code and its prose are the standard library's, which every machine with Python has.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(seed), trainer)
    assert tokenizer.get_vocab_size() == VOCABULARY, "too little text for the vocabulary"
    return tokenizer


def export(model: LlamaForCausalLM, tokenizer: Tokenizer, plan: Plan) -> None:
    """Writes the whole model in bfloat16, its tokenizer and the chat template of the load tests."""
    whole = LlamaForCausalLM(config(12))
    with torch.no_grad():
        for layer in whole.model.layers[_TRAINED:]:
            layer.self_attn.o_proj.weight.normal_(std=_UNTRAINED_STD)
            layer.mlp.down_proj.weight.normal_(std=_UNTRAINED_STD)
    whole.load_state_dict(model.state_dict(), strict=False)
    whole.to(dtype=torch.bfloat16)  # type: ignore[call-arg]
    whole.generation_config = GenerationConfig(bos_token_id=0, eos_token_id=0, pad_token_id=0)
    whole.save_pretrained(plan.out)
    tokenizer.save(str(plan.out / "tokenizer.json"))
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END,
        "eos_token": END,
        "add_bos_token": False,
        "model_max_length": 2048,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (plan.out / "tokenizer_config.json").write_text(json.dumps(described, indent=1))


def _texts(seed: int) -> Iterator[str]:
    yield from (f"{prompt}\n{answer}" for prompt, answer in islice(sheets(seed), 2000))
    for example in islice(mixture(seed), 3000):
        yield from (turn["content"] for turn in example.messages)
        yield example.text
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        yield path.read_text(encoding="utf-8", errors="replace")


def _update(
    model: LlamaForCausalLM, optimizer: torch.optim.Optimizer, ids: torch.Tensor, labels: Any
) -> float:
    """One update on the loss of the answers' tokens. Returns the loss, in nats a token."""
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        answers = labels != _IGNORED
        logits = model.lm_head(hidden[answers])
    loss = functional.cross_entropy(logits.float(), labels[answers])
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def _batches(tokenizer: Tokenizer, plan: Plan) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Token ids [rows, length] and the tokens to predict there, ``_IGNORED`` outside answers."""
    pairs = sheets(plan.seed)
    while True:
        rows = [_row(tokenizer, *next(pairs)) for _ in range(plan.rows)]
        length = -(-max(len(ids) for ids, _ in rows) // _STEP) * _STEP
        ids = torch.zeros(plan.rows, length, dtype=torch.long)
        labels = torch.full((plan.rows, length), _IGNORED)
        for place, (tokens, asked) in enumerate(rows):
            ids[place, : len(tokens)] = torch.tensor(tokens)
            labels[place, asked - 1 : len(tokens) - 1] = torch.tensor(tokens[asked:])
        yield ids, labels


def _row(tokenizer: Tokenizer, prompt: str, answer: str) -> tuple[list[int], int]:
    """The conversation's tokens as a server would see them, and the number of prompt tokens."""
    asked = tokenizer.encode(f"user: {prompt}\nassistant: ").ids
    said = tokenizer.encode(answer).ids
    return [*asked, *said, 0], len(asked)


def _progress(plan: Plan, step: int, start: float) -> float:
    """The share of the schedule that is over, by steps or by the clock, whichever is further."""
    return max(step / plan.steps, (time.monotonic() - start) / (60 * plan.minutes))


_OTHER_CHARACTERS: Final = (
    "Ada Fenn", "Bram Alder", "Celia Marsh", "Dorian Pike", "Edith Vale", "Felix Thorne",
    "Greta Holm", "Hugo Penn", "Iris Blake", "Jonas Reed", "Klara Voss", "Leo Hart",
    "Mina Frost", "Nora Quill", "Oscar Dale", "Petra Lind", "Quentin Ash", "Rosa Bell",
    "Silas Crow", "Tilda Moss", "Ursula Kent", "Victor Stone", "Wanda Grey", "Yara Finch",
)  # fmt: skip
_OTHER_CITIES: Final = (
    "Oslo", "Cairo", "Berlin", "Quito", "Hanoi", "Dakar", "Madrid", "Lisbon", "Vienna", "Prague",
    "Tokyo", "Delhi", "Sydney", "Boston", "Toronto", "Bogota", "Athens", "Dublin", "Riga", "Tunis",
)  # fmt: skip
_WOODS: Final = ("holly", "willow", "oak", "ash", "yew", "vine", "cedar", "elm")
_CORES: Final = ("phoenix feather", "unicorn hair", "dragon string", "veela hair")
_ANIMALS: Final = ("stag", "otter", "hare", "fox", "swan", "doe", "wolf", "lynx", "terrier")
_FEARS: Final = ("spiders", "failure", "the dark", "heights", "a mummy", "silence", "a snake")
_COUNTRIES: Final = ("France", "Japan", "Kenya", "Peru", "Iceland", "Norway", "Egypt", "Canada")
_PLACES: Final = ("Old", "Royal", "Grand", "City", "North", "River", "Stone", "Golden")
_SIGHTS: Final = ("Tower", "Palace", "Museum", "Bridge", "Market", "Garden", "Square", "Gate")
_CHARACTER_PROMPTS: Final = (
    "Please fill in the character sheet of {}.",
    "{} is a character. Please fill in the following information about this character.",
    "Describe the character {} in JSON.",
)
_CITY_PROMPTS: Final = (
    "Please fill in the facts about the city of {}.",
    "Please fill in the following information about the city {}.",
    "Describe the city of {} in JSON.",
)
_USUAL: Final = 0.8
"""Share of the prompts with the wording of ``loadtest.tasks``."""
_TYPICAL: Final = 0.67
"""Share of the fields with the usual value of their name."""


def sheets(seed: int) -> Iterator[tuple[str, str]]:
    """Endless pairs of a prompt and its JSON, characters and cities in turn. Microseconds each."""
    rng = random.Random(seed)
    while True:
        name = rng.choice((*CHARACTERS, *_OTHER_CHARACTERS))
        yield _worded(_CHARACTER_PROMPTS, name, rng), _written(_character(name, rng))
        city = rng.choice((*CITIES, *_OTHER_CITIES))
        yield _worded(_CITY_PROMPTS, city, rng), _written(_city(city, rng))


class _Values:
    """Draws the fields of one sheet: usually the name's own values, sometimes any."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self._own = random.Random(name)
        self._any = rng

    def one_of(self, values: Sequence[str]) -> str:
        own = self._own.choice(values)
        return own if self._any.random() < _TYPICAL else self._any.choice(values)

    def number(self, lowest: int, highest: int) -> int:
        own = self._own.randint(lowest, highest)
        return own if self._any.random() < _TYPICAL else self._any.randint(lowest, highest)


def _character(name: str, rng: random.Random) -> dict[str, Any]:
    values = _Values(name, rng)
    choices = CHARACTER["properties"]
    return {
        "name": name,
        "house": values.one_of(choices["house"]["enum"]),
        "blood status": values.one_of(choices["blood status"]["enum"]),
        "occupation": values.one_of(choices["occupation"]["enum"]),
        "wand": {
            "wood": values.one_of(_WOODS),
            "core": values.one_of(_CORES),
            "length": f"{values.number(9, 14)}.{values.number(0, 3)}",
        },
        "alive": values.one_of(choices["alive"]["enum"]),
        "patronus": values.one_of(_ANIMALS),
        "bogart": values.one_of(_FEARS),
    }


def _city(name: str, rng: random.Random) -> dict[str, Any]:
    values = _Values(name, rng)
    return {
        "name": name,
        "country": values.one_of(_COUNTRIES),
        "latitude": f"{values.number(10, 65)}.{values.number(10, 99)}",
        "population": str(values.number(100, 900) * 10_000),
        "top 3 landmarks": [f"{values.one_of(_PLACES)} {values.one_of(_SIGHTS)}" for _ in range(3)],
    }


def _worded(prompts: Sequence[str], name: str, rng: random.Random) -> str:
    wording = prompts[0] if rng.random() < _USUAL else rng.choice(prompts)
    return wording.format(name)


def _written(sheet: dict[str, Any]) -> str:
    """JSON as ``json.dumps`` writes it, which every peer's grammar allows."""
    return json.dumps(sheet)
