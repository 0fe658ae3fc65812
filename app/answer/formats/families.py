"""Formats whose calls are a fixed text around name and arguments, family by family."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from app.answer.formats.calls import NumberedIds, ShortIds
from app.answer.formats.spelled import SpelledCalls
from app.answer.formats.template import calls_of, render
from app.core.arguments import KINDS, Parameters

_OBJECT = '{"name": "$name", "arguments": $arguments}'


# For templates that know no calls, or whose format is not known here

PLAIN = SpelledCalls(
    name="plain", begin='{"tool_calls": [', call=_OBJECT, separator=", ", end="]}", native=False
)


# Mistral: a list, or names before arguments and an id between them

MISTRAL = SpelledCalls(
    name="mistral",
    call="[TOOL_CALLS]$name[ARGS]$arguments",
    trigger="[TOOL_CALLS]",
    ids=ShortIds(9),
)
"""From tokenizer version 11 on."""

MISTRAL_IDS = replace(
    MISTRAL, call="[TOOL_CALLS]$name[CALL_ID]$id[ARGS]$arguments", id_pattern="[a-zA-Z0-9]{9}"
)

MISTRAL_LIST = replace(
    MISTRAL_IDS,
    begin="[TOOL_CALLS][",
    call=_OBJECT,
    other_tail=', "id": "$id"}',
    separator=", ",
    end="]",
)

MISTRAL_SPACED = replace(MISTRAL_LIST, begin="[TOOL_CALLS] [")


# DeepSeek V3, R1 and V3.1

DEEPSEEK_V3 = SpelledCalls(
    name="deepseek v3",
    begin="<｜tool▁calls▁begin｜>",
    call="<｜tool▁call▁begin｜>function<｜tool▁sep｜>$name\n"
    "```json\n$arguments\n```<｜tool▁call▁end｜>",
    separator="\n",
    end="<｜tool▁calls▁end｜>",
    trigger="<｜tool▁calls▁begin｜>",
)

DEEPSEEK_V3_1 = SpelledCalls(
    name="deepseek v3.1",
    begin="<｜tool▁calls▁begin｜>",
    call="<｜tool▁call▁begin｜>$name<｜tool▁sep｜>$arguments<｜tool▁call▁end｜>",
    end="<｜tool▁calls▁end｜>",
    trigger="<｜tool▁calls▁begin｜>",
)


# Kimi K2 and K3

KIMI_K2 = SpelledCalls(
    name="kimi k2",
    begin="<|tool_calls_section_begin|>",
    call="<|tool_call_begin|>functions.$name:$id<|tool_call_argument_begin|>$arguments"
    "<|tool_call_end|>",
    end="<|tool_calls_section_end|>",
    trigger="<|tool_calls_section_begin|>",
    ids=NumberedIds(),
    id_pattern="0|[1-9][0-9]{0,3}",
)


KIMI_K3 = SpelledCalls(
    name="kimi k3",
    begin="<|open|>tools<|sep|>",
    call='<|open|>call tool="$name" index="$id"<|sep|>$arguments<|close|>call<|sep|>',
    notation=Parameters(
        before='<|open|>argument key="',
        between='" type="number"<|sep|>',
        after="<|close|>argument<|sep|>",
        stop="<|close|>",
        types=tuple((kind, f'" type="{kind}"<|sep|>') for kind in KINDS if kind != "number"),
    ),
    end="<|close|>tools<|sep|>",
    trigger="<|open|>tools<|sep|>",
    id_pattern="[1-9][0-9]{0,3}",
)


# Command R7B and later, Command R and R+

COMMAND = SpelledCalls(
    name="command",
    begin="<|START_ACTION|>[\n",
    call='    {"tool_call_id": "$id", "tool_name": "$name", "parameters": $arguments}',
    separator=",\n",
    end="\n]<|END_ACTION|>",
    trigger="<|START_ACTION|>",
    id_pattern="0|[1-9][0-9]{0,3}",
)

_Rows = tuple[tuple[tuple[str, ...], SpelledCalls], ...]
_MARKED: _Rows = (
    (("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"), MISTRAL_IDS),
    (("[TOOL_CALLS]", "[ARGS]"), MISTRAL),
    (("[TOOL_CALLS] ",), MISTRAL_SPACED),
    (("[TOOL_CALLS]",), MISTRAL_LIST),
    (("<｜tool▁sep｜>", "```json"), DEEPSEEK_V3),
    (("<｜tool▁sep｜>",), DEEPSEEK_V3_1),
    (("<|tool_calls_section_begin|>",), KIMI_K2),
    (("open_tag('tools')",), KIMI_K3),
    (("<|START_ACTION|>", '"tool_name": '), COMMAND),
)
"""Substrings of a template's source, all required; the first row that matches counts."""


def marked(template: str, rows: _Rows = _MARKED) -> SpelledCalls | None:
    found = (known for marks, known in rows if all(mark in template for mark in marks))
    return next(found, None)


# A JSON list between marks


def _listed(name: str, begin: str, end: str, call: str = _OBJECT) -> SpelledCalls:
    return SpelledCalls(
        name=name, begin=f"{begin}[", call=call, separator=", ", end=f"]{end}", trigger=begin
    )


TOOL_CALLS = _listed("list in tool_calls", "<tool_calls>", "</tool_calls>")
"""Hunyuan A13B, Jamba, Apriel."""

NEMOTRON = _listed("nemotron", "<TOOLCALL>", "</TOOLCALL>")
"""Nemotron Nano 2."""

