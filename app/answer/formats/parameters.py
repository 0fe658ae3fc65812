"""Calls with a separate text for each argument, as in many families; detected by rendering.

Qwen3-Coder, Qwen 3.5, Nemotron 3, Step 3.5, Seed-OSS, GLM 4.5 and later, Ling 3, Laguna, Hunyuan 3,
MiniMax M2, DeepSeek V3.2 to V4.1 differ in marks and in newlines, both of which matter to models.
So a conversation with calls is rendered, to extract the text around names and values::

    TEXT  begin opening NAME middle  before KEY between VALUE after  before KEY ...  closing
          separator  opening NAME ...  closing  end
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import starmap, takewhile
from typing import Any

from app.answer.formats.spelled import SpelledCalls
from app.answer.formats.template import calls_of, render
from app.core.arguments import Kind, Parameters, json_kind
from app.core.literals import Literals

_TEXT = "A text before calls."
_NEXT = "What comes next?"
_NAMES = ("first_function", "second_function", "third_function")
_ONE, _TWO = 'one\'s "a" \\ <b> & é\nline', "another text"
_STRINGS = {"key_one": _ONE, "key_two": _TWO}
_OTHERS: dict[str, Any] = {
    "key_number": 7,
    "key_true": True,
    "key_false": False,
    "key_null": None,
    "key_array": [1, "a", None],
    "key_object": {"k": "v", "n": [True]},
}
_NESTED = ("key_array", "key_object")
_PYTHON = Literals(quote="'")
_MARK_BEGINS = re.compile(r"\s*<")
_MARK = re.compile(r"<[^<>\s]+((?<=｜) \w+)?>")


_Calls = tuple[tuple[str, Mapping[str, Any]], ...]
"""Name and arguments of each."""
_CALLS: _Calls = ((_NAMES[0], _STRINGS | _OTHERS), (_NAMES[1], {}), (_NAMES[2], _STRINGS))


def parameters(template: str) -> SpelledCalls | None:
    """The format of a template that writes calls so; None for others."""
    if "tool_calls" not in template:
        return None
    plain, with_calls = (_behind_text(template, calls) for calls in ((), _CALLS))
    if plain is None or with_calls is None or not with_calls.endswith(plain):
        return None
    text = with_calls[: len(with_calls) - len(plain)]  # between the message's text and its end
    found = _read_off(text)
    return None if found is None or _spelled(*found) != text.lstrip() else found[0]


def _behind_text(template: str, calls: _Calls) -> str | None:
    answer: dict[str, Any] = {"role": "assistant", "content": _TEXT}
    if calls:
        answer["tool_calls"] = calls_of(calls)
    asked = [{"role": "user", "content": "Hello."}, answer, {"role": "user", "content": _NEXT}]
    rendered = render(template, asked)
    if rendered is None or rendered.count(_TEXT) != 1:
        return None
    before, found, _ = rendered.partition(_TEXT)[2].partition(_NEXT)
    return before if found else None


def _read_off(text: str) -> tuple[SpelledCalls, dict[str, str]] | None:
    """The format that renders ``_CALLS`` (nearly) as ``text``, and its spelling of their values, by
    key; None if there is none."""
    names = [text.find(name) for name in _NAMES]
    keys = [text.find(key) for key in (*_STRINGS, *_OTHERS)]
    value, last_value = text.find(_ONE), text.rfind(_TWO)
    order = [names[0], *keys, *names[1:], last_value]
    if order != sorted(order) or names[0] < 0 or value < 0:
        return None
    after_name = text[names[0] + len(_NAMES[0]) : keys[0]]
    after_value = text[value + len(_ONE) : keys[1]]
    before = _common_end(after_name, after_value)
    middle, after = after_name.removesuffix(before), after_value.removesuffix(before)
    arguments_end = text.rfind("}", 0, names[1]) + 1
    behind_call = text[arguments_end : names[1]].removeprefix(after)  # closing separator opening
    opening = _common_end(text[: names[0]], behind_call).lstrip()
    behind_last = text[last_value + len(_TWO) :].removeprefix(after)  # closing end
    closing = _common(behind_call.removesuffix(opening), behind_last)
    end = behind_last.removeprefix(closing)
    separator = behind_call.removesuffix(opening).removeprefix(closing)
    without = text[names[1] + len(_NAMES[1]) : names[2]].removeprefix(middle)
    begin = text[: names[0]].lstrip().removesuffix(opening)
    values = [text[start:end] for start, end in zip(keys, [*keys[1:], arguments_end], strict=True)]
    types = _types(values, after + before)
    stop, trigger = _MARK.search(after), _MARK.match(begin + opening)
    if types is None or stop is None or trigger is None or not closing:
        return None
    empty = without.removesuffix(closing + separator + opening)
    if not empty:  # white space that follows a name in any case is kept apart from the arguments
        common = _common(before, closing)
        space = common[: len(common) - len(common.lstrip())]
        middle, before = middle + space, before.removeprefix(space)
        after, closing = after + space, closing.removeprefix(space)
    between = types.between["number"]
    notation = Parameters(
        before=before,
        between=between,
        after=after,
        stop=stop[0],
        types=tuple((kind, each) for kind, each in types.between.items() if each != between),
        empty=empty,
        nested=_PYTHON if types.python_nested else None,
        python_words=types.python_words,
    )
    format = SpelledCalls(
        name="parameters",
        begin=begin,
        call=f"{opening}$name{middle}$arguments{closing}",
        separator=separator,
        end=end,
        trigger=trigger[0],
        notation=notation,
    )
    return format, types.spelled


def _common(one: str, other: str) -> str:
    """The longest common prefix."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return "".join(character for character, _ in same)


