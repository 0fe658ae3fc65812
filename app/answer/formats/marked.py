"""Calls that each stand between marks of their own, as one JSON object or after their names."""

from __future__ import annotations

from app.answer.formats.spelled import SpelledCalls

_OBJECT = '{"name": "$name", "arguments": $arguments}'

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
    name="granite 20b",
    call=f"<function_call> {_OBJECT}",
    separator="\n",
    trigger="<function_call>",
)

FUNCTIONARY_3_1 = SpelledCalls(
    name="functionary 3.1",
    call="<function=$name>$arguments</function>",
    trigger="<function=",
)

_BY_MARKS = (
    (("<tool_calls>\\n", '"arguments": '), MINIMAX_M1),
    (("<|action_start|><|plugin|>",), INTERNLM_2),
    (('function_call="<|function_call|>"',), GIGACHAT_3_1),
    (("<|role_sep|>", "function call"), GIGACHAT_3),
    (("<longcat_tool_call>",), LONGCAT),
    (("<function_call> ",), GRANITE_20B),
    (("'<function=' + ", "+ '</function>'"), FUNCTIONARY_3_1),
)


def marked(template: str) -> SpelledCalls | None:
    found = (known for marks, known in _BY_MARKS if all(mark in template for mark in marks))
    return next(found, None)
