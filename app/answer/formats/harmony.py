"""gpt-oss: an answer is several messages, each with a channel and perhaps a recipient.

Source: https://cookbook.openai.com/articles/openai-harmony. A call is the last message::

    <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>ARGUMENTS

The recipient may stand before the channel, as the chat template has it, and the word json without
its mark. What ends a call, ``<|call|>``, is an end of sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from app.answer.formats.calls import CallIds, CallPiece, ToolFormat
from app.answer.formats.reasoning import marks_in
from app.answer.incoming import Incoming
from app.answer.pieces import CallArguments, CallEnd, CallStart
from app.answer.tools import FunctionTool, ToolUse, arguments_of
from app.core.composite import Either, FixedText, Part, Series
from app.core.json_scan import JsonScan

_CHANNEL = "<|channel|>commentary"
_TO = " to=functions."
_HEADS = (_CHANNEL + _TO, _TO)
_TYPES = (" <|constrain|>json", " json", "<|constrain|>json")
_MESSAGE = "<|message|>"


class Harmony:
    """A ``ToolFormat``."""

    name = "harmony"
    trigger: str | None = None
    also: Sequence[ToolFormat] = ()
    in_json = True
    parallel = False
    native = True
    ids: CallIds = CallIds()

    def leads(self, names: Iterable[str]) -> tuple[str, ...]:
        return _HEADS

    def heads(self) -> tuple[str, ...]:
        return _HEADS

    def calls(self, use: ToolUse) -> Part:
        return Either(tuple(_call(tool, use) for tool in use.tools))

    def reader(self, use: ToolUse, start: int) -> HarmonyReader:
        return HarmonyReader(start)

    def marks(self) -> Iterable[str]:
        return marks_in(*_HEADS, *_TYPES, _MESSAGE)


def harmony(template: str) -> Harmony | None:
    return Harmony() if _CHANNEL in template and "functions." in template else None


def _call(tool: FunctionTool, use: ToolUse) -> Part:
    channels = (f"{_CHANNEL}{_TO}{tool.name}", f"{_TO}{tool.name}{_CHANNEL}")
    headers = tuple(
        FixedText(channel + type + _MESSAGE) for channel, type in product(channels, _TYPES)
    )
    return Series((Either(headers), arguments_of(tool, use)))


class HarmonyReader:
    """A ``CallsReader`` for the one call of an answer."""

    def __init__(self, start: int) -> None:
        self._incoming = Incoming(start)
        self._start = start
        self._in_arguments = False
        self._value = JsonScan()
        self._over = False

    def push(self, text: str) -> Sequence[CallPiece]:
        self._incoming.push(text)
        pieces: list[CallPiece] = []
        if not self._in_arguments:
            count, whole = self._incoming.before(_MESSAGE)
            if not whole:
                return pieces
            header, _ = self._incoming.take(count + len(_MESSAGE))
            self._in_arguments = True
            # The name is between the recipient's sign and whatever comes next.
            name = header.partition(_TO)[2].partition("<|")[0].partition(" ")[0]
            pieces.append(CallStart(0, name, self._start, self._incoming.position))
        if self._over:
            return pieces
        end = self._value.end_in(self._incoming.text)
        text, start = self._incoming.take(len(self._incoming.text) if end is None else end)
        if text:
            pieces.append(CallArguments(0, text, start, start + len(text)))
        if end is not None:
            self._over = True
            pieces.append(CallEnd(0, self._incoming.position, self._incoming.position))
        return pieces
