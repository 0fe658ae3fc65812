"""How a model marks its reasoning and its tool calls."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """The spelling of tool calls::

        begin  opening NAME middle ARGUMENTS closing  separator  opening NAME ...  end

    ``NAME`` is written as it is and ``ARGUMENTS`` as JSON.
    """

    opening: str
    middle: str
    closing: str
    begin: str = ""
    separator: str = ""
    end: str = ""
    trigger: str | None = None
    """Calls may follow text, and this is what text cannot hold.

    None: an answer is either text or calls.
    """
    parallel: bool = True
    """Whether an answer may have several calls."""
    native: bool = True
    """Whether the chat template shows tools and calls; else ``prompts`` writes them out."""
    id_length: int | None = None
    """Length of call ids, letters and digits alone, where the chat template asks for one."""


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """What stands before and after the reasoning."""

    begin: str
    end: str


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """What is known of a model's chat template."""

    tools: ToolFormat
    reasoning: ReasoningFormat | None = None
    variables: frozenset[str] = frozenset()
    """The variables that the template looks at."""
    has_template: bool = True
