"""``python -m tests.answer.schema_prompt_tokens FOLDER [NAME...]``: tokens of schemas in prompts.

For each chat template of a folder: the role of the message with the schema, the tokens of a prompt
without and with it, and the length of the prefix shared with a prompt for another user message.
The tokenizer is that of Llama 3.2 for names with "llama", if it is available, else of Qwen 2.5.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from app.answer.formats.chat import detect
from app.answer.prompt import Conversation, template_input
from app.answer.schema_prompt import SchemaPrompt, schema_text
from app.core.errors import InvalidRequest
from app.text.tokenizer import HfTokenizer
from tools import datasets

SCHEMA = {
    "title": "Review",
    "type": "object",
    "properties": {
        "product": {"type": "string", "description": "as the text calls it"},
        "rating": {"type": "integer", "minimum": 1, "maximum": 5},
        "sentiment": {"enum": ["positive", "negative", "neutral"]},
        "pros": {"type": "array", "items": {"type": "string"}, "maxItems": 5},
        "cons": {"type": "array", "items": {"type": "string"}, "maxItems": 5},
        "verified": {"type": "boolean", "description": "whether the buyer is a verified one"},
    },
    "required": ["product", "rating", "sentiment", "pros", "cons", "verified"],
    "additionalProperties": False,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of NAME.jinja files")
    parser.add_argument("names", nargs="*", help="prefixes of template names; by default all")
    options = parser.parse_args()
    schema_prompt = SchemaPrompt(schema_text(SCHEMA))
    print(schema_prompt.instructions(may_call=False))
    for file in sorted(options.folder.glob("*.jinja")):
        if not options.names or file.name.startswith(tuple(options.names)):
            print(f"{file.stem[:46]:46}  {_row(file, schema_prompt)}")
    return 0


def _row(file: Path, schema_prompt: SchemaPrompt) -> str:
    llama = "llama" in file.name.lower() and "llama3_2" in datasets.tokenizers()
    name = "llama3_2" if llama else "qwen2_5"
    own = Tokenizer.from_str(datasets.tokenizer_json(datasets.tokenizers()[name]).decode())
    hf = PreTrainedTokenizerFast(tokenizer_object=own, bos_token="<s>")
    hf.chat_template = file.read_text(encoding="utf-8")
    tokenizer = HfTokenizer(hf)
    try:
        without, _ = _tokens(tokenizer, "Good lamp, 4 stars.", None)
        first, role = _tokens(tokenizer, "Good lamp, 4 stars.", schema_prompt)
        second, _ = _tokens(tokenizer, "A chair that broke within a week.", schema_prompt)
    except InvalidRequest as error:
        return f"refused: {error}"
    shared = next(n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    more = len(first) - len(without)
    return f"{role:6}  {name:8}  {len(without):5} {len(first):5}  +{more}  {shared} shared"


def _tokens(
    tokenizer: HfTokenizer, text: str, schema_prompt: SchemaPrompt | None
) -> tuple[Sequence[int], str]:
    """The tokens of a prompt with one message, and the role of its first message."""
    format = replace(
        detect(tokenizer.chat_template, tokenizer.special_tokens),
        takes_system=tokenizer.takes_system,
    )
    given = template_input(
        Conversation([{"role": "user", "content": text}], schema_prompt=schema_prompt), format
    )
    rendered = tokenizer.render_chat(given.messages, given.tools, given.options)
    if schema_prompt is not None:
        assert schema_prompt.schema in tokenizer.decode(rendered.tokens), (
            "the template did not write it"
        )
    return rendered.tokens, str(given.messages[0]["role"])


if __name__ == "__main__":
    sys.exit(main())
