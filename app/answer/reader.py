"""The text of an answer, as it comes -> reasoning, content and tool calls.

What is read::

    begin REASONING end  \\n\\n then   begin CONTENT end   CALLS

The format parses the calls. Pieces never overlap; content and reasoning are slices of the answer.
Text between pieces is dropped: marks, white space at both ends of the reasoning, up to two newlines
after it, and white space between content and calls. Other white space is content.
"""

from __future__ import annotations

from collections.abc import Callable

from app.answer.formats.calls import CallsReader, ToolFormat
from app.answer.formats.chat import ChatFormat
from app.answer.formats.reasoning import NEWLINES_BEFORE_ANSWER
from app.answer.incoming import Incoming, Utf8Decoder
from app.answer.pieces import CallEnd, CallStart, Content, Reasoning, TextPiece
from app.answer.prompt import Opening
from app.answer.tools import ToolUse

_BLANKS = " \t\r\n"
_SLICE = 1 << 14


class AnswerReader:
    """Parses one answer in chunks of any size; the joined pieces do not depend on the chunks.

    It holds back text that may still become a mark, or white space before one.
    """

    def __init__(
        self,
        format: ChatFormat,
        *,
        opening: Opening = "closed",
        use: ToolUse | None = None,
        content_first: bool = True,
    ) -> None:
        """``opening``: whether the answer begins before, inside or after the reasoning.

        ``use``: the functions that may be called; None: everything is content.
        ``content_first``: calls may follow content, if the format allows it. False if the content
        has a constraint (``language.answer``): the answer is content or calls.
        """
        self._tools = format.tools
        self._use = use
        self._reasoning = format.reasoning
        self._around = format.content
        self._closing = format.content.end
        """The mark behind the content."""
        self._content_first = content_first
        self._nothing = ""
        """Empty content with its marks, which precedes calls if the content is constrained."""
        if format.content.always and use is not None and not content_first:
            self._nothing = format.content.begin + format.content.end
        self._leads = () if use is None else format.tools.leads(use.names)
        self._triggers: dict[str, ToolFormat] = {}
        """Beginnings of calls behind content, and the formats of these calls."""
        if use is not None and content_first and (trigger := format.tools.trigger) is not None:
            self._triggers[trigger] = format.tools
            for other in format.tools.also:
                self._triggers |= dict.fromkeys(other.heads(), other)
        self._incoming = Incoming(0)
        self._pieces: list[TextPiece] = []
        self._newlines = 0
        self._reasoned = False
        """Whether the current reasoning has any text yet."""
        self._calls: CallsReader | None = None
        """Reader of the calls, once they have begun: no content follows."""
        self._step: Callable[[AnswerReader], bool] = AnswerReader._read_answer_start
        if format.reasoning is not None and opening != "closed":
            self._step = (
                AnswerReader._read_reasoning if opening == "open" else AnswerReader._read_begin
            )

    def push(self, text: str) -> list[TextPiece]:
        """The pieces that ``text`` adds. Linear: of a prefill, one slice is in the buffer."""
        if len(text) > _SLICE:
            parts = (text[start : start + _SLICE] for start in range(0, len(text), _SLICE))
            return [piece for part in parts for piece in self.push(part)]
        if self._calls is not None:
            return [*self._calls.push(text)]
        self._incoming.push(text)
        while self._step(self):
            pass
        pieces, self._pieces = self._pieces, []
        return pieces

    @property
    def in_calls(self) -> bool:
        return self._calls is not None

    @property
    def content_next(self) -> int | None:
        """Position of content that certainly comes next and has not begun; else None."""
        sure = self._step == AnswerReader._read_content and not self._triggers
        return self._incoming.position if sure and not self._incoming.text else None

    def finish(self, *, cut: bool = False) -> list[TextPiece]:
        """The held-back text: a partial mark is text after all, unless the answer was cut."""
        if not self._nothing:
            return self._rest(cut)
        self._nothing = ""  # no calls come any more
        return [*self.push(""), *self._rest(cut)]

    def _rest(self, cut: bool) -> list[TextPiece]:
        text, start = self._incoming.take_all()
        between = (AnswerReader._read_newlines, AnswerReader._read_then, AnswerReader._read_rest)
        if not text or self._step in between or (cut and text.strip(_BLANKS)):
            return []
        begins = (self._around.begin, *self._around.other_begins) if self._around.begin else ()
        if self._step != AnswerReader._read_content and any(
            each.startswith(text) for each in begins
        ):
            return []
        if self._step == AnswerReader._read_reasoning:
            return [Reasoning(text, start)]
        if self._step == AnswerReader._read_content and text == self._closing:
            return []
        return [Content(text, start)]

    # Each step reads from the buffer and returns whether there may be more to do. ``_step`` is not
    # a bound method: that reference cycle would keep the reader alive after its request.

    def _read_begin(self) -> bool:
        assert self._reasoning is not None
        for count in range(NEWLINES_BEFORE_ANSWER + 1):
            mark = "\n" * count + self._reasoning.begin.lstrip("\n")
            begins = self._incoming.begins(mark)
            if begins:
                self._incoming.take(len(mark))
                self._step, self._reasoned, self._newlines = AnswerReader._read_reasoning, False, 0
                return True
            if begins is None:
                return False
        self._step = AnswerReader._read_unreasoned
        return True

    def _read_unreasoned(self) -> bool:
        assert self._reasoning is not None
        return self._pass_over(self._reasoning.unreasoned, AnswerReader._read_answer_start)

    def _read_reasoning(self) -> bool:
        assert self._reasoning is not None
        if not self._reasoned:
            self._incoming.take(len(self._incoming.text) - len(self._incoming.text.lstrip(_BLANKS)))
        until, found = self._incoming.before(self._reasoning.end)
        blanks = self._take_text(until, Reasoning)
        if found:
            self._incoming.take(blanks + len(self._reasoning.end))
            self._step = AnswerReader._read_newlines
        return found

    def _read_newlines(self) -> bool:
        if self._newlines < NEWLINES_BEFORE_ANSWER:
            if not self._incoming.text:
                return False
            if self._incoming.text[0] == "\n":
                self._incoming.take(1)
                self._newlines += 1
                return True
        self._step = AnswerReader._read_then
        return True

    def _read_then(self) -> bool:
        assert self._reasoning is not None
        self._closing = self._reasoning.closing or self._closing
        again = (
            AnswerReader._read_begin
            if self._reasoning.repeated
            else AnswerReader._read_answer_start
        )
        return self._pass_over(self._reasoning.then, again)

    def _read_answer_start(self) -> bool:
        if self._nothing:
            begins = [self._incoming.begins(self._nothing + lead) for lead in self._leads]
            if True in begins:
                self._incoming.take(len(self._nothing))
                return self._begin_calls(self._tools)
            if None in begins:
                return False
        inside = AnswerReader._read_content if self._tools.native else AnswerReader._read_answer
        others = self._around.other_begins if self._content_first else ()
        marks = dict.fromkeys((self._around.begin, *others), inside)
        marks[self._around.preamble] = AnswerReader._read_preamble
        begins = [self._incoming.begins(mark) for mark in marks if mark]
        for mark, step in marks.items():
            if mark and self._incoming.begins(mark):
                return self._pass_over(mark, step)
        return None not in begins and self._read_answer()

    def _read_answer(self) -> bool:
        """Calls or content; if the template does not know the calls, they are inside content."""
        begins = [self._incoming.begins(lead) for lead in self._leads]
        if True in begins:
            return self._begin_calls(self._tools)
        self._step = AnswerReader._read_answer if None in begins else AnswerReader._read_content
        return None not in begins

    def _read_preamble(self) -> bool:
        end = self._around.preamble_end
        return self._take_until(end) and self._pass_over(end, AnswerReader._read_begin)

    def _read_content(self) -> bool:
        if self._closing:
            return self._read_closed_content()
        if not self._triggers:
            self._take_content(len(self._incoming.text))
            return False
        ends = [(*self._incoming.before(mark), mark) for mark in self._triggers]
        until, found, mark = min(ends, key=lambda end: (end[0], not end[1]))
        blanks = self._take_text(until, Content)
        if not found:
            return False
        assert self._use is not None
        rest, leads = self._incoming.text[blanks:], self._triggers[mark].leads(self._use.names)
        if rest.startswith(leads):
            self._incoming.take(blanks)
            return self._begin_calls(self._triggers[mark])
        if any(lead.startswith(rest) for lead in leads):
            return False
        self._take_content(blanks + len(mark))  # of a function that does not exist
        return True

    def _read_closed_content(self) -> bool:
        """Free text cannot contain its end mark; other content ends at the last one."""
        if self._content_first:
            return self._take_until(self._closing) and self._pass_over(
                self._closing, AnswerReader._read_rest
            )
        kept = self._incoming.text[-len(self._closing) :]
        while not self._closing.startswith(kept):
            kept = kept[1:]
        self._take_content(len(self._incoming.text) - len(kept))
        return False

    def _read_rest(self) -> bool:
        """Behind the content: calls, or nothing."""
        begins = [self._incoming.begins(lead) for lead in self._leads]
        if self._triggers and True in begins:
            return self._begin_calls(self._tools)
        if None not in begins:
            self._incoming.take_all()
        return False

    def _pass_over(self, mark: str, then: Callable[[AnswerReader], bool]) -> bool:
        """Skip ``mark`` if it comes next; returns whether that is decided."""
        begins = self._incoming.begins(mark)
        if begins is None:
            return False
        if begins:
            self._incoming.take(len(mark))
        self._step = then
        return True

    def _take_until(self, mark: str) -> bool:
        """Read content up to ``mark``; whether ``mark`` was found."""
        until, found = self._incoming.before(mark)
        self._take_content(until)
        return found

    def _take_content(self, count: int) -> None:
        text, start = self._incoming.take(count)
        if text:
            self._pieces.append(Content(text, start))

    def _begin_calls(self, format: ToolFormat) -> bool:
        assert self._use is not None
        text, start = self._incoming.take_all()
        self._calls = format.reader(self._use, start)
        self._pieces += self._calls.push(text)
        return False

    def _take_text(self, until: int, kind: type[Content] | type[Reasoning]) -> int:
        """Take ``until`` characters but the white space at their end; returns its length."""
        kept = len(self._incoming.text[:until].rstrip(_BLANKS))
        text, start = self._incoming.take(kept)
        if text:
            self._reasoned = True
            self._pieces.append(kind(text, start))
        return until - kept


class AnswerLocator:
    """See ``JsonLocator``: the content where that is a value, and the arguments of each call."""

    def __init__(self, reader: AnswerReader, *, content: bool) -> None:
        """``content``: whether the content is a value."""
        self._reader = reader
        self._content = content
        self._decoder = Utf8Decoder()
        self._starts: list[int] = []
        self.outside = 0

    def push(self, data: bytes) -> None:
        bytes_before = self._decoder.bytes_before
        for piece in self._reader.push(self._decoder.decode(data)):
            match piece:
                case Content() if self._content:
                    self._content = False
                    self._starts.append(bytes_before(piece.start))
                case CallStart(in_json=True):  # its end is where the arguments begin
                    self._starts.append(bytes_before(piece.end))
                case Reasoning() | CallEnd():
                    self.outside = bytes_before(piece.end)
        content = self._reader.content_next if self._content else None
        if content is not None:
            self._content = False
            self._starts.append(bytes_before(content))

    def next_value(self, start: int) -> int | None:
        return next((each for each in self._starts if each >= start), None)
