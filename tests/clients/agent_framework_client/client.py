"""Microsoft's Agent Framework: agents over responses, stored by default, and over chat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openai
from agent_framework import Agent, tool
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from features import (
    BASE_URL,
    COLUMNS,
    CONTACT_TEXT,
    MODEL,
    REVIEW_TEXT,
    UNSUPPORTED_SCHEMA,
    Checks,
    Contact,
    Review,
    raises,
)

check = Checks()


def responses() -> Any:
    return OpenAIChatClient(MODEL, api_key="none", base_url=BASE_URL)


def chat() -> Any:
    return OpenAIChatCompletionClient(MODEL, api_key="none", base_url=BASE_URL)


def agent(client: Any, **arguments: Any) -> Any:
    return Agent(client, "Be short.", name="extractor", **arguments)


def saving(saved: list[Contact]) -> Any:
    @tool(approval_mode="never_require")
    def save_contact(name: str, email: str, phone: str) -> str:
        """Saves a contact."""
        saved.append(Contact(name=name, email=email, phone=phone))
        return "saved"

    return save_contact


def register(by: str, client: Callable[[], Any]) -> None:
    """Register the checks for one API."""
    features = COLUMNS[by]

    @check(features["text"], f"{by}: run")
    async def _() -> None:
        result = await agent(client()).run("Hello", options={"temperature": 0})
        assert result.text

    @check(features["stream"], f"{by}: run(stream=True)")
    async def _() -> None:
        stream = agent(client()).run("Hello", stream=True, options={"temperature": 0})
        assert [update async for update in stream]
        streamed = await stream.get_final_response()
        whole = await agent(client()).run("Hello", options={"temperature": 0})
        assert streamed.text == whole.text

    @check(features["json_schema"], f"{by}: response_format")
    async def _() -> None:
        options = {"temperature": 0, "response_format": Review}
        result = await agent(client()).run(REVIEW_TEXT, options=options)
        assert result.value.rating == 2

    @check(features["tools"], f"{by}: a call, its result, an answer")
    async def _() -> None:
        saved: list[Contact] = []
        options = {"temperature": 0, "tool_choice": "required", "allow_multiple_tool_calls": False}
        result = await agent(client(), tools=[saving(saved)]).run(CONTACT_TEXT, options=options)
        assert saved
        assert result.messages


register("responses", responses)
register("chat", chat)


@check("responses", "responses: a session goes on from what was kept")
async def _() -> None:
    one = agent(responses())
    session = one.create_session()
    await one.run("Hello", session=session, options={"temperature": 0})
    first = session.service_session_id
    second = await one.run("And now?", session=session, options={"temperature": 0})
    assert first
    assert second.text
    client = openai.OpenAI(base_url=BASE_URL, api_key="none")
    kept = client.responses.retrieve(session.service_session_id)
    assert kept.previous_response_id == first


@check("errors", "a schema that cannot be enforced is a 400")
async def _() -> None:
    schema = {"title": "numbers", **UNSUPPORTED_SCHEMA}
    with raises(Exception) as failed:
        await agent(responses()).run(CONTACT_TEXT, options={"response_format": schema})
    assert "uniqueItems" in str(failed.error)


check.run()
