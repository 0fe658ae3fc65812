"""The input of a request -> messages as the chat template takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.answer.images import without_images
from app.core.errors import InvalidRequest
from app.core.verbatim import Passage
from app.http.requests.images import ImageReader
from app.http.requests.messages import (
    joined_text,
    template_call,
    template_custom_call,
    template_role,
)
from app.http.requests.wire import Other, refusal
from app.http.responses.wire import (
    CustomToolCall,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Part,
    Reasoning,
)


def template_messages(
    instructions: str | None, input: str | Sequence[Item], images: ImageReader
) -> tuple[list[dict[str, Any]], list[Passage]]:
    """In the chat template's terms, and the texts as this API calls them.

    ``images`` collects those that marks stand for.

    Raises ``InvalidRequest`` that names the item.
    """
    conversation = _Conversation(images)
    if isinstance(input, str):
        conversation.add(Message(role="user", content=input), "input")
    else:
        for number, item in enumerate(input):
            conversation.add(item, f"input[{number}]")
    passages = conversation.passages
    if instructions:
        passages = [Passage("instructions", instructions, by_user=False), *passages]
    return _instructed(instructions, conversation.messages), passages


def _instructed(instructions: str | None, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """``messages`` after the instructions, which join a system message that is first.

    Many templates take one such message alone, and clients send both (pydantic-ai does).
    """
    if not instructions:
        return messages
    if messages and messages[0]["role"] == "system":
        first, *messages = messages
        instructions = f"{instructions}\n\n{first['content']}"
    return [{"role": "system", "content": instructions}, *messages]


class _Conversation:
    """Adjacent items of the assistant become the one message that they once were::

    reasoning  message  function_call  function_call  |  function_call_output  |  message
    """

    def __init__(self, images: ImageReader) -> None:
        self._images = images
        self.messages: list[dict[str, Any]] = []
        self.passages: list[Passage] = []
        self._called: set[str] = set()
        self._answer: dict[str, Any] | None = None
        """The assistant's message that the next item may add to."""

    def add(self, item: Item, param: str) -> None:
        match item:
            case Reasoning():
                self._add_reasoning(item, param)
            case Message(role="assistant"):
                text = self._text(item.content, f"{param}.content", role="assistant")
                self.passages.append(Passage(param, text, by_user=False))
                self._add_answer(text)
            case FunctionCall():
                call = template_call(item.call_id, item.name, item.arguments, f"{param}.arguments")
                self._add_call(call)
            case CustomToolCall():
                self._add_call(template_custom_call(item.call_id, item.name, item.input))
            case Message(role=role):
                imageless = None if role == "user" else role
                text = self._text(item.content, f"{param}.content", role=imageless)
                said = without_images(text)
                self.passages.append(Passage(param, said, by_user=role == "user"))
                self._append(template_role(role), content=text)
            case FunctionCallOutput():
                self._add_output(item, param)
            case Other(type=type):
                raise _unsupported_item(type, param)

    def _text(self, content: str | Sequence[Part], param: str, role: str | None = None) -> str:
        return joined_text(content, param, self._images, role=role)

    def _append(self, role: str, **fields: Any) -> None:
        self.messages.append({"role": role, **fields})
        self._answer = None

    def _open_answer(self) -> dict[str, Any]:
        self._answer = {"role": "assistant", "content": None}
        self.messages.append(self._answer)
        return self._answer

    def _add_reasoning(self, item: Reasoning, param: str) -> None:
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
                f"{param}.encrypted_content cannot be read here, as another server wrote it; "
                "leave this item out",
                param=f"{param}.encrypted_content",
            )

    def _add_answer(self, text: str) -> None:
        answer = self._answer
        if answer is None or answer["content"] or "tool_calls" in answer:
            answer = self._open_answer()
        answer["content"] = text

    def _add_call(self, call: dict[str, Any]) -> None:
        self._called.add(call["id"])
        answer = self._answer or self._open_answer()
        answer.setdefault("tool_calls", []).append(call)

    def _add_output(self, item: FunctionCallOutput, param: str) -> None:
        if item.call_id not in self._called:
            raise InvalidRequest(
                f"{param}: no call before this item has the call_id {item.call_id!r}",
                param=f"{param}.call_id",
            )
        text = self._text(item.output, f"{param}.output")
        self.passages.append(Passage(param, without_images(text), by_user=False))
        self._append("tool", content=text, tool_call_id=item.call_id)


def _unsupported_item(type: str, param: str) -> InvalidRequest:
    if type == "item_reference":
        message = (
            "an item_reference cannot be followed, as this server keeps no responses; send the "
            "item itself (clients do so where store is set to false)"
        )
    else:
        message = (
            f"items of the type {type!r} are not supported; this server takes message, reasoning, "
            "function_call, custom_tool_call and their outputs"
        )
    return refusal(param, message)
