from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import warnings
from collections.abc import Iterator

import pytest

from app.telemetry.exchange import Exchange, current_exchange
from app.telemetry.logs import JsonFormatter, TextFormatter, configure_logging

SECRET = "sEcReT"
"""A constant, because tracebacks show source lines, and would show a literal in them."""


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_record_is_one_json_object_with_what_extra_gave(root: logging.Logger) -> None:
    stream = io.StringIO()
    configure_logging(stream, level="info", log_format="json")
    logging.getLogger("a.b").info("line\nbreak %d", 7, extra={"request_id": "r1", "status": 200})
    logging.getLogger("a.b").debug("unseen")
    (line,) = stream.getvalue().splitlines()
    entry = json.loads(line)
    assert entry.pop("time").endswith("+00:00")
    assert entry == {
        "level": "info",
        "logger": "a.b",
        "message": "line\nbreak 7",
        "request_id": "r1",
        "status": 200,
    }


def failed(message: str) -> logging.LogRecord:
    """A log record of an exception and its cause, which both quote a request."""
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as cause:
            raise ValueError(SECRET) from cause
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
        return logging.LogRecord("a", logging.ERROR, "f", 1, message, (error,), info)


FORMATTERS = (JsonFormatter, TextFormatter)


@pytest.mark.parametrize("formatter", FORMATTERS)
def test_a_log_shows_the_place_and_classes_of_an_exception_but_not_its_message(
    formatter: type[JsonFormatter] | type[TextFormatter],
) -> None:
    line = formatter().format(failed("it failed: %s"))
    assert SECRET not in line
    assert "it failed: ValueError" in line
    assert line.index("builtins.KeyError") < line.index("builtins.ValueError")
    assert "in failed" in line


@pytest.mark.parametrize("formatter", FORMATTERS)
def test_content_is_logged_up_to_the_configured_length(
    formatter: type[JsonFormatter] | type[TextFormatter],
) -> None:
    record = failed("it failed")
    record.args = ()
    record.content = {"request": "q" * 500}
    line = formatter(content=100).format(record)
    assert SECRET in line
    assert "q" * 100 in line
    assert "q" * 101 not in line
    assert "qq" not in formatter().format(record)


async def test_a_task_that_fails_unseen_shows_its_exceptions_class_alone(
    root: logging.Logger,
) -> None:
    stream = io.StringIO()
    configure_logging(stream, level="info", log_format="json")

    async def fail() -> None:
        raise ValueError(SECRET)

    task = asyncio.create_task(fail())
    await asyncio.wait({task})
    del task
    gc.collect()
    (entry,) = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (entry["logger"], entry["message"]) == ("asyncio", "Task exception was never retrieved")
    assert entry["exception"].endswith("ValueError")
    assert SECRET not in stream.getvalue()


def test_what_is_logged_in_a_request_has_its_ids(root: logging.Logger) -> None:
    stream = io.StringIO()
    configure_logging(stream, level="info", log_format="json")
    scope = {"state": {"request_id": "r7"}}
    exchange = Exchange(scope, "GET", "/health", trace_id="ab" * 16, span_id="cd" * 8)
    token = current_exchange.set(exchange)
    logging.getLogger("a").info("inside")
    current_exchange.reset(token)
    logging.getLogger("a").info("outside")
    inside, outside = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (inside["request_id"], inside["trace_id"]) == ("r7", "ab" * 16)
    assert "request_id" not in outside


def test_warnings_of_libraries_are_log_lines_too(root: logging.Logger) -> None:
    stream = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        configure_logging(stream, level="info", log_format="json")
        warnings.warn("careful", UserWarning, stacklevel=1)
        logging.captureWarnings(False)
    assert json.loads(stream.getvalue())["logger"] == "py.warnings"


def test_text_is_an_option(root: logging.Logger) -> None:
    stream = io.StringIO()
    configure_logging(stream, level="warning", log_format="text")
    logging.getLogger("a").warning("careful", extra={"status": 200})
    assert stream.getvalue().endswith("WARNING a: careful status=200\n")
