"""A conversation in which the model may call functions, and its text in the prompt."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.answer.tools import FunctionTool
from tools.demo_model.prompts import Message
from tools.demo_model.records import Json

Turn = Mapping[str, Any]
"""A message as in `app.answer.prompt.Conversation`: OpenAI's, but arguments are objects."""

_INSTRUCTIONS: Final = """\
You can call functions. These are the functions, one in a line, with their parameters as JSON Schema:
{functions}

To call functions, answer with one JSON object of this form and with nothing else:
{{"tool_calls": [{{"name": "NAME", "arguments": {{ARGUMENTS}}}}]}}
Otherwise, answer with text."""  # noqa: E501


@dataclass(frozen=True, slots=True)
class Scene:
    """Messages and tools as a client sends them, and the right answer.

    `calls` are names with arguments; empty for an answer in text.
    """

    turns: tuple[Turn, ...]
    tools: tuple[FunctionTool, ...]
    calls: tuple[tuple[str, dict[str, Json]], ...]
    text: str


def written_out(scene: Scene) -> list[Message]:
    """The scene's messages as the server writes them for a chat template without tools.

    This repeats the plain form of `app.answer.prompt`, so that the corpus of the shipped weights
    does not change; a test compares the two.
    """
    names: dict[str, str] = {}
    written: list[Message] = []
    for turn in scene.turns:
        content = turn["content"] or ""
        if turn["role"] == "tool":
            content = f"Result of {names[turn['tool_call_id']]}:\n{content}"
            if written[-1]["role"] == "user":
                content = f"{written.pop()['content']}\n\n{content}"
            written.append({"role": "user", "content": content})
            continue
        calls = turn.get("tool_calls", ())
        names.update((each["id"], each["function"]["name"]) for each in calls)
        if calls:
            functions = [each["function"] for each in calls]
            content = calls_as_text([(one["name"], one["arguments"]) for one in functions])
        written.append({"role": turn["role"], "content": content})
    lines = "\n".join(_line(tool) for tool in scene.tools)
    instructions = _INSTRUCTIONS.format(functions=lines)
    if written[0]["role"] == "system":
        instructions = f"{written.pop(0)['content']}\n\n{instructions}"
    return [{"role": "system", "content": instructions}, *written]


def calls_as_text(calls: Sequence[tuple[str, dict[str, Json]]]) -> str:
    """Calls as the model writes them."""
    return json.dumps(answer_of(calls), ensure_ascii=False)


def answer_of(calls: Sequence[tuple[str, dict[str, Json]]]) -> dict[str, Json]:
    """The object that holds the calls."""
    return {"tool_calls": [{"name": name, "arguments": given} for name, given in calls]}


def _line(tool: FunctionTool) -> str:
    """A function as the server writes it."""
    shown = {"name": tool.name, "description": tool.description or ""}
    return json.dumps({**shown, "parameters": tool.parameters}, ensure_ascii=False)
