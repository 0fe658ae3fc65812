"""Arguments of earlier tool calls: a text that need not be a JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jinja2
import pytest

from app.answer.formats import ChatFormat, detect
from app.answer.formats.families import HERMES
from app.answer.prompt import Conversation, render
from app.core.errors import InvalidRequest
from app.core.text import RenderedPrompt
from app.http.requests.messages import called_arguments
from tests.http.harness import CHAT, RESPONSES, chat, client_of
from tests.http.responses import WITH_TOOLS, asking
from tests.serving.fakes import PLAIN, Bench, FakeTokenizer

CUT = '{"city": "Par'
NOT_OBJECTS = (CUT, "[]", "NaN", '{"a": "\\ud800"}', '{"a": [{"b": -1e999}]}', "[" * 100_000)


@pytest.mark.parametrize("arguments", NOT_OBJECTS, ids=range(len(NOT_OBJECTS)))
def test_what_is_no_json_object_stays_the_text_it_is(arguments: str) -> None:
    assert called_arguments(arguments) == arguments


def test_an_object_is_read_and_no_text_at_all_is_an_empty_one() -> None:
    assert called_arguments("") == {}
    assert called_arguments('{"city": "Ulm"}') == {"city": "Ulm"}


def history(arguments: str) -> list[dict[str, Any]]:
    function = {"name": "weather", "arguments": arguments}
    return [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [{"id": "c1", "function": function}]},
        {"role": "tool", "tool_call_id": "c1", "content": "not valid JSON"},
    ]


@pytest.mark.parametrize("format", [PLAIN, WITH_TOOLS], ids=["plain", "hermes"])
async def test_a_conversation_with_a_call_that_was_cut_goes_on(format: ChatFormat) -> None:
    bench = Bench(chat_format=format)
    async with client_of(bench) as client:
        answer = await client.post(CHAT, json=chat(messages=history(CUT)))
        assert answer.status_code == 200, answer.text
        item = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": CUT}
        output = {"type": "function_call_output", "call_id": "c1", "output": "no"}
        answer = await client.post(RESPONSES, json=asking(input=[item, output]))
        assert answer.status_code == 200, answer.text
    assert all(CUT in str(messages) for messages in bench.tokenizer.seen)


class Templated(FakeTokenizer):
    """Renders a real template, as ``HfTokenizer`` does."""

    def __init__(self, template: str) -> None:
        super().__init__()
        self._template = jinja2.Environment().from_string(template)

    def render_chat(
        self, messages: Any, tools: Any = None, options: Any = None, *, opens: bool = True
    ) -> RenderedPrompt:
        try:
            text = self._template.render(messages=messages)
        except (jinja2.TemplateError, TypeError) as error:
            raise InvalidRequest(str(error)) from error
        return RenderedPrompt(list(text.encode()), text)


CALLS = "{% for c in messages[0].tool_calls %}{{ c.function.name }}: WRITTEN{% endfor %}"


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("{{ c.function.arguments }}", "f: " + CUT),
        ("{{ c.function.arguments | tojson }}", 'f: "{\\"city\\": \\"Par"'),
        (
            "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}",
            "f: arguments=" + CUT,
        ),
    ],
    ids=["as it is", "as JSON", "by its members"],
)
def test_every_kind_of_template_writes_it(written: str, seen: str) -> None:
    template = CALLS.replace("WRITTEN", written)
    call: Mapping[str, Any] = {"id": "a", "function": {"name": "f", "arguments": CUT}}
    conversation = Conversation([{"role": "assistant", "content": None, "tool_calls": [call]}])
    format = replace(detect(template, ()), tools=HERMES)
    rendered = render(conversation, Templated(template), format, False)
    assert rendered.tail == seen
    assert call["function"]["arguments"] == CUT, "the request was changed"
