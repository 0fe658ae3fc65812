"""Measures the calls that the demo model makes.

Held-out words, greedy, nothing constrained, as in `evaluate`. *Free*: the model decides whether to
call a function, and which. *Required*: it continues the start of a call, as with
`tool_choice: "required"`, from the function's name on.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.core.progress import reporting
from app.terminal.screen import open_screen
from tools.demo_model.corpus import Example, ToolKind, examples
from tools.demo_model.evaluate import Demo
from tools.demo_model.records import Json, agreeing, fields

CALL: Final = '{"tool_calls": [{"name": "'
"""Start of every call."""
_KINDS: Final[tuple[ToolKind, ...]] = ("call", "form", "result", "no_call")


@dataclass(slots=True)
class ToolScore:
    """Counts over examples; the counts of calls are zero if text is the right answer."""

    examples: int = 0
    decided: int = 0
    """Examples with text if text is right, or with a call that parses if a call is right."""
    functions: int = 0
    """Calls of the right functions, in order."""
    exact: int = 0
    """Answers that are right to the last character."""
    fields: int = 0
    right: int = 0
    """Right fields of arguments, regardless of the rest of the answer."""
    required_functions: int = 0
    required_exact: int = 0
    required_right: int = 0


def score_tools(demo: Demo, asked: Sequence[Example]) -> ToolScore:
    """Score of answers to examples with functions in the prompt."""
    score = ToolScore(examples=len(asked))
    prompts = [demo.prompt(example.messages) for example in asked]
    for example, said in zip(asked, demo.complete(prompts), strict=True):
        expected, found = _calls(example.text), _calls(said)
        score.decided += (expected is None) == (found is None) and not _broken(said, found)
        score.exact += said == example.text
        if expected is not None:
            score.functions += _names(expected) == _names(found)
            wanted = _arguments(expected)
            score.fields += len(wanted)
            score.right += agreeing(wanted, _arguments(found))
    calling = [pair for pair in zip(asked, prompts, strict=True) if pair[0].answer is not None]
    forced = demo.complete([prompt + CALL for _, prompt in calling])
    for (example, _), rest in zip(calling, forced, strict=True):
        expected, found = _calls(example.text), _calls(CALL + rest)
        score.required_functions += _names(expected) == _names(found)
        score.required_exact += CALL + rest == example.text
        score.required_right += agreeing(_arguments(expected), _arguments(found))
    return score


def _calls(said: str) -> list[Json] | None:
    """The calls in an answer; None for text, and for a call that does not parse."""
    try:
        calls = json.loads(said)["tool_calls"]
        [(each["name"], each["arguments"].keys()) for each in calls]
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return list(calls)


def _broken(said: str, found: list[Json] | None) -> bool:
    return found is None and said.startswith("{")


def _names(calls: list[Json] | None) -> list[str]:
    return [each["name"] for each in calls or ()]


def _arguments(calls: list[Json] | None) -> dict[str, Json]:
    return fields([each["arguments"] for each in calls or ()])


def print_table(demo: Demo, per_kind: int, seed: int) -> None:
    """Prints one line for each kind of conversation with functions."""
    print("kind     asked  free: decided function  exact  arguments   required: function  exact  "
          "arguments")  # fmt: skip
    for kind in reporting(open_screen(sys.stderr).progress, "evaluating", _KINDS, unit="kinds"):
        asked = list(examples(kind, per_kind, seed, split="held_out"))
        score = score_tools(demo, asked)
        line = f"{kind:8} {score.examples:5} {score.decided / score.examples:14.1%}"
        free = f"{score.exact / score.examples:6.1%}"
        if score.fields:
            functions, forced = score.functions, score.required_functions
            line += (
                f" {functions / score.examples:8.1%} {free} {score.right / score.fields:6.1%} of "
                f"{score.fields:3}  {forced / score.examples:17.1%} "
                f"{score.required_exact / score.examples:6.1%} "
                f"{score.required_right / score.fields:6.1%}"
            )
        else:
            line += f" {'':8} {free}"
        print(line, flush=True)
