"""pydantic-ai: all ways of structured output, and tools, by chat completions and responses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
from features import (
    BASE_URL,
    CARD,
    CARD_TEXT,
    COLUMNS,
    CONTACT_TEXT,
    MODEL,
    PICTURE,
    REVIEW_TEXT,
    UNSUPPORTED_SCHEMA,
    Card,
    Checks,
    Contact,
    Review,
    raises,
)
from pydantic_ai import (
    Agent,
    BinaryContent,
    ModelHTTPError,
    ModelSettings,
    NativeOutput,
    PromptedOutput,
    RunContext,
    StructuredDict,
    ToolOutput,
    UnexpectedModelBehavior,
    UsageLimits,
    capture_run_messages,
)
from pydantic_ai.models.openai import (
    OpenAIChatModel,
    OpenAIResponsesModel,
    OpenAIResponsesModelSettings,
)
from pydantic_ai.providers.openai import OpenAIProvider

check = Checks()


def provider() -> OpenAIProvider:
    """A new provider for each check, as a client's connections belong to one event loop."""
    return OpenAIProvider(openai_client=openai.AsyncOpenAI(base_url=BASE_URL, api_key="none"))


def chat() -> OpenAIChatModel:
    return OpenAIChatModel(MODEL, provider=provider())


def responses() -> OpenAIResponsesModel:
    return OpenAIResponsesModel(MODEL, provider=provider())


def agent(model: Any, **arguments: Any) -> Agent[Any, Any]:
    return Agent(model, model_settings={"temperature": 0}, **arguments)


def picture() -> BinaryContent:
    return BinaryContent(Path(PICTURE).read_bytes(), media_type="image/png")


def register(by: str, model: Callable[[], Any]) -> None:
    """Register the checks for one API."""
    features = COLUMNS[by]

    @check(features["text"], f"{by}: text")
    async def _() -> None:
        result = await agent(model()).run("Hello")
        assert result.output
        assert result.usage.total_tokens > 0

    @check(features["stream"], f"{by}: run_stream, text")
    async def _() -> None:
        async with agent(model()).run_stream("Hello") as run:
            streamed = "".join([delta async for delta in run.stream_text(delta=True)])
        assert streamed == (await agent(model()).run("Hello")).output

    @check(features["json_schema"], f"{by}: NativeOutput")
    async def _() -> None:
        result = await agent(model(), output_type=NativeOutput(Contact)).run(CONTACT_TEXT)
        assert isinstance(result.output, Contact)
        assert result.output.name == "Daniel Okafor"

    @check(features["json_schema"], f"{by}: NativeOutput of two types, strict")
    async def _() -> None:
        output = NativeOutput([Contact, Review], strict=True)
        result = await agent(model(), output_type=output).run(REVIEW_TEXT)
        assert isinstance(result.output, Contact | Review)

    @check(features["stream"], f"{by}: run_stream, NativeOutput")
    async def _() -> None:
        async with agent(model(), output_type=NativeOutput(Contact)).run_stream(
            CONTACT_TEXT
        ) as run:
            outputs = [output async for output in run.stream_output(debounce_by=None)]
        assert isinstance(outputs[-1], Contact)
        assert len(outputs) > 1

    @check(features["tools"], f"{by}: ToolOutput")
    async def _() -> None:
        result = await agent(model(), output_type=ToolOutput(Contact)).run(CONTACT_TEXT)
        assert isinstance(result.output, Contact)

    @check(features["tools"], f"{by}: ToolOutput of two types, strict")
    async def _() -> None:
        outputs = [ToolOutput(Contact, strict=True), ToolOutput(Review, strict=True)]
        result = await agent(model(), output_type=outputs).run(REVIEW_TEXT)
        assert isinstance(result.output, Contact | Review)

    @check(features["tools streamed"], f"{by}: run_stream, ToolOutput")
    async def _() -> None:
        async with agent(model(), output_type=ToolOutput(Contact)).run_stream(CONTACT_TEXT) as run:
            outputs = [output async for output in run.stream_output(debounce_by=None)]
        assert isinstance(outputs[-1], Contact)

    @check("images", f"{by}: BinaryContent, NativeOutput")
    async def _() -> None:
        question = [CARD_TEXT, picture()]
        result = await agent(model(), output_type=NativeOutput(Card)).run(question)
        assert result.output == CARD

    @check(features["tool loop"], f"{by}: a function tool, then an answer of a type")
    async def _() -> None:
        called: list[str] = []

        def first_the_tool(context: RunContext[None]) -> ModelSettings:
            if context.run_step == 1:
                return ModelSettings(
                    temperature=0, tool_choice=["phone_of"], parallel_tool_calls=False
                )
            return ModelSettings(temperature=0)

        worker = Agent(model(), model_settings=first_the_tool, output_type=ToolOutput(Contact))

        @worker.tool_plain
        def phone_of(name: str) -> str:
            """The phone number of a person."""
            called.append(name)
            return "(212) 555-0187"

        result = await worker.run(CONTACT_TEXT, usage_limits=UsageLimits(request_limit=5))
        assert isinstance(result.output, Contact)
        assert called


register("chat", chat)


@check("json_object", "chat: PromptedOutput")
async def _() -> str:
    with capture_run_messages() as messages:
        try:
            result = await agent(chat(), output_type=PromptedOutput(Contact), retries=0).run(
                CONTACT_TEXT
            )
        except UnexpectedModelBehavior:
            assert len(messages) >= 2
            return "valid JSON; following a schema in the prompt takes a larger model"
    assert isinstance(result.output, Contact)
    return "the model kept to the schema"


@check("json_schema", "chat: NativeOutput of a JSON Schema")
async def _() -> None:
    kind = StructuredDict(Contact.model_json_schema(), name="contact")
    result = await agent(chat(), output_type=NativeOutput(kind)).run(CONTACT_TEXT)
    Contact.model_validate(result.output)


register("responses", responses)


@check("responses", "responses: openai_previous_response_id=auto")
async def _() -> None:
    settings = OpenAIResponsesModelSettings(temperature=0, openai_previous_response_id="auto")
    one = Agent(responses(), model_settings=settings)
    first = await one.run("Hello")
    second = await one.run("And now?", message_history=first.all_messages())
    assert second.output
    assert second.usage().input_tokens > first.usage().input_tokens


@check("errors", "a schema that cannot be enforced is a 400")
async def _() -> None:
    kind = StructuredDict(UNSUPPORTED_SCHEMA, name="numbers")
    with raises(ModelHTTPError) as failed:
        await agent(chat(), output_type=NativeOutput(kind)).run(CONTACT_TEXT)
    assert failed.error.status_code == 400
    assert "uniqueItems" in str(failed.error)


check.run()
