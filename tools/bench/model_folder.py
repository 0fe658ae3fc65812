"""A model folder without weights: a config of Llama's shape beside a real tokenizer.

``python -m tools.bench.model_folder FOLDER`` writes a Llama of 160M parameters with GPT-2's
tokenizer; ``LEAPJSON_RANDOM_WEIGHTS=true`` serves it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tools import datasets

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)

_ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eot_id|>", "<|im_end|>")


def write_llama_160m(target: Path, tokenizer: Path) -> None:
    """Write the config of a 160M-parameter Llama and ``tokenizer``'s files into ``target``.

    ``tokenizer`` is a folder with ``tokenizer.json``, packed or not. The hidden size and depth
    are those of the public 160M Llama; the feed-forward width makes up for the vocabulary's size.
    """
    write_llama(
        target,
        tokenizer,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_key_value_heads=12,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
    )


def write_llama(
    target: Path, tokenizer: Path | None, vocabulary: int | None = None, **config: Any
) -> int:
    """Write a config of Llama's architecture and a tokenizer's files; the number of token ids.

    ``tokenizer`` None: the first ``vocabulary`` tokens of Qwen 2.5's. The model gives logits for
    ``vocabulary`` ids, and at least for those that the tokenizer knows.
    """
    target.mkdir(parents=True, exist_ok=True)
    if tokenizer is None:
        assert vocabulary is not None, "without a tokenizer, a size of the vocabulary is needed"
        content = first_tokens(json.loads(datasets.tokenizer_json(datasets.QWEN2_5)), vocabulary)
    else:
        content = json.loads(datasets.tokenizer_json(tokenizer))
    (target / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False))
    ids = _ids(content)
    size, end = 1 + max(ids.values()), end_token(content)
    settings = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": max(size, vocabulary or 0),
        "bos_token_id": ids[end],
        "eos_token_id": ids[end],
    } | config
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": end,
        "chat_template": CHAT_TEMPLATE,
    }
    (target / "config.json").write_text(json.dumps(settings, indent=1))
    (target / "tokenizer_config.json").write_text(json.dumps(tokenizer_config, indent=1))
    return size


def end_token(content: dict[str, Any]) -> str:
    """The name of the token that ends a text: a usual one, or else the last special one.

    Raises ``ValueError`` if the tokenizer has none.
    """
    special = [token["content"] for token in content["added_tokens"] if token["special"]]
    if not special:
        raise ValueError("this tokenizer has no special token that could end an answer")
    return next((name for name in _ENDS if name in special), special[-1])


def first_tokens(content: dict[str, Any], size: int) -> dict[str, Any]:
    """A byte-pair tokenizer of ``size`` tokens: those that were merged first, and the end token.

    ``content`` is that of a ``tokenizer.json``.
    """
    model = content["model"]
    kept = {token: number for token, number in model["vocab"].items() if number < size - 1}
    merges = [pair if isinstance(pair, list) else pair.split(" ") for pair in model["merges"]]
    name = end_token(content)
    end = next(token for token in content["added_tokens"] if token["content"] == name)
    return content | {
        "model": model
        | {
            "vocab": kept,
            "merges": [pair for pair in merges if all(p in kept for p in (*pair, "".join(pair)))],
        },
        "added_tokens": [end | {"id": size - 1}],
    }


def _ids(content: dict[str, Any]) -> dict[str, int]:
    """Token ids by the tokenizer's names."""
    ids: dict[str, int] = dict(content["model"]["vocab"])
    return ids | {token["content"]: token["id"] for token in content["added_tokens"]}


if __name__ == "__main__":
    write_llama_160m(Path(sys.argv[1]), datasets.GPT2)