def _common_end(one: str, other: str) -> str:
    """The common suffix, from its first mark on, with the white space before that."""
    common = _common(one[::-1], other[::-1])[::-1]
    mark = _MARK_BEGINS.search(common)
    return common[mark.start() :] if mark else ""


@dataclass(frozen=True, slots=True)
class _Types:
    """How values of each type are written."""

    between: dict[Kind, str]
    """Text between name and value, by type."""
    python_words: bool
    python_nested: bool
    """Whether arrays and objects are written as Python prints them."""
    spelled: dict[str, str]
    """The values, by their keys."""


def _types(written: list[str], behind: str) -> _Types | None:
    """Types from ``written``: for each argument its name, and the text up to the next name."""
    between: dict[Kind, str] = {}
    found: dict[str, str] = {}
    words = False
    for (key, value), text in zip((_STRINGS | _OTHERS).items(), written, strict=True):
        text = text.removeprefix(key).removesuffix(behind)
        # As JSON, or as Python would print it, which some templates do with all but strings.
        spellings = [value] if isinstance(value, str) else [json.dumps(value), str(value)]
        spelled = next((each for each in spellings if text.endswith(each)), None)
        if spelled is None:
            return None
        found[key] = spelled
        words |= spelled in ("True", "False", "None")
        kind, before = json_kind(value), text.removesuffix(spelled)
        if between.setdefault(kind, before) != before:
            return None
    return _Types(between, words, all(found[key] == str(_OTHERS[key]) for key in _NESTED), found)


def _spelled(format: SpelledCalls, values: dict[str, str]) -> str:
    """The calls as the template would write them if it had ``format``."""
    notation = format.notation
    assert isinstance(notation, Parameters)

    def written(name: str, arguments: Mapping[str, Any]) -> dict[str, str]:
        texts = [
            notation.before
            + key
            + notation.between_of(json_kind(value))
            + values[key]
            + notation.after
            for key, value in arguments.items()
        ]
        return {"name": name, "arguments": "".join(texts) or notation.empty}

    return format.spelled(starmap(written, _CALLS))
