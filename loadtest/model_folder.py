"""A model folder without weights: a config of Llama's shape beside a real tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

from tools import datasets

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def write_llama_160m(target: Path, tokenizer: Path) -> None:
    """Write the config of a 160M-parameter Llama and ``tokenizer``'s files into ``target``.

    ``tokenizer`` is a folder with ``tokenizer.json``, packed or not. The hidden size and depth
    are those of the public 160M Llama; the feed-forward width makes up for the vocabulary's size.
    """
    target.mkdir(parents=True, exist_ok=True)
    text = datasets.tokenizer_json(tokenizer)
    (target / "tokenizer.json").write_bytes(text)
    content = json.loads(text)
    size = max([*content["model"]["vocab"].values(), *(t["id"] for t in content["added_tokens"])])
    end = next(t for t in content["added_tokens"] if t["content"] == "<|endoftext|>")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": size + 1,
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_key_value_heads": 12,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
        "bos_token_id": end["id"],
        "eos_token_id": end["id"],
    }
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": end["content"],
        "chat_template": CHAT_TEMPLATE,
    }
    (target / "config.json").write_text(json.dumps(config, indent=1))
    (target / "tokenizer_config.json").write_text(json.dumps(tokenizer_config, indent=1))
