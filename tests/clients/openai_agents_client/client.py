"""openai-agents: agents with an output type and with tools, over both APIs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openai
from agents import (
    Agent,
    AgentOutputSchemaBase,
    MaxTurnsExceeded,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    handoff,
    set_tracing_disabled,
)
from features import (
    BASE_URL,
    CARD,
    CARD_TEXT,
    COLUMNS,
    CONTACT_TEXT,
    MODEL,
    REVIEW_TEXT,
    UNSUPPORTED_SCHEMA,
    Card,
    Checks,
    Contact,
    Review,
    picture_url,
    raises,
)

check = Checks()
set_tracing_disabled(True)


def client() -> openai.AsyncOpenAI:
    """A new client for each check, as its connections belong to one event loop."""
    return openai.AsyncOpenAI(base_url=BASE_URL, api_key="none")


def chat() -> Any:
    return OpenAIChatCompletionsModel(MODEL, client())


def responses() -> Any:
    return OpenAIResponsesModel(MODEL, client())


class Numbers(AgentOutputSchemaBase):
    """A schema that the server refuses."""

    def is_plain_text(self) -> bool:
        return False

    def name(self) -> str:
        return "numbers"

    def json_schema(self) -> dict[str, Any]:
        return UNSUPPORTED_SCHEMA

    def is_strict_json_schema(self) -> bool:
        return True

    def validate_json(self, json_str: str) -> Any:
        return json_str


def agent(model: Any, tool_choice: str | None = None, **arguments: Any) -> Agent[Any]:
    """An agent that makes one call at a time: the demo model repeats calls up to ``max_tokens``."""
    settings = ModelSettings(
        temperature=0, tool_choice=tool_choice, parallel_tool_calls=False, include_usage=True
    )
    return Agent(name="extractor", model=model, model_settings=settings, **arguments)


def register(by: str, model: Callable[[], Any]) -> None:
    """Register the checks for one API."""
    features = COLUMNS[by]

    @check(features["text"], f"{by}: an agent without an output type")
    async def _() -> None:
        result = await Runner.run(agent(model(), instructions="Be short."), "Hello")
        assert result.final_output
        assert result.context_wrapper.usage.total_tokens > 0

    @check(features["json_schema"], f"{by}: output_type")
    async def _() -> None:
        result = await Runner.run(agent(model(), output_type=Contact), CONTACT_TEXT)
        assert isinstance(result.final_output, Contact)
        assert result.final_output.name == "Daniel Okafor"

    @check(features["stream"], f"{by}: run_streamed, output_type")
    async def _() -> None:
        run = Runner.run_streamed(agent(model(), output_type=Review), REVIEW_TEXT)
        text = await deltas(run, "response.output_text.delta")
        assert run.final_output == Review.model_validate_json(text)

    @check("images", f"{by}: input_image, output_type")
    async def _() -> None:
        content: list[Any] = [
            {"type": "input_text", "text": CARD_TEXT},
            {"type": "input_image", "image_url": picture_url(), "detail": "auto"},
        ]
        question: list[Any] = [{"role": "user", "content": content}]
        result = await Runner.run(agent(model(), output_type=Card), question)
        assert result.final_output == CARD

    @check(features["tools"], f"{by}: a function tool, stop_on_first_tool")
    async def _() -> None:
        saved: list[Contact] = []
        worker = agent(
            model(), "required", tools=[saving(saved)], tool_use_behavior="stop_on_first_tool"
        )
        result = await Runner.run(worker, CONTACT_TEXT)
        assert saved
        assert result.final_output == "saved"

    @check(features["tools streamed"], f"{by}: run_streamed, a function tool")
    async def _() -> None:
        saved: list[Contact] = []
        worker = agent(
            model(), "save_contact", tools=[saving(saved)], tool_use_behavior="stop_on_first_tool"
        )
        run = Runner.run_streamed(worker, CONTACT_TEXT)
        text = await deltas(run, "response.function_call_arguments.delta")
        assert Contact.model_validate_json(text) == saved[0]

    @check(features["tool loop"], f"{by}: run_llm_again, with an output type")
    async def _() -> str:
        saved: list[Contact] = []
        worker = agent(model(), "required", tools=[saving(saved)], output_type=Contact)
        try:
            result = await Runner.run(worker, CONTACT_TEXT, max_turns=3)
        except MaxTurnsExceeded:
            assert saved
            return f"stopped: the model called {len(saved)} times and did not finish"
        assert isinstance(result.final_output, Contact)
        return f"the model called {len(saved)} times, then answered"

    @check(features["tools"], f"{by}: a handoff")
    async def _() -> str:
        other = agent(model(), output_type=Contact, handoff_description="Extracts contacts.")
        first = agent(model(), "required", handoffs=[handoff(other, tool_name_override="pass_on")])
        result = await Runner.run(first, CONTACT_TEXT, max_turns=3)
        assert result.last_agent is other
        assert isinstance(result.final_output, Contact)
        return ""


async def deltas(run: Any, kind: str) -> str:
    """The concatenated deltas of the raw events of the type ``kind``."""
    text = ""
    async for event in run.stream_events():
        if event.type == "raw_response_event" and event.data.type == kind:
            text += event.data.delta
    return text


def saving(saved: list[Contact]) -> Any:
    @function_tool
    def save_contact(name: str, email: str, phone: str) -> str:
        """Saves a contact."""
        saved.append(Contact(name=name, email=email, phone=phone))
        return "saved"

    return save_contact


register("chat", chat)
register("responses", responses)


@check("responses", "responses: previous_response_id, after a call and its result")
async def _() -> None:
    saved: list[Contact] = []
    result = await Runner.run(
        agent(responses(), tools=[saving(saved)]), CONTACT_TEXT, auto_previous_response_id=True
    )
    assert result.final_output
    again = await Runner.run(
        agent(responses()), "And now?", previous_response_id=result.last_response_id
    )
    assert again.final_output


@check("errors", "a schema that cannot be enforced is a 400")
async def _() -> None:
    with raises(openai.BadRequestError) as failed:
        await Runner.run(agent(chat(), output_type=Numbers()), CONTACT_TEXT)
    assert "uniqueItems" in failed.error.message


check.run()
