"""Warnings about answers that were not held to all of their schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.answer.pieces import CallArguments, CallStart, Content, Piece
from app.answer.tools import ToolUse, objects_of, subject_of
from app.core.constraint import ConstraintSpec, Relaxation, Written
from app.core.specs import JsonSchema


@dataclass(slots=True)
class Warned:
    """One relaxation, and whether the answers satisfy the keyword anyway."""

    relaxation: Relaxation
    function: str | None
    """Function whose parameters are relaxed; None: the content is."""
    satisfied: bool | None = None
    """Whether the answer satisfies the keyword anyway; None: unknown, or it has no such value."""


class RelaxedAnswers:
    """Collects the parts of one request's answers that were written under a relaxed schema."""

    def __init__(
        self,
        relaxed: Sequence[Relaxation],
        content: ConstraintSpec | None,
        tools: ToolUse | None,
        prefill: str = "",
    ) -> None:
        """``prefill``: the client's prefill of the content."""
        functions = {} if tools is None else {subject_of(each.name): each for each in tools.tools}
        self.warnings: list[Warned] = []
        self._schemas: dict[str | None, object] = {}
        """Schemas by function name; None: the content."""
        for each in relaxed:
            tool = functions.get(each.subject)
            name = None if tool is None else tool.name
            self.warnings.append(Warned(each, name))
            if tool is not None:
                self._schemas[name] = objects_of(tool.parameters)
            elif isinstance(content, JsonSchema):
                self._schemas[name] = content.schema
        self._prefill = prefill
        self._contents: dict[int, list[str]] = {}
        self._calls: dict[tuple[int, int], tuple[str, list[str]]] = {}

    def read(self, index: int, pieces: Sequence[Piece]) -> None:
        """Collect the text of ``pieces``, added to the choice ``index``."""
        for piece in pieces:
            match piece:
                case Content(text=text) if text and None in self._schemas:
                    self._contents.setdefault(index, [self._prefill]).append(text)
                case CallStart(index=number, name=name) if name in self._schemas:
                    self._calls[index, number] = name, []
                case CallArguments(index=number, text=text):
                    if (index, number) in self._calls:
                        self._calls[index, number][1].append(text)

    def written(self) -> Iterator[tuple[list[Warned], Written]]:
        """The texts to check, with the warnings that they decide."""
        for name, schema in self._schemas.items():
            texts = ["".join(parts) for other, parts in self._calls.values() if other == name]
            if name is None:
                texts = ["".join(parts) for parts in self._contents.values()]
            warned = [each for each in self.warnings if each.function == name]
            if texts:
                yield warned, Written(schema, tuple(w.relaxation for w in warned), tuple(texts))
