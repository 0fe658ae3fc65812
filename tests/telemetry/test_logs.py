from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from app.telemetry.logs import JsonFormatter, configure_logging


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
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


def test_an_exception_brings_its_traceback() -> None:
    try:
        raise ValueError("why")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("a", logging.ERROR, "f", 1, "failed", None, info)
    assert "ValueError: why" in json.loads(JsonFormatter().format(record))["exception"]


def test_text_is_an_option(root: logging.Logger) -> None:
    stream = io.StringIO()
    configure_logging(stream, level="warning", log_format="text")
    logging.getLogger("a").warning("careful")
    assert stream.getvalue().endswith("WARNING a: careful\n")
