"""Calls as Python or Gemma write them, with literals as arguments.

Llama 3.2 and 4 with pythonic templates, LFM2, Olmo 3, Gemma 3:
``[get_weather(city="Ulm", days=3), stop()]``, between marks or without. FunctionGemma, Gemma 4:
``call:get_weather{city:<escape>Ulm<escape>,days:3}`` between marks. Quotes and the words for true,
false and null are taken from calls that the template renders, if it renders any.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from app.answer.formats.spelled import SpelledCalls
from app.answer.formats.template import calls_of, render
from app.core.literals import Literals

_CALL = "$name($arguments)"

PYTHONIC = SpelledCalls(
    name="pythonic", begin="[", call=_CALL, separator=", ", end="]", notation=Literals()
)
"""A bare list: an answer is text or calls."""

LFM2 = replace(
    PYTHONIC,
    name="lfm2",
    begin="<|tool_call_start|>[",
    end="]<|tool_call_end|>",
    trigger="<|tool_call_start|>",
)

_GEMMA = Literals(
    equals=":",
    comma=",",
    end="}",
    quote="<escape>",
    escaped=False,
    words=("null", "false", "true"),
    colon=":",
    bare_names=True,
)

_BY_MARK = {
    "<start_function_call>call:": SpelledCalls(
        name="functiongemma",
        call="<start_function_call>call:$name{$arguments}<end_function_call>",
        trigger="<start_function_call>",
        notation=_GEMMA,
    ),
    r"<\|tool_call>call:": SpelledCalls(
        name="gemma 4",
        call="<|tool_call>call:$name{$arguments}<tool_call|>",
        trigger="<|tool_call>",
        notation=replace(_GEMMA, quote='<|"|>'),
    ),
    r"\[func_name1\(param": PYTHONIC,
    r"<\|tool_call_start\|>\[|List of tools: (?:<\|tool_list_start\|>)?\[": LFM2,
    r"(?s)<function_calls>.*\+ '\('": replace(
        PYTHONIC,
        name="olmo 3",
        begin="<function_calls>",
        separator="\n",
        end="</function_calls>",
        trigger="<function_calls>",
    ),
}
"""Formats by a pattern in a template's source."""

_ARGUMENTS: dict[str, Any] = {
    "z_number": -2.5,
    "a_text": "x y",
    "b_true": True,
    "c_false": False,
    "d_null": None,
    "e_list": [1, "x", None],
    "f_object": {"k": "v", "K": [True], "a": {}},
    "g_text": 'it\'s "so" \\ \n é',
}
_CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("first_function", _ARGUMENTS),
    ("second_function", {}),
    ("third_function", {"a_text": "x"}),
)
_WORDS = (("true", "false", "null"), ("true", "false", "none"))
_WRITTEN = re.compile(
    r"a_text[=:](\W+|<\w+>)x y.*b_true[=:](\w+).*c_false[=:](\w+).*d_null[=:](\w+)"
)


def literals(template: str) -> SpelledCalls | None:
    found = next((known for mark, known in _BY_MARK.items() if re.search(mark, template)), None)
    if found is None or not isinstance(found.notation, Literals):
        return None
    return replace(found, notation=_read_off(template, found.notation))


def _read_off(template: str, notation: Literals) -> Literals:
    """``notation`` with the quotes, words and order that the template writes."""
    text = _rendered(template) or ""
    written = _WRITTEN.search(text)
    if written is None:
        return notation
    quote, true, false, null = written.groups()
    if notation.escaped and quote == "'":
        notation = replace(notation, quote=quote)
    if (true.lower(), false.lower(), null.lower()) in _WORDS:
        notation = replace(notation, words=(null, false, true))
    return replace(notation, sorted_names=text.index("a_text") < text.index("z_number"))


def writes(template: str, format: SpelledCalls) -> bool:
    """Whether the template writes calls as ``format`` has them."""
    calls = [{"name": name, "arguments": format.written(each)} for name, each in _CALLS]
    return format.spelled(calls) in (_rendered(template) or "")


def takes_results_of_text(template: str) -> bool:
    """Whether the template accepts tool results if the calls are part of the messages' text.

    Some require users and assistants to alternate.
    """
    question, call = {"role": "user", "content": "Hello."}, {"role": "assistant", "content": "f()"}
    result = {"role": "tool", "name": "f", "tool_call_id": "abcdefgh0", "content": "1"}
    answer = {"role": "assistant", "content": "One."}
    if render(template, [question, answer, question]) is None:  # refused for another reason
        return True
    return render(template, [question, call, result, answer, question]) is not None


def _rendered(template: str) -> str | None:
    """A conversation with calls, as the template writes it."""
    answer = {"role": "assistant", "content": "", "tool_calls": calls_of(_CALLS)}
    return render(template, [{"role": "user", "content": "Hello."}, answer])
