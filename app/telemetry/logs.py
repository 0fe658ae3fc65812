"""Logs as one JSON object on each line, without a word of what clients send or are sent.

Exceptions may quote a request, so by default a log shows their classes and where they came from,
not their messages; the same goes for what is logged as ``extra={"content": ...}``.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from app.telemetry.exchange import current_exchange

LogFormat = Literal["auto", "json", "text"]

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}
"""Attributes that every record has; the others came through ``extra``."""
_DEEPEST_CHAIN = 8
_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode


class _Formatter(logging.Formatter):
    """The common part of both formats: the fields of the request, and the parts left out."""

    layout: str | None = None

    def __init__(self, *, content: int = 0) -> None:
        """``content``: characters of content that one entry may show; 0 leaves it out."""
        super().__init__(self.layout)
        self._content = content

    def _message(self, record: logging.LogRecord) -> str:
        if self._content:
            return record.getMessage()
        arguments = record.args
        if isinstance(arguments, tuple):
            arguments = tuple(map(_without_message, arguments))
        elif isinstance(arguments, Mapping):
            arguments = {key: _without_message(value) for key, value in arguments.items()}
        message = str(record.msg) if not arguments else str(record.msg) % arguments
        if record.name == "asyncio":  # the further lines quote a task with its exception
            message = message.partition("\n")[0]
        return message

    def _fields(self, record: logging.LogRecord) -> dict[str, object]:
        fields: dict[str, object] = {}
        exchange = current_exchange.get()
        if exchange is not None:
            fields["request_id"] = exchange.request_id
            if exchange.trace_id:
                fields |= {"trace_id": exchange.trace_id, "span_id": exchange.span_id}
        fields.update((key, value) for key, value in vars(record).items() if key not in _STANDARD)
        content = fields.pop("content", None)
        if content is not None and self._content:
            fields["content"] = _bounded(content, self._content)
        return fields

    def formatException(self, info: Any) -> str:  # noqa: N802
        if self._content:
            return super().formatException(info)[-self._content :]
        return "\n".join(_origins(info[1]))


class JsonFormatter(_Formatter):
    """JSON of time (UTC), level, logger, message, ``extra`` fields and origin of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._message(record),
        }
        entry |= self._fields(record)
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return _encode(entry)


class TextFormatter(_Formatter):
    """Readable text; ``extra`` fields follow the message as ``name=value``."""

    layout = "%(asctime)s %(levelname)s %(name)s: %(message)s"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        fields = self._fields(record)
        record.message = " ".join(
            [self._message(record), *(f"{key}={value}" for key, value in fields.items())]
        )
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        record.exc_text = None  # another handler's, which may show more
        return super().format(record)


def configure_logging(
    stream: TextIO, *, level: str, log_format: LogFormat, content: int = 0
) -> None:
    """Send the whole program's log to ``stream``; replaces the root logger's handlers.

    ``log_format`` ``auto`` is text where ``stream`` is a terminal, else JSON.
    ``content``: characters of what clients sent or were sent that an entry may show. What neither
    format shows (source line, thread, process) is not looked up, see "Optimization" in Python's
    logging HOWTO: an overload has hundreds of lines a second.
    """
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = logging.StreamHandler(stream)
    if log_format == "auto":
        log_format = "text" if stream.isatty() else "json"
    formatter = JsonFormatter if log_format == "json" else TextFormatter
    handler.setFormatter(formatter(content=content))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(True)


def _without_message(value: object) -> object:
    return type(value).__name__ if isinstance(value, BaseException) else value


def _origins(error: BaseException | None) -> Iterator[str]:
    """The frames and the class of an exception and of those that led to it, the first one first."""
    chain: list[BaseException] = []
    while error is not None and error not in chain and len(chain) < _DEEPEST_CHAIN:
        chain.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    for each in reversed(chain):
        yield "".join(traceback.format_tb(each.__traceback__)).rstrip("\n")
        yield f"{type(each).__module__}.{type(each).__qualname__}"


def _bounded(content: object, longest: int) -> object:
    if isinstance(content, Mapping):
        return {key: _bounded(value, longest) for key, value in content.items()}
    return str(content)[:longest]
