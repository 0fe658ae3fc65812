"""Prompts that ask for JSON, in many forms."""

import json
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from tools.demo_model.records import JsonSchema, Record
from tools.demo_model.words import Words, listing

Message = dict[str, str]


class Shown(Enum):
    """Information on the answer's keys in a prompt."""

    NOTHING = auto()
    """Nothing: they are the default keys, or those that the server forces."""
    KEYS = auto()
    """The names of the keys, in words."""
    SCHEMA = auto()
    """The whole JSON Schema."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request: the record, the schema of the answer, and the part of it that the prompt shows."""

    record: Record
    schema: JsonSchema
    shown: Shown


_SYSTEMS: Final = (
    "You extract data as JSON.",
    "You are a helpful assistant.",
    "Reply in JSON.",
    "You are a helpful assistant that answers in JSON.",
    "You extract structured data. Answer with JSON only.",
    "Extract the facts from the user's text. Output JSON.",
    "You are an information extraction engine.",
)

_ASIDES: Final = (
    "Here is what I found.",
    "Please let me know if you have any questions.",
    "I hope you are well.",
    "The weather was fine all week.",
    "As we said on the telephone, nothing else has changed.",
    "More will follow soon.",
    "I wrote this down in a hurry, so please check it again.",
)


def messages(ask: Ask, words: Words) -> list[Message]:
    """The conversation before the answer: perhaps a system message, then the user's request."""
    record = ask.record
    request = (
        _character(record, words) if record.kind == "character" else _extraction(record, words)
    )
    system = words.pick(*_SYSTEMS) if words.chance(0.5) else ""
    if ask.shown is Shown.KEYS:
        request = f"{request}{words.pick(' ', chr(10))}{_keys(ask.schema, words)}"
    if ask.shown is Shown.SCHEMA:
        schema = _schema(ask.schema, words)
        if words.chance(0.4):
            system = f"{system} {schema}".strip()
        else:
            request = words.pick(
                f"{request}\n{schema}", f"{request}\n\n{schema}", f"{schema}\n{request}"
            )
    turns = [{"role": "user", "content": request}]
    return [{"role": "system", "content": system}, *turns] if system else turns


def _extraction(record: Record, words: Words) -> str:
    noun, text = record.noun, record.text
    if words.chance(0.15):
        aside = words.pick(*_ASIDES)
        text = words.pick(f"{aside} {text}", f"{text} {aside}")
    json_please = words.pick("", "", " Reply in JSON.", " Answer in JSON.", " Use JSON.")
    return words.pick(
        f"Extract the {noun} from: {text}{json_please}",
        f"Extract the {noun} from this text:{json_please}\n{text}",
        f"Extract the {noun} details as JSON.\n\n{text}",
        f"{text}\n\nReturn the {noun} as JSON.",
        f"{text}\nExtract the {noun}.{json_please}",
        f"Please extract the information of a {noun} from the following page.\n"
        f"Page begin.\n{text}\nPage end.\nHere is the {noun} in JSON format.",
        f"Reply in JSON. What does this say about the {noun}?\n{text}",
        f"Turn this into JSON: {text}",
        f"Text: {text}\nJSON:",
        f"Give me the {noun} as a JSON object.\n---\n{text}\n---",
        text,
    )


def _character(record: Record, words: Words) -> str:
    name = record.text
    return words.pick(
        f"{name} is a character in a story. Please fill in the following information about this "
        "character.",
        f"{name} is a character in {words.name()} {words.name()}. Please fill in the following "
        "information about this character.",
        f"Fill in a character sheet for {name}.",
        f"Write a character sheet for {name} as JSON.",
        f"Invent a fictional character called {name}. Reply in JSON.",
        f"Create a character named {name}.",
        f"Describe the character {name} in JSON.",
        f"Character: {name}",
        f"Give me the character sheet of {name}.",
    )


def _keys(schema: JsonSchema, words: Words) -> str:
    keys = list(schema["properties"])
    return words.pick(
        f"Keys: {', '.join(keys)}.",
        f"Use the keys {listing(keys)}.",
        f"Fields: {', '.join(keys)}",
        f"I need the {listing(keys)}.",
        f"Only give {listing(keys)}.",
    )


def _schema(schema: JsonSchema, words: Words) -> str:
    shown = dict(schema)
    if words.chance(0.5):
        del shown["additionalProperties"]
    if words.chance(0.4):
        del shown["required"]
    if words.chance(0.2):
        shown = {"title": words.pick("Answer", "Record", words.name()), **shown}
    return words.pick(
        "Schema: ", "JSON schema:\n", "Answer with JSON that follows this schema: ",
        "Use this JSON schema:\n", "The output must match this JSON schema: ",
    ) + json.dumps(shown, ensure_ascii=False)  # fmt: skip
