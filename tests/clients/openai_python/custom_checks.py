"""Custom tools, whose input matches a grammar."""

from __future__ import annotations

import re
from typing import Any

from features import CONTACT_TEXT, MODEL
from shared import CONTACT, chat, check, client

LARK = 'start: "add(" NUMBER ("," NUMBER)~1..3 ")"\nNUMBER: /[0-9]{1,2}/'
SUM = re.compile(r"add\([0-9]{1,2}(,[0-9]{1,2}){1,3}\)")
GRAMMAR = {"syntax": "lark", "definition": LARK}
ADD: Any = {
    "type": "custom",
    "custom": {"name": "add", "format": {"type": "grammar", "grammar": GRAMMAR}},
}
RESPONSE_ADD: Any = {"type": "custom", "name": "add", "format": {"type": "grammar", **GRAMMAR}}


@check("tools", "a custom tool's input is a text of its grammar")
def _() -> None:
    completion = chat.create(
        model=MODEL, messages=CONTACT, tools=[ADD], tool_choice="required", seed=3
    )
    choice = completion.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls
    call = choice.message.tool_calls[0]
    assert call.type == "custom"
    assert call.custom.name == "add"
    assert SUM.fullmatch(call.custom.input), call.custom.input


@check("tools", "a custom tool's regular expression, and its result")
def _() -> None:
    wanted: Any = {"syntax": "regex", "definition": "(GET|PUT) /[a-z]{2,5}"}
    custom = {"name": "call", "format": {"type": "grammar", "grammar": wanted}}
    tool: Any = {"type": "custom", "custom": custom}
    first = chat.create(
        model=MODEL,
        messages=CONTACT,
        tools=[tool],
        tool_choice={"type": "custom", "custom": {"name": "call"}},
    )
    message: Any = first.choices[0].message
    assert re.fullmatch("(GET|PUT) /[a-z]{2,5}", message.tool_calls[0].custom.input)
    result: Any = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "200"}
    second = chat.create(
        model=MODEL, messages=[*CONTACT, message, result], tools=[tool], tool_choice="none"
    )
    assert second.choices[0].message.content


@check("responses tools", "a custom tool's input, streamed, and its output")
def _() -> None:
    with client.responses.stream(
        model=MODEL, input=CONTACT_TEXT, tools=[RESPONSE_ADD], tool_choice="required"
    ) as stream:
        text = "".join(
            event.delta
            for event in stream
            if event.type == "response.custom_tool_call_input.delta" and event.output_index == 0
        )
        final = stream.get_final_response()
    call = final.output[0]
    assert call.type == "custom_tool_call"
    assert call.input == text
    assert SUM.fullmatch(text), text
    output = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "7"}
    history: Any = [{"role": "user", "content": CONTACT_TEXT}, call, output]
    second = client.responses.create(
        model=MODEL, input=history, tools=[RESPONSE_ADD], tool_choice="none"
    )
    assert second.output_text
