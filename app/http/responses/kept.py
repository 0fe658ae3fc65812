"""Requests that continue stored responses, and storing of answers for later requests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic_core import from_json, to_json

from app.core.errors import InvalidRequest
from app.http.errors import BodyTooLarge
from app.http.requests.wire import invalid
from app.serving.kept_responses import KeptResponse, ResponseStore
from app.serving.tasks import in_thread_if_large

_MOST_TURNS = 1024
"""Maximum responses of one conversation that a request may continue."""

Items = list[dict[str, Any]]


class UnknownResponse(InvalidRequest):
    """No response is stored under this id."""

    code = "previous_response_not_found"


class Resumed(dict[str, Any]):
    """A body with the stored items in place of references to them."""

    def __init__(
        self,
        body: dict[str, Any],
        history: Items,
        own: Mapping[int, dict[str, Any]],
        store: ResponseStore,
        owner: str,
    ) -> None:
        """``history``: the items of earlier responses; ``own``: those that the request brings, by
        their numbers in its input."""
        is_text = isinstance(body.get("input"), str)
        joined = body["input"] if is_text and not history else [*history, *own.values()]
        super().__init__({**body, "input": joined})
        self.params = [
            *(f"previous_response_id[{number}]" for number in range(len(history))),
            *("input" if is_text else f"input[{number}]" for number in own),
        ]
        """For each item of the joined input, the field of the request that it is from."""
        self._own = list(own.values())
        self._store = store
        self._owner = owner

    async def keep(self, response: Mapping[str, Any]) -> None:
        """Store this request's items and its ``response``, whose id is part of the items' ids."""
        key = response["id"].removeprefix("resp_")
        own = [_listed(item, f"msg_{key}_input{n}") for n, item in enumerate(self._own)]
        previous = response["previous_response_id"]
        kept = KeptResponse(response["id"], previous, to_json(response), to_json(own))
        await self._store.keep(self._owner, kept)


def not_kept(response_id: str) -> str:
    """The error message for an id under which nothing is stored."""
    return (
        f"there is no response {response_id[:64]!r}: it was not stored, was deleted, has expired "
        "or was evicted; send the conversation in input"
    )


class Conversations:
    """Finds the stored items that requests of one ``owner`` refer to."""

    def __init__(self, store: ResponseStore, owner: str, max_bytes: int) -> None:
        """``max_bytes``: limit on the items that one request refers to."""
        self._store = store
        self._owner = owner
        self._left = max_bytes

    async def resume(self, body: dict[str, Any]) -> tuple[Mapping[str, Any], int]:
        """``body`` with all items that it refers to, and their size in bytes.

        Malformed fields are left for the parser to refuse. Raises ``InvalidRequest`` for items that
        are not stored, and ``BodyTooLarge`` if they exceed the limit.
        """
        before, previous, given = self._left, body.get("previous_response_id"), body.get("input")
        history = await self._conversation(previous) if isinstance(previous, str) else []
        if isinstance(given, str):
            given = [{"role": "user", "content": given}]
        elif given is None and history:
            given = []
        if not isinstance(given, list):
            return body, 0
        known = {item["id"] for item in history}
        own = {
            number: await self._referred(item, f"input[{number}]")
            for number, item in enumerate(given)
            if not (_is_reference(item) and item["id"] in known)  # it is in the history already
        }
        return Resumed(body, history, own, self._store, self._owner), before - self._left

    async def input_of(self, kept: KeptResponse) -> Items:
        """The input items of a response, as far back as responses are stored."""
        try:
            before = await self._conversation(kept.previous) if kept.previous else []
        except UnknownResponse:
            before = []
        read = partial(from_json, kept.items)
        return [*before, *await in_thread_if_large(kept.nbytes, self._owner, read)]

    async def _conversation(self, response_id: str) -> Items:
        """The items of a response and of all that it continues, the oldest first."""
        turns: list[Items] = []
        following: str | None = response_id
        while following is not None:
            if len(turns) == _MOST_TURNS:
                reason = f"it continues more than {_MOST_TURNS} responses (the limit)"
                raise invalid("previous_response_id", reason)
            kept = await self._find(following, "previous_response_id")
            turns.append(await self._items(kept, "previous_response_id"))
            following = kept.previous
        return [item for turn in reversed(turns) for item in turn]

    async def _referred(self, item: Any, param: str) -> Any:
        """``item``, or the one that it refers to, whose id contains the response's id."""
        if not _is_reference(item):
            return item
        name: str = item["id"]
        response_id = f"resp_{name.split('_')[1]}" if name.count("_") == 2 else name
        for each in await self._items(await self._find(response_id, f"{param}.id"), f"{param}.id"):
            if each.get("id") == name:
                return each
        raise invalid(f"{param}.id", f"the response has no item {name[:64]!r}")

    async def _find(self, response_id: str, param: str) -> KeptResponse:
        kept = await self._store.find(self._owner, response_id)
        if kept is None:
            raise UnknownResponse(f"{param}: {not_kept(response_id)}", param=param)
        return kept

    async def _items(self, kept: KeptResponse, param: str) -> Items:
        """The items of a response's own input, and those of its output."""
        self._left -= kept.nbytes
        if self._left < 0:
            raise BodyTooLarge(
                f"{param}: the stored responses that this request continues are larger than the "
                "limit of a request body; send a shorter conversation in input",
                param=param,
            )

        def read() -> Items:
            return [*from_json(kept.items), *from_json(kept.response)["output"]]

        return await in_thread_if_large(kept.nbytes, self._owner, read)


def _is_reference(item: Any) -> bool:
    if not isinstance(item, dict) or not isinstance(item.get("id"), str):
        return False
    return item.get("type") == "item_reference" or item.keys() == {"id"}


def _listed(item: dict[str, Any], id: str) -> dict[str, Any]:
    """An item of an input in the form in which responses list them."""
    listed = {"type": "message", "status": "completed", **item}
    if not (isinstance(listed.get("id"), str) and listed["id"]):  # other servers' are not checked
        listed["id"] = id
    content = listed.get("content")
    if listed["type"] == "message" and isinstance(content, str):
        part: dict[str, Any] = {"type": "input_text", "text": content}
        if listed["role"] == "assistant":
            part = {"type": "output_text", "text": content, "annotations": [], "logprobs": []}
        listed["content"] = [part]
    return listed
