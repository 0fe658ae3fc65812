"""Trains the tokenizer: byte-level BPE, cut so that copied text keeps its tokens.

GPT-2 joins a space to the word after it, so " Varo" in a paragraph and "Varo" after a quotation
mark are different tokens; a small model would have to learn for each name that they are the same.
Here letters are split from other characters, every digit is a token, and punctuation includes one
space after it: a value has the same tokens in the paragraph and in the JSON, and copying is a
look-up of the next token. `": "` and `", "` are one token each, as in the usual tokenizers.
"""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Final

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tools.demo_model.corpus import Example, mixture

PAD: Final = "<|pad|>"
SYSTEM: Final = "<|system|>"
USER: Final = "<|user|>"
ASSISTANT: Final = "<|assistant|>"
END: Final = "<|end|>"
SPECIAL: Final = (PAD, SYSTEM, USER, ASSISTANT, END)

_CUTS: Final = (
    r"[\p{L}\p{M}]+"  # a word
    r"|\p{N}"  # a digit
    r"|[^\s\p{L}\p{M}\p{N}]+(?: [^\s\p{L}\p{M}\p{N}]+)* ?"  # punctuation, such as `": "` and `, `
    r"|\s+"
)

CHAT_TEMPLATE: Final = (
    "{%- for message in messages -%}"
    "{%- if message['role'] in ('system', 'developer') -%}{{ '<|system|>' }}"
    "{%- elif message['role'] == 'assistant' -%}{{ '<|assistant|>' }}"
    "{%- else -%}{{ '<|user|>' }}{%- endif -%}"
    "{{ message['content'] + '<|end|>' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}"
)


def train_tokenizer(vocabulary: int, count: int, seed: int) -> PreTrainedTokenizerFast:
    """Learns the merges from `count` generated examples. Takes a few seconds."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_CUTS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(islice(mixture(seed), count)), trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT],
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.init_kwargs["reads_schemas"] = False  # no schema in prompts, except on request
    return fast


def conversation(example: Example) -> tuple[str, str]:
    """The prompt as the chat template writes it, and the answer with its end token."""
    roles = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT}
    turns = (f"{roles[turn['role']]}{turn['content']}{END}" for turn in example.messages)
    return "".join(turns) + ASSISTANT, example.text + END


def save(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Writes tokenizer.json and tokenizer_config.json, the chat template within it."""
    tokenizer.save_pretrained(folder, save_jinja_files=False)


def _texts(examples: Iterable[Example]) -> Iterable[str]:
    for example in examples:
        yield from (turn["content"] for turn in example.messages)
        yield example.text
