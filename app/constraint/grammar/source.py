"""The text of a grammar, and complaints that point into it."""

from __future__ import annotations

from dataclasses import dataclass

from app.core.errors import InvalidSchema, UnsupportedSchema

_WIDTH = 72
"""Characters of a line that a complaint shows at most."""


@dataclass(frozen=True, slots=True)
class Source:
    """A grammar's text. Positions are offsets into it, in characters."""

    text: str

    def invalid(self, reason: str, position: int) -> InvalidSchema:
        """An error that quotes the line at ``position`` with a mark under it."""
        line, column = self._place(position)
        return InvalidSchema(
            f"{reason}:\n{self._excerpt(position)}\n", pointer=self.line_and_column(position)
        ).at(line=line, column=column)

    def unsupported(self, what: str, reason: str, position: int) -> UnsupportedSchema:
        line, column = self._place(position)
        return UnsupportedSchema(
            what, self.line_and_column(position), f"{reason}:\n{self._excerpt(position)}"
        ).at(line=line, column=column)

    def line_and_column(self, position: int) -> str:
        """``line 3, column 7``, both counted from 1."""
        line, column = self._place(position)
        return f"line {line}, column {column}"

    def _place(self, position: int) -> tuple[int, int]:
        line = self.text.count("\n", 0, position) + 1
        return line, position - self._line_start(position) + 1

    def _line_start(self, position: int) -> int:
        return self.text.rfind("\n", 0, position) + 1

    def _excerpt(self, position: int) -> str:
        start = self._line_start(position)
        end = self.text.find("\n", start)
        end = len(self.text) if end < 0 else end
        first = max(start, min(position - _WIDTH // 2, end - _WIDTH))
        line = self.text[first : min(end, first + _WIDTH)]
        shown = "".join(character if character.isprintable() else " " for character in line)
        return f"    {shown}\n    {' ' * (position - first)}^"
