"""Stream chunks are assembled from parts; here they are compared with whole JSON objects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from app.answer.pieces import Content, End
from app.answer.plan import AnswerPlan
from app.core.events import TokenChunk
from app.core.request import EngineRequest, ServiceTier
from app.core.text import RenderedPrompt
from app.http.chat.parse import ChatCompletionRequest
from app.http.chat.write import chat_renderer
from app.http.completions.parse import CompletionRequest
from app.http.completions.write import completion_renderer
from app.http.endpoint import Renderer
from app.http.models import ServedModel
from app.http.requests.fields import stream_options
from app.http.requests.wire import Ignored
from app.serving.generation import Generation
from app.serving.timeline import Timeline
from tests.answer.test_choice import USAGE
from tests.fakes import ByteVocabulary
from tests.http.harness import CONFIG, chat
from tests.serving.fakes import PLAIN, RecordingObserver

OPTIONS = [
    None,
    {"include_usage": True},
    {"include_usage": True, "continuous_usage_stats": True},
]


def generation(n: int = 2) -> Generation:
    """A generation of ``n`` choices, each with one token."""
    observer = RecordingObserver()
    found = Generation(
        [EngineRequest(f"r-{index}", [1, 2], 9) for index in range(n)],
        [AnswerPlan.of(RenderedPrompt([1, 2]), None, None, PLAIN)],
        texts=[None],
        ticket=_Ticket(),  # type: ignore[arg-type]
        timeline=Timeline("/test", "id", observer, lambda: 0.0),
        abort=lambda ids: None,
        status_of=lambda error: 500,
    )
    for index in range(n):
        found.on_chunk(TokenChunk(f"r-{index}", b"x", (), USAGE), 0.0)
    return found


class _Ticket:
    tenant = ""
    tier = ServiceTier.DEFAULT

    def start(self) -> None: ...

    def leave(self) -> None: ...


def chat_chunks(options: dict[str, Any] | None) -> Renderer:
    body = chat(stream=True, n=2, **({} if options is None else {"stream_options": options}))
    wire = ChatCompletionRequest.read(body, Ignored())
    return chat_renderer(
        generation(),
        model=ServedModel.base(CONFIG),
        stream=stream_options(wire),
        vocabulary=None,
        reasoning_names=("reasoning_content",),
    )


def completion_chunks(options: dict[str, Any] | None) -> Renderer:
    body: dict[str, Any] = {"model": "demo", "prompt": "hi", "stream": True, "n": 2}
    body |= {} if options is None else {"stream_options": options}
    wire = CompletionRequest.read(body, Ignored())
    return completion_renderer(
        generation(),
        model=ServedModel.base(CONFIG),
        stream=stream_options(wire),
        vocabulary=ByteVocabulary(),
        token_name=str,
        logprobs=False,
        echoed=(),
    )


def written_whole(event: bytes, choice: dict[str, Any], options: dict[str, Any] | None) -> bytes:
    """``event`` serialised as one object with ``choice``; all other fields are kept."""
    value = json.loads(event.removeprefix(b"data: "))
    assert ("usage" in value) == (options is not None)
    if options is not None:
        continuous = "continuous_usage_stats" in options
        assert (value["usage"] is not None) == continuous
        assert not continuous or value["usage"]["completion_tokens"] == 2
    return b"data: " + to_json({**value, "choices": [choice]}) + b"\n\n"


@pytest.mark.parametrize("options", OPTIONS)
@given(text=st.text(min_size=1), index=st.integers(0, 1))
def test_a_chunk_of_chat_is_its_object(
    options: dict[str, Any] | None, text: str, index: int
) -> None:
    event = chat_chunks(options).chunk(index, [Content(text)])
    choice = {
        "index": index, "delta": {"content": text}, "logprobs": None, "finish_reason": None
    }  # fmt: skip
    assert event == written_whole(event, choice, options)


@pytest.mark.parametrize("options", OPTIONS)
@given(text=st.text(min_size=1), index=st.integers(0, 1))
def test_a_chunk_of_completions_is_its_object(
    options: dict[str, Any] | None, text: str, index: int
) -> None:
    renderer = completion_chunks(options)
    choice = {"index": index, "text": text, "logprobs": None, "finish_reason": None}
    event = renderer.chunk(index, [Content(text)])
    assert event == written_whole(event, choice, options)
    last = renderer.chunk(index, [Content(text), End("stop")])
    assert last == written_whole(last, {**choice, "finish_reason": "stop"}, options)


def test_no_text_is_no_chunk() -> None:
    for renderer in (chat_chunks(None), completion_chunks(None)):
        assert renderer.chunk(0, [Content("")]) == b""
