"""Formats whose calls are a fixed text around name and arguments, family by family."""

from __future__ import annotations

import re
from collections.abc import Mapping
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


# Kimi K3

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

_Rows = Mapping[tuple[str, ...], SpelledCalls]
_MARKED: _Rows = {
    ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"): MISTRAL_IDS,
    ("[TOOL_CALLS]", "[ARGS]"): MISTRAL,
    ("[TOOL_CALLS] ",): replace(MISTRAL_LIST, begin="[TOOL_CALLS] ["),
    ("[TOOL_CALLS]",): MISTRAL_LIST,
    # DeepSeek V3 and R1, then V3.1
    ("<｜tool▁sep｜>", "```json"): SpelledCalls(
        name="deepseek v3",
        begin="<｜tool▁calls▁begin｜>",
        call="<｜tool▁call▁begin｜>function<｜tool▁sep｜>$name\n"
        "```json\n$arguments\n```<｜tool▁call▁end｜>",
        separator="\n",
        end="<｜tool▁calls▁end｜>",
        trigger="<｜tool▁calls▁begin｜>",
    ),
    ("<｜tool▁sep｜>",): SpelledCalls(
        name="deepseek v3.1",
        begin="<｜tool▁calls▁begin｜>",
        call="<｜tool▁call▁begin｜>$name<｜tool▁sep｜>$arguments<｜tool▁call▁end｜>",
        end="<｜tool▁calls▁end｜>",
        trigger="<｜tool▁calls▁begin｜>",
    ),
    ("<|tool_calls_section_begin|>",): SpelledCalls(
        name="kimi k2",
        begin="<|tool_calls_section_begin|>",
        call="<|tool_call_begin|>functions.$name:$id<|tool_call_argument_begin|>$arguments"
        "<|tool_call_end|>",
        end="<|tool_calls_section_end|>",
        trigger="<|tool_calls_section_begin|>",
        ids=NumberedIds(),
        id_pattern="0|[1-9][0-9]{0,3}",
    ),
    ("open_tag('tools')",): KIMI_K3,
    ("<|START_ACTION|>", '"tool_name": '): COMMAND,
}
"""Formats by substrings of a template's source, all required; the first row that matches counts."""


def marked(template: str, rows: _Rows = _MARKED) -> SpelledCalls | None:
    found = (known for marks, known in rows.items() if all(mark in template for mark in marks))
    return next(found, None)


# A JSON list between marks


def _listed(name: str, begin: str, end: str, call: str = _OBJECT) -> SpelledCalls:
    return SpelledCalls(
        name=name, begin=f"{begin}[", call=call, separator=", ", end=f"]{end}", trigger=begin
    )


TOOL_CALLS = _listed("list in tool_calls", "<tool_calls>", "</tool_calls>")
"""Hunyuan A13B, Jamba, Apriel."""

_LISTS = {
    # Nemotron Nano 2
    r"<TOOLCALL>\[": _listed("nemotron", "<TOOLCALL>", "</TOOLCALL>"),
    r"<\|tools_prefix\|>": _listed(
        "apertus", "<|tools_prefix|>", "<|tools_suffix|>", '{"$name": $arguments}'
    ),
    r"<tool_calls>\[": TOOL_CALLS,
    # Phi-4 mini and Firefunction 2, by what their prompts ask for
    r"functools\[": _listed("functools", "functools", ""),
    # Granite 3; Granite 4 writes as Hermes does
    r"<\|tool_call\|>(?!\\n)": _listed("granite", "<|tool_call|>", ""),
    # A bare list: an answer is text or calls
    r"(?s)single JSON array.*\[\{\"name\": ": SpelledCalls(
        name="xlam", begin="[", call=_OBJECT, separator=", ", end="]"
    ),
}
"""Formats by a pattern in a template's source."""


def lists(template: str) -> SpelledCalls | None:
    return next((known for mark, known in _LISTS.items() if re.search(mark, template)), None)


# Hermes 2 Pro, Qwen 2.5, Qwen 3, EXAONE 4 and others

IN_CODE = SpelledCalls(
    name="in code",
    call='```json\n{\n  "name": "$name",\n  "arguments": $arguments\n}\n```',
    separator="\n",
)
"""Qwen 2.5 Coder writes calls so, whatever its template asks for."""

BARE = SpelledCalls(name="bare", call=_OBJECT, separator="\n")
"""Qwen 2.5 of 0.5B often leaves out the marks around a call."""

HERMES = SpelledCalls(
    name="hermes",
    call=f"<tool_call>\n{_OBJECT}\n</tool_call>",
    separator="\n",
    trigger="<tool_call>",
    also=(IN_CODE, BARE),
)

EXAONE = replace(HERMES, name="exaone", call=f"<tool_call>{_OBJECT}</tool_call>", also=())
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

_MARKED_AT_LAST: _Rows = {
    ('{"name": "', '"parameters": ', "<|start_header_id|>"): LLAMA,
    ('{"name": "', '"parameters": ', "<|header_start|>"): LLAMA,
    ("<tool_calls>\\n", '"arguments": '): SpelledCalls(
        name="minimax m1",
        begin="<tool_calls>\n",
        call=_OBJECT,
        separator="\n",
        end="\n</tool_calls>",
        trigger="<tool_calls>",
    ),
    ("<|action_start|><|plugin|>",): SpelledCalls(
        name="internlm 2",
        call=f"<|action_start|><|plugin|>\n{_OBJECT}<|action_end|>",
        trigger="<|action_start|><|plugin|>",
    ),
    ('function_call="<|function_call|>"',): SpelledCalls(
        name="gigachat 3.1",
        call=f"<|function_call|>{_OBJECT}",
        trigger="<|function_call|>",
        parallel=False,
    ),
    # The template writes one call of a message, as does that of GigaChat 3.1.
    ("<|role_sep|>", "function call"): SpelledCalls(
        name="gigachat 3",
        call=f"<|message_sep|>\n\nfunction call<|role_sep|>\n{_OBJECT}",
        trigger="<|message_sep|>",
        parallel=False,
    ),
    ("<longcat_tool_call>",): SpelledCalls(
        name="longcat",
        call=f"<longcat_tool_call>\n{_OBJECT}\n</longcat_tool_call>",
        separator="\n",
        trigger="<longcat_tool_call>",
    ),
    ("<function_call> ",): SpelledCalls(
        name="granite 20b",
        call=f"<function_call> {_OBJECT}",
        separator="\n",
        trigger="<function_call>",
    ),
    ("'<function=' + ", "+ '</function>'"): SpelledCalls(
        name="functionary 3.1", call="<function=$name>$arguments</function>", trigger="<function="
    ),
}
"""As ``_MARKED``, tried after all other detectors."""


def marked_at_last(template: str) -> SpelledCalls | None:
    return marked(template, _MARKED_AT_LAST)
