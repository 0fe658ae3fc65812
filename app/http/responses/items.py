"""The input of a request -> messages as the chat template takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.core.errors import InvalidRequest
from app.http.requests.tools import called_arguments
from app.http.responses.wire import (
    FunctionCall,
    FunctionCallOutput,
    InputText,
    Item,
    Message,
    Other,
    OutputText,
    Part,
    Reasoning,
    Refusal,
)


def template_messages(
    instructions: str | None, input: str | Sequence[Item]
) -> list[dict[str, Any]]:
    """In the chat template's terms. Raises ``InvalidRequest`` that names the item."""
    conversation = _Conversation()
    if isinstance(input, str):
        input = [Message(role="user", content=input)]
    for number, item in enumerate(input):
        conversation.add(item, f"input[{number}]")
    return _instructed(instructions, conversation.messages)


def _instructed(instructions: str | None, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With the instructions in front, in one message with a system's that stands there already.

    Many templates take one such message alone, and clients send both (pydantic-ai does).
    """
    if not instructions:
        return messages
    if messages and messages[0]["role"] == "system":
        first, *messages = messages
        instructions = f"{instructions}\n\n{first['content']}"
    return [{"role": "system", "content": instructions}, *messages]


class _Conversation:
    """Items that follow one another become the assistant's one message that they once were::

    reasoning  message  function_call  function_call  |  function_call_output  |  message
    """

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._called: set[str] = set()
        self._answer: dict[str, Any] | None = None
        """The assistant's message that the next item may add to."""

    def add(self, item: Item, place: str) -> None:
        match item:
            case Reasoning():
                self._add_reasoning(item, place)
            case Message(role="assistant"):
                self._add_answer(_text(item.content, f"{place}.content"))
            case FunctionCall():
                self._add_call(item, place)
            case Message(role=role):
                # Templates know ``system``, which ``developer`` replaced.
                name = "system" if role == "developer" else role
                self._append(name, content=_text(item.content, f"{place}.content"))
            case FunctionCallOutput():
                self._add_output(item, place)
            case Other(type=kind):
                raise _unsupported_item(kind, place)

    def _append(self, role: str, **fields: Any) -> None:
        self.messages.append({"role": role, **fields})
        self._answer = None

    def _open_answer(self) -> dict[str, Any]:
        self._answer = {"role": "assistant", "content": None}
        self.messages.append(self._answer)
        return self._answer

    def _add_reasoning(self, item: Reasoning, place: str) -> None:
        parts = item.content or item.summary or []
        text = "\n".join(part.text for part in parts)
        if text:
            answer = self._answer
            if answer is None or answer["content"] or "tool_calls" in answer:
                answer = self._open_answer()
                # An answer that was cut while it reasoned has nothing else.
                answer["content"] = ""
            before = answer.get("reasoning_content")
            answer["reasoning_content"] = f"{before}\n{text}" if before else text
        elif item.encrypted_content:
            raise InvalidRequest(
                f"{place}.encrypted_content cannot be read here, as another server wrote it; "
                "leave this item out",
                param=f"{place}.encrypted_content",
            )

    def _add_answer(self, text: str) -> None:
        answer = self._answer
        if answer is None or answer["content"] or "tool_calls" in answer:
            answer = self._open_answer()
        answer["content"] = text

    def _add_call(self, item: FunctionCall, place: str) -> None:
        arguments = called_arguments(item.arguments, f"{place}.arguments")
        self._called.add(item.call_id)
        answer = self._answer or self._open_answer()
        answer.setdefault("tool_calls", []).append(
            {
                "id": item.call_id,
                "type": "function",
                "function": {"name": item.name, "arguments": arguments},
            }
        )

    def _add_output(self, item: FunctionCallOutput, place: str) -> None:
        if item.call_id not in self._called:
            raise InvalidRequest(
                f"{place}: no function_call before this item has the call_id {item.call_id!r}",
                param=f"{place}.call_id",
            )
        text = _text(item.output, f"{place}.output")
        self._append("tool", content=text, tool_call_id=item.call_id)


def _text(content: str | Sequence[Part], place: str) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(_part_text(part, f"{place}[{number}]") for number, part in enumerate(content))


def _part_text(part: Part, place: str) -> str:
    match part:
        case InputText(text=text) | OutputText(text=text):
            return text
        case Refusal(refusal=refusal):
            return refusal
    raise InvalidRequest(
        f"{place}: parts of the type {part.type!r} are not supported; this server takes text",
        param=place,
    )


def _unsupported_item(kind: str, place: str) -> InvalidRequest:
    if kind == "item_reference":
        message = (
            "an item_reference cannot be followed, as this server keeps no responses; send the "
            "item itself (clients do so where store is set to false)"
        )
    else:
        message = (
            f"items of the type {kind!r} are not supported; this server takes message, reasoning, "
            "function_call and function_call_output"
        )
    return InvalidRequest(f"{place}: {message}", param=place)
