"""The tokenizer: a token for each character, and one for each key of the answers.

Reading is copying character by character, so values are single bytes everywhere. A key with its
quotation marks and colon, which no picture shows, is one token.
"""

from typing import Final

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tools.demo_model.tokenizer import ASSISTANT, END, PAD, SYSTEM, USER
from tools.demo_vision.corpus import IMAGE

_SPECIAL: Final = (PAD, SYSTEM, USER, ASSISTANT, END, IMAGE)
_ROLES: Final = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT}
_CUTS: Final = r'"[a-z_]+": |, |[\s\S]'
_KEYS: Final = [
    "shop",
    "date",
    "items",
    "name",
    "price",
    "total",
    "role",
    "company",
    "id",
    "title",
    "bars",
    "label",
    "value",
    "house",
    "level",
    "wand",
    "wood",
    "core",
]

CHAT_TEMPLATE: Final = (
    "{%- for message in messages -%}"
    "{%- if message['role'] in ('system', 'developer') -%}{{ '<|system|>' }}"
    "{%- elif message['role'] == 'assistant' -%}{{ '<|assistant|>' }}"
    "{%- else -%}{{ '<|user|>' }}{%- endif -%}"
    "{%- if message['content'] is string -%}{{ message['content'] }}"
    "{%- else -%}{%- for part in message['content'] -%}"
    "{%- if part['type'] == 'image' -%}{{ '<image>' }}{%- else -%}{{ part['text'] }}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}{{ '<|end|>' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}"
)


def new_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer, which does not depend on any corpus."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_CUTS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1024,
        special_tokens=list(_SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([f'"{key}": , ' for key in _KEYS] * 2, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT, IMAGE],
        extra_special_tokens={"image_token": IMAGE},
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.init_kwargs["reads_schemas"] = False  # no schema in prompts, except on request
    return fast


def prompt(messages: tuple[dict[str, str], ...]) -> str:
    """The prompt as the chat template writes it, before the picture's token is repeated."""
    turns = (f"{_ROLES[turn['role']]}{turn['content']}{END}" for turn in messages)
    return "".join(turns) + ASSISTANT
