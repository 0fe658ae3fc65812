"""instructor, in every mode that it has for OpenAI."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from typing import Any

import instructor
import openai
from features import (
    BASE_URL,
    CARD,
    CARD_TEXT,
    CONTACT_TEXT,
    MODEL,
    PICTURE,
    REVIEW_TEXT,
    UNSUPPORTED_SCHEMA,
    Card,
    Checks,
    Contact,
    NotApplicable,
    Review,
    picture_url,
    raises,
)
from instructor import Mode
from instructor.core import IncompleteOutputException, InstructorRetryException
from pydantic import BaseModel, ConfigDict

check = Checks()
warnings.simplefilter("ignore", DeprecationWarning)
openai_client = openai.OpenAI(base_url=BASE_URL, api_key="none")

CONTACT: list[Any] = [{"role": "user", "content": CONTACT_TEXT}]
REVIEW: list[Any] = [{"role": "user", "content": REVIEW_TEXT}]


def by(mode: Mode) -> Any:
    return instructor.from_openai(openai_client, mode=mode)


def create(mode: Mode, kind: Any, messages: list[Any], **arguments: Any) -> Any:
    return by(mode).create(
        model=MODEL,
        messages=messages,
        response_model=kind,
        max_retries=0,
        **({} if mode is Mode.RESPONSES_TOOLS else {"temperature": 0}),
        **arguments,
    )


@check("json_schema", "JSON_SCHEMA")
def _() -> None:
    assert create(Mode.JSON_SCHEMA, Contact, CONTACT).name == "Daniel Okafor"
    assert create(Mode.JSON_SCHEMA, Review, REVIEW).rating == 2


@check("json_schema", "JSON_SCHEMA: create_with_completion")
def _() -> None:
    contact, completion = by(Mode.JSON_SCHEMA).create_with_completion(
        model=MODEL, messages=CONTACT, response_model=Contact, temperature=0
    )
    assert (
        contact.model_dump_json()
        == Contact.model_validate_json(completion.choices[0].message.content).model_dump_json()
    )


@check("json_object", "JSON (the schema stands in the prompt alone)")
def _() -> str:
    try:
        create(Mode.JSON, Contact, CONTACT)
    except InstructorRetryException as failed:
        answer = json.loads(failed.last_completion.choices[0].message.content)
        assert isinstance(answer, dict)
        return "valid JSON; to keep to the keys of a schema in words takes a larger model"
    return "the model kept to the schema"


@check("text", "MD_JSON (a fence is asked for in words)")
def _() -> None:
    try:
        create(Mode.MD_JSON, Contact, CONTACT)
    except IncompleteOutputException as cut:
        # With instructions in words only, the demo model may not end its answer.
        raise NotApplicable("answered; to follow it takes a larger model") from cut
    except InstructorRetryException as failed:
        if not failed.last_completion.choices[0].message.content:
            raise
        raise NotApplicable("answered; to follow it takes a larger model") from failed


@check("tools", "TOOLS")
def _() -> None:
    assert isinstance(create(Mode.TOOLS, Contact, CONTACT), Contact)
    assert isinstance(create(Mode.TOOLS, Review, REVIEW), Review)


@check("tools", "TOOLS_STRICT")
def _() -> None:
    assert isinstance(create(Mode.TOOLS_STRICT, Contact, CONTACT), Contact)


@check("several calls", "PARALLEL_TOOLS (tool_choice auto)")
def _() -> str:
    try:
        found = list(create(Mode.PARALLEL_TOOLS, Iterable[Contact | Review], CONTACT))
    except InstructorRetryException as failed:
        if failed.last_completion.choices[0].message.tool_calls:
            raise
        raise NotApplicable("the model answered in text, as it may") from failed
    assert all(isinstance(each, Contact | Review) for each in found)
    return f"the model made {len(found)} calls"


@check("stream", "JSON_SCHEMA: create_partial")
def _() -> None:
    partials = list(
        by(Mode.JSON_SCHEMA).create_partial(
            model=MODEL, messages=CONTACT, response_model=Contact, temperature=0
        )
    )
    assert len(partials) > 2
    assert partials[-1].model_dump() == create(Mode.JSON_SCHEMA, Contact, CONTACT).model_dump()


@check("tools streamed", "TOOLS: create_partial")
def _() -> None:
    partials = list(
        by(Mode.TOOLS).create_partial(
            model=MODEL, messages=CONTACT, response_model=Contact, temperature=0
        )
    )
    assert len(partials) > 2
    Contact.model_validate(partials[-1].model_dump())


@check("tools streamed", "TOOLS: create_iterable")
def _() -> None:
    found = by(Mode.TOOLS).create_iterable(
        model=MODEL, messages=REVIEW, response_model=Review, temperature=0, max_tokens=400
    )
    assert all(isinstance(each, Review) for each in found)


@check("tools", "TOOLS: AsyncOpenAI")
async def _() -> None:
    async with openai.AsyncOpenAI(base_url=BASE_URL, api_key="none") as aclient:
        contact = await instructor.from_openai(aclient, mode=Mode.TOOLS).create(
            model=MODEL, messages=CONTACT, response_model=Contact, temperature=0
        )
    assert isinstance(contact, Contact)


@check("responses tools", "RESPONSES_TOOLS")
def _() -> None:
    assert isinstance(create(Mode.RESPONSES_TOOLS, Contact, CONTACT), Contact)


def seeing(image: instructor.Image) -> list[Any]:
    return [{"role": "user", "content": [CARD_TEXT, image]}]


@check("images", "JSON_SCHEMA: Image.from_path")
def _() -> None:
    card = create(Mode.JSON_SCHEMA, Card, seeing(instructor.Image.from_path(PICTURE)))
    assert card.model_dump() == CARD.model_dump()


@check("images", "JSON_SCHEMA: Image.from_base64")
def _() -> None:
    card = create(Mode.JSON_SCHEMA, Card, seeing(instructor.Image.from_base64(picture_url())))
    assert card.model_dump() == CARD.model_dump()


@check("images", "TOOLS: Image.from_path")
def _() -> str:
    card = create(Mode.TOOLS, Card, seeing(instructor.Image.from_path(PICTURE)))
    assert isinstance(card, Card)
    read = card.model_dump() == CARD.model_dump()
    return "" if read else "a valid call; to read a picture for a call takes a larger model"


@check("errors", "a schema that cannot be enforced is a 400")
def _() -> None:
    class Numbers(BaseModel):
        model_config = ConfigDict(json_schema_extra=lambda schema: schema.update(SCHEMA))

        numbers: list[int]

    SCHEMA = UNSUPPORTED_SCHEMA  # noqa: N806
    with raises(InstructorRetryException, openai.BadRequestError) as failed:
        create(Mode.JSON_SCHEMA, Numbers, CONTACT)
    assert "uniqueItems" in str(failed.error)


check.run()
