"""Messages made of blocks -> messages as the chat template takes them.

Adjacent messages of a role are one, as Anthropic has it. Results of tools, which there are the
user's, become messages of their own before the text beside them::

    user: tool_result  tool_result  text   ->   tool  tool  user
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.answer.images import appended, without_images
from app.core.errors import InvalidRequest
from app.core.verbatim import Passage
from app.http.messages.wire import (
    AnyBlock,
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    Message,
    OtherBlock,
    PlainText,
    SearchResultBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from app.http.requests.ignored import Ignored
from app.http.requests.images import ImageReader
from app.http.requests.wire import refusal

_BETWEEN = "\n"
"""Between blocks of text."""
TEXTS = "text, document, search_result, thinking, tool_use and tool_result"
"""Types of blocks that are taken whether the model has eyes or not."""
_OMITTED = frozenset(
    [
        *("redacted_thinking", "server_tool_use", "mcp_tool_use", "mcp_tool_result", "compaction"),
        *("web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result"),
        *("bash_code_execution_tool_result", "text_editor_code_execution_tool_result"),
        *("tool_search_tool_result", "container_upload"),
    ]
)
"""Blocks of answers that were sent back, of tools that another server ran itself, and thinking
that nobody can read."""


def template_messages(
    system: str | Sequence[TextBlock] | None,
    messages: Sequence[Message],
    images: ImageReader,
    ignored: Ignored,
) -> tuple[list[dict[str, Any]], list[Passage]]:
    """In the chat template's terms, and the texts as this API calls them.

    ``images`` collects those that marks stand for.

    Raises ``InvalidRequest`` that names the block.
    """
    conversation, passages = _Conversation(images, ignored), []
    if text := system if isinstance(system, str) else _BETWEEN.join([t.text for t in system or ()]):
        conversation.say("system", text)
    for number, message in enumerate(messages):
        param = f"messages[{number}]"
        content = message.content
        if isinstance(content, str):
            conversation.say(message.role, content)
            said = [content]
        elif not content:
            raise refusal(f"{param}.content", "it has no block")
        else:
            said = [
                conversation.add(message.role, block, f"{param}.content[{index}]")
                for index, block in enumerate(content)
            ]
        text = _BETWEEN.join([each for each in map(without_images, said) if each])
        passages.append(Passage(param, text, message.role == "user"))
    return conversation.messages, passages


class _Conversation:
    def __init__(self, images: ImageReader, ignored: Ignored) -> None:
        self.messages: list[dict[str, Any]] = []
        self._images = images
        self._ignored = ignored
        self._called: set[str] = set()

    def say(self, role: str, text: str) -> None:
        message = self._open(role)
        before = message.get("content")
        message["content"] = appended(before, text) if before else text

    def add(self, role: str, block: AnyBlock, param: str) -> str:
        """Returns the text that is said, which thoughts, calls and results are not."""
        match block:
            case ThinkingBlock() | ToolUseBlock() if role != "assistant":
                raise refusal(param, f"a block of the type {block.type!r} is the assistant's")
            case ToolResultBlock() if role != "user":
                raise refusal(param, "a block of the type 'tool_result' is the user's")
            case ImageBlock() if role != "user":
                self._images.mark(block, param)
                raise refusal(param, "a block of the type 'image' is the user's")
            case ThinkingBlock(thinking=text):
                message = self._open(role)
                before = message.get("reasoning_content")
                message["reasoning_content"] = f"{before}{_BETWEEN}{text}" if before else text
            case ToolUseBlock(id=id, name=name, input=arguments):
                self._called.add(id)
                function = {"name": name, "arguments": arguments}
                call = {"id": id, "type": "function", "function": function}
                self._open(role).setdefault("tool_calls", []).append(call)
            case ToolResultBlock():
                self._add_result(block, param)
            case OtherBlock(type=type) if role == "assistant" and type in _OMITTED:
                self._open(role)
                if type != "redacted_thinking":
                    reason = f"{param}: blocks of the type {type!r} are not supported"
                    self._ignored.leave_out(
                        f"{param}.type", reason, name=f"messages[].content[].type={type}"
                    )
            case _:
                text = self._text(block, param)
                self.say(role, text)
                return text
        return ""

    def _open(self, role: str) -> dict[str, Any]:
        """The message of ``role`` that goes on, or a new one."""
        if not self.messages or self.messages[-1]["role"] != role:
            self.messages.append({"role": role, "content": None})
        return self.messages[-1]

    def _add_result(self, block: ToolResultBlock, param: str) -> None:
        if block.tool_use_id not in self._called:
            raise InvalidRequest(
                f"{param}: no tool_use before this block has the id {block.tool_use_id!r}",
                param=f"{param}.tool_use_id",
            )
        content = block.content
        text = content if isinstance(content, str) else ""
        for number, each in enumerate(content if isinstance(content, list) else ()):
            added = self._text(each, f"{param}.content[{number}]")
            text = appended(text, added) if number else added
        if block.is_error:
            text = f"Error: {text}"
        message = {"role": "tool", "content": text, "tool_call_id": block.tool_use_id}
        self.messages.append(message)

    def _text(self, block: AnyBlock | ContentBlock, param: str) -> str:
        match block:
            case TextBlock(text=text):
                return text
            case ImageBlock():
                return self._images.mark(block, param)
            case DocumentBlock(source=PlainText(data=data), title=title, context=context):
                return _BETWEEN.join([each for each in (title, context, data) if each])
            case DocumentBlock(source=source):
                reason = f"documents of the type {source.type!r} are not supported; send their text"
                raise refusal(f"{param}.source", reason)
            case SearchResultBlock(source=origin, title=title, content=content):
                return _BETWEEN.join([title, origin, *[each.text for each in content]])
        raise self._images.refused(block.type, param)
