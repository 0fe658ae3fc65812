"""The text of an answer, as it comes -> reasoning, content and tool calls.

What is read, in the terms of ``formats``::

    begin REASONING end  \\n\\n  CONTENT  begin opening NAME middle ARGUMENTS closing ...

Pieces are slices of the answer and never overlap. What lies between them is in no piece: marks,
white space at both ends of the reasoning, up to two newlines after it, and white space between
content and calls. Other white space is content.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from app.answer.formats import NEWLINES_BEFORE_ANSWER, ChatFormat
from app.answer.pieces import CallArguments, CallEnd, CallStart, Content, Reasoning, TextPiece
from app.answer.prompt import Opening

_BLANKS = " \t\r\n"


class AnswerReader:
    """Takes one answer apart; text may come in chunks of any size, the pieces join to the same.

    It holds back what may yet turn out to be a mark, or white space before one.
    """

    def __init__(
        self,
        format: ChatFormat,
        *,
        opening: Opening = "closed",
        tools: Collection[str] = (),
        content_first: bool = True,
    ) -> None:
        """``opening``: whether the answer begins before, inside or after the reasoning.

        ``tools``: names of the functions that may be called; with none everything is content.
        ``content_first``: calls may follow content, in formats that know it. False where the
        content has a constraint of its own (``plan.answer``): it is content or calls.
        """
        self._tools = format.tools
        self._reasoning = format.reasoning
        self._leads = format.tools.leads(tools) if tools else ()
        self._trigger = format.tools.trigger if tools and content_first else None
        self._buffer = ""
        self._position = 0
        """Where the buffer begins in the answer."""
        self._pieces: list[TextPiece] = []
        self._newlines = 0
        self._reasoned = False
        self._index = 0
        self._call_start = 0
        self.in_calls = False
        """Whether the calls have begun: no content comes any more."""
        self._value = _ValueEnd()
        self._step: Callable[[], bool] = self._read_answer_start
        if format.reasoning is not None and opening != "closed":
            self._step = self._read_reasoning if opening == "open" else self._read_begin

    def push(self, text: str) -> list[TextPiece]:
        """What ``text`` adds."""
        self._buffer += text
        while self._step():
            pass
        pieces, self._pieces = self._pieces, []
        return pieces

    @property
    def content_next(self) -> int | None:
        """Where content begins that is sure to come next, though nothing of it has come."""
        sure = self._step == self._read_content and self._trigger is None and not self._buffer
        return self._position if sure else None

    def finish(self) -> list[TextPiece]:
        """What was held back: half a mark is text after all, or belongs to a call cut off."""
        text, start = self._take(len(self._buffer))
        if not text or self.in_calls or self._step == self._read_newlines:
            return []
        if self._step == self._read_reasoning:
            return [Reasoning(text, start)]
        return [Content(text, start)]

    # Each step reads from the buffer and says whether there may be more to do.

    def _read_begin(self) -> bool:
        assert self._reasoning is not None
        for count in range(NEWLINES_BEFORE_ANSWER + 1):
            mark = "\n" * count + self._reasoning.begin
            if self._buffer.startswith(mark):
                self._take(len(mark))
                self._step = self._read_reasoning
                return True
            if mark.startswith(self._buffer):
                return False
        self._step = self._read_answer_start
        return True

    def _read_reasoning(self) -> bool:
        assert self._reasoning is not None
        if not self._reasoned:
            self._take(len(self._buffer) - len(self._buffer.lstrip(_BLANKS)))
        end = self._reasoning.end
        if self._take_text(end, Reasoning):
            self._take(len(end))
            self._step = self._read_newlines
            return True
        return False

    def _read_newlines(self) -> bool:
        if self._newlines < NEWLINES_BEFORE_ANSWER:
            if not self._buffer:
                return False
            if self._buffer[0] == "\n":
                self._take(1)
                self._newlines += 1
                return True
        self._step = self._read_answer_start
        return True

    def _read_answer_start(self) -> bool:
        if any(self._buffer.startswith(lead) for lead in self._leads):
            self._begin_calls()
        elif any(lead.startswith(self._buffer) for lead in self._leads):
            return False
        else:
            self._step = self._read_content
        return True

    def _read_content(self) -> bool:
        if self._trigger is None:
            text, start = self._take(len(self._buffer))
            if text:
                self._pieces.append(Content(text, start))
            return False
        if self._take_text(self._trigger, Content):
            self._begin_calls()
            return True
        return False

    def _begin_calls(self) -> None:
        self.in_calls = True
        self._call_start = self._position
        self._step = self._read_calls_begin

    def _read_calls_begin(self) -> bool:
        return self._expect(self._tools.begin + self._tools.opening, self._read_name)

    def _read_name(self) -> bool:
        head, found, _ = self._buffer.partition(self._tools.middle)
        if not found:
            return False
        self._take(len(head) + len(found))
        name = head.partition(self._tools.id_mark)[0] if self._tools.id_mark else head
        self._pieces.append(CallStart(self._index, name, self._call_start, self._position))
        self._value = _ValueEnd()
        self._step = self._read_arguments
        return True

    def _read_arguments(self) -> bool:
        end = self._value.find(self._buffer)
        text, start = self._take(len(self._buffer) if end is None else end)
        if text:
            self._pieces.append(CallArguments(self._index, text, start))
        if end is None:
            return False
        self._step = self._read_closing
        return True

    def _read_closing(self) -> bool:
        start = self._position
        if not self._expect(self._tools.closing, self._read_between):
            return False
        if self._step == self._read_between:
            self._pieces.append(CallEnd(self._index, start, self._position))
            self._index += 1
        return True

    def _read_between(self) -> bool:
        self._call_start = self._position
        if not self._buffer:
            return False
        return self._expect(self._tools.separator + self._tools.opening, self._read_name)

    def _read_rest(self) -> bool:
        """After the calls: the mark at their end."""
        self._take(len(self._buffer))
        return False

    def _expect(self, mark: str, then: Callable[[], bool]) -> bool:
        """Take ``mark`` off; False while it may still come. What is no mark is passed over."""
        if self._buffer.startswith(mark):
            self._take(len(mark))
            self._step = then
            return True
        if mark.startswith(self._buffer):
            return False
        self._step = self._read_rest
        return True

    def _take_text(self, mark: str, kind: type[Content] | type[Reasoning]) -> bool:
        """Take text up to ``mark``, and the white space before it; whether the mark is there."""
        at = self._buffer.find(mark)
        until = self._beginning_of(mark) if at < 0 else at
        kept = len(self._buffer[:until].rstrip(_BLANKS))
        text, start = self._take(kept)
        if text:
            self._reasoned = True
            self._pieces.append(kind(text, start))
        if at >= 0:
            self._take(at - kept)
        return at >= 0

    def _beginning_of(self, mark: str) -> int:
        """Where the buffer's end begins that may become ``mark``."""
        size = len(self._buffer)
        lengths = range(min(len(mark) - 1, size), 0, -1)
        return size - next((n for n in lengths if self._buffer.endswith(mark[:n])), 0)

    def _take(self, count: int) -> tuple[str, int]:
        """The buffer's first characters, and where they begin in the answer."""
        text, start = self._buffer[:count], self._position
        self._buffer = self._buffer[count:]
        self._position += count
        return text, start


class _ValueEnd:
    """Finds where a JSON object or array ends, in chunks of any size."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def find(self, text: str) -> int | None:
        """The index after the value's last bracket; None if ``text`` does not hold it."""
        for index, character in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif self._in_string:
                self._escaped = character == "\\"
                self._in_string = character != '"'
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    return index + 1
        return None