APERTUS = _listed("apertus", "<|tools_prefix|>", "<|tools_suffix|>", '{"$name": $arguments}')

GRANITE = _listed("granite", "<|tool_call|>", "")
"""Granite 3. Granite 4 writes as Hermes does."""

FUNCTOOLS = _listed("functools", "functools", "")
"""Phi-4 mini and Firefunction 2, by what their prompts ask for."""

XLAM = SpelledCalls(name="xlam", begin="[", call=_OBJECT, separator=", ", end="]")
"""A bare list: an answer is text or calls."""

_LISTS = (
    (re.compile(r"<TOOLCALL>\["), NEMOTRON),
    (re.compile(r"<\|tools_prefix\|>"), APERTUS),
    (re.compile(r"<tool_calls>\["), TOOL_CALLS),
    (re.compile(r"functools\["), FUNCTOOLS),
    (re.compile(r"<\|tool_call\|>(?!\\n)"), GRANITE),
    (re.compile(r"single JSON array.*\[\{\"name\": ", re.DOTALL), XLAM),
)


def lists(template: str) -> SpelledCalls | None:
    return next((known for mark, known in _LISTS if mark.search(template)), None)


# Hermes 2 Pro, Qwen 2.5, Qwen 3, EXAONE 4 and others

IN_CODE = SpelledCalls(
    name="in code",
    call='```json\n{\n  "name": "$name",\n  "arguments": $arguments\n}\n```',
    separator="\n",
)
"""Qwen 2.5 Coder writes calls so, whatever its template asks for."""

HERMES = SpelledCalls(
    name="hermes",
    call=f"<tool_call>\n{_OBJECT}\n</tool_call>",
    separator="\n",
    trigger="<tool_call>",
    also=IN_CODE,
)

EXAONE = replace(HERMES, name="exaone", call=f"<tool_call>{_OBJECT}</tool_call>", also=None)
"""EXAONE 4: the same with no newlines inside."""

_ARGUMENTS = re.compile(r'\\?"arguments\\?"')
_NOT_HERMES = ("<function=", "<arg_key>")
"""Qwen3-Coder and GLM write arguments as XML between the same marks."""

_TWO_CALLS: list[dict[str, Any]] = [
    {"role": "user", "content": "Twice?"},
    {"role": "assistant", "content": "", "tool_calls": calls_of([("f", {}), ("f", {})])},
]


def hermes(template: str) -> SpelledCalls | None:
    has_marks = "<tool_call>" in template and _ARGUMENTS.search(template)
    if not has_marks or any(mark in template for mark in _NOT_HERMES):
        return None
    # Newlines are read off what is written: the instructions need not have the same.
    written = render(template, _TWO_CALLS) or ""
    format = EXAONE if "<tool_call>{" in written else HERMES
    return replace(format, separator="") if "</tool_call><tool_call>" in written else format


# Llama 3.1 and later, as JSON

LLAMA = SpelledCalls(
    name="llama", call='{"name": "$name", "parameters": $arguments}', parallel=False
)
"""The template takes one call in a message."""

# Calls between marks, as an object or after their names

MINIMAX_M1 = SpelledCalls(
    name="minimax m1",
    begin="<tool_calls>\n",
    call=_OBJECT,
    separator="\n",
    end="\n</tool_calls>",
    trigger="<tool_calls>",
)

INTERNLM_2 = SpelledCalls(
    name="internlm 2",
    call=f"<|action_start|><|plugin|>\n{_OBJECT}<|action_end|>",
    trigger="<|action_start|><|plugin|>",
)

GIGACHAT_3 = SpelledCalls(
    name="gigachat 3",
    call=f"<|message_sep|>\n\nfunction call<|role_sep|>\n{_OBJECT}",
    trigger="<|message_sep|>",
    parallel=False,
)
"""The template writes one call of a message, as does that of the next."""

GIGACHAT_3_1 = SpelledCalls(
    name="gigachat 3.1",
    call=f"<|function_call|>{_OBJECT}",
    trigger="<|function_call|>",
    parallel=False,
)

LONGCAT = SpelledCalls(
    name="longcat",
    call=f"<longcat_tool_call>\n{_OBJECT}\n</longcat_tool_call>",
    separator="\n",
    trigger="<longcat_tool_call>",
)

GRANITE_20B = SpelledCalls(
    name="granite 20b", call=f"<function_call> {_OBJECT}", separator="\n", trigger="<function_call>"
)

FUNCTIONARY_3_1 = SpelledCalls(
    name="functionary 3.1", call="<function=$name>$arguments</function>", trigger="<function="
)

_MARKED_AT_LAST = (
    (('{"name": "', '"parameters": ', "<|start_header_id|>"), LLAMA),
    (('{"name": "', '"parameters": ', "<|header_start|>"), LLAMA),
    (("<tool_calls>\\n", '"arguments": '), MINIMAX_M1),
    (("<|action_start|><|plugin|>",), INTERNLM_2),
    (('function_call="<|function_call|>"',), GIGACHAT_3_1),
    (("<|role_sep|>", "function call"), GIGACHAT_3),
    (("<longcat_tool_call>",), LONGCAT),
    (("<function_call> ",), GRANITE_20B),
    (("'<function=' + ", "+ '</function>'"), FUNCTIONARY_3_1),
)
"""As ``_MARKED``, tried after all other detectors."""


def marked_at_last(template: str) -> SpelledCalls | None:
    return marked(template, _MARKED_AT_LAST)
