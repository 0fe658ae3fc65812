"""``leapjson batch``: every line is answered once, despite refusals, failures and kills."""

from __future__ import annotations

import csv
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from app.__main__ import main
from app.cli.batch_files import Input, Journal
from app.cli.batch_targets import InProcess, is_retried, seconds_until_retry
from app.cli.specification import UnusableInput
from app.http.edge import InsideAnswer
from app.server.settings import Settings
from tests.servers import start
from tests.wide import many

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "member": {"type": "boolean"},
    },
    "required": ["name", "age", "member"],
    "additionalProperties": False,
}
ANSWER = {"name": 'Ann, of "Ayr"', "age": 7, "member": True}
CHAT = "/v1/chat/completions"


def line(number: int, **body: Any) -> dict[str, Any]:
    named = {"name": "person", "schema": SCHEMA, "strict": True}
    return {
        "custom_id": f"id-{number}",
        "method": "POST",
        "url": CHAT,
        "body": {
            "messages": [{"role": "user", "content": f"number {number}"}],
            "response_format": {"type": "json_schema", "json_schema": named},
            "max_tokens": 60,
            **body,
        },
    }


def write(path: Path, lines: list[Any]) -> Path:
    path.write_text(
        "".join(each if isinstance(each, str) else json.dumps(each) + "\n" for each in lines)
    )
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(each) for each in path.read_text().splitlines()]


class Server:
    """A fake of the API; its script can give a request an error instead of an answer."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.script: Callable[[str, int], tuple[int, Mapping[str, str]] | None] = (
            lambda text, times: None
        )
        """Status and headers by prompt and attempt; status 0: no response, None: an answer."""
        self.answer_to: Callable[[str], str] = lambda text: json.dumps(ANSWER)
        self.usage: Any = None
        self.refusal: Any = {"error": {"message": "as scripted"}}
        self.most = self.under_way = 0
        lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                prompt = body["messages"][0]["content"]
                with lock:
                    server.asked[prompt] += 1
                    times = server.asked[prompt]
                    server.under_way += 1
                    server.most = max(server.most, server.under_way)
                found = server.script(prompt, times)
                if found is not None and found[0] == 0:
                    self.close_connection = True  # without an answer
                elif found is not None:
                    self.reply(found[0], server.refusal, found[1])
                else:
                    message = {"role": "assistant", "content": server.answer_to(prompt)}
                    sure = [{"pointer": "/age", "value": 7, "probability": 0.5}]
                    choice = {"index": 0, "message": message, "confidence": sure}
                    answer = {"id": prompt, "model": body["model"], "choices": [choice]}
                    self.reply(200, {**answer, "usage": server.usage}, {})
                with lock:
                    server.under_way -= 1

            def do_GET(self) -> None:
                self.reply(200, {"data": [{"id": "listed"}]}, {})

            def reply(self, status: int, body: Any, headers: Mapping[str, str]) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                for name, value in {**headers, "content-length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def close(self) -> None:
        """Stops the server: it accepts no more connections."""
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def __exit__(self, *error: object) -> None:
        self.close()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


def batch(server: Server, read_from: Path, output: Path, *options: str) -> int:
    return main(["batch", str(read_from), str(output), "--url", server.url, *options])


def test_every_line_is_asked_once_and_answers_keep_their_ids(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "in.jsonl", [line(number) for number in range(50)])
    output = tmp_path / "out.jsonl"
    assert batch(server, source, output, "--ordered", "--concurrency", "8") == 0
    found = read(output)
    assert [each["custom_id"] for each in found] == [f"id-{number}" for number in range(50)]
    for number, each in enumerate(found):
        assert each["error"] is None
        assert each["response"]["status_code"] == 200
        assert each["response"]["body"]["id"] == f"number {number}"
        assert each["response"]["body"]["model"] == "listed"
    assert set(server.asked.values()) == {1}
    assert server.most <= 8
    assert "50 valid, 0 failed" in capsys.readouterr().err
    assert {each.name for each in tmp_path.iterdir()} == {"in.jsonl", "out.jsonl"}


def test_a_usage_of_another_form_counts_no_tokens(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.usage = {"completion_tokens": "7", "completion_tokens_details": ["3"]}
    source = write(tmp_path / "in.jsonl", [line(0)])
    assert batch(server, source, tmp_path / "out.jsonl") == 0
    assert ", 0 tokens: " in capsys.readouterr().err


def test_refusals_and_lost_connections_are_retried(server: Server, tmp_path: Path) -> None:
    scripts: dict[str, list[tuple[int, Mapping[str, str]]]] = {
        "number 0": [(429, {"retry-after": "0.01"}), (503, {"retry-after": "0.01"})],
        "number 1": [(500, {"retry-after": "0.01"})],
        "number 2": [(0, {})],
        "number 3": [(400, {"x-should-retry": "true", "retry-after": "0.01"})],
    }
    server.script = lambda text, times: dict(enumerate(scripts.get(text, []), 1)).get(times)
    source = write(tmp_path / "in.jsonl", [line(number) for number in range(6)])
    assert batch(server, source, tmp_path / "out.jsonl") == 0
    assert len(read(tmp_path / "out.jsonl")) == 6
    assert [server.asked[f"number {number}"] for number in range(6)] == [3, 2, 2, 2, 1, 1]


def test_failed_lines_are_in_a_separate_file_and_can_be_retried(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {**line(9), "custom_id": "id-0"}
    lines = [
        line(0), "{not JSON}\n", line(1), {**line(2), "method": "GET"}, {**line(3), "url": "/x"},
        {**line(4), "body": None}, line(5, stream=True), "\n", wrong, {**line(6), "custom_id": 6},
        line(7),
    ]  # fmt: skip
    server.script = lambda text, times: (400, {}) if text == "number 7" and times == 1 else None
    source, output = write(tmp_path / "in.jsonl", lines), tmp_path / "out.jsonl"
    assert batch(server, source, output, "--ordered") == 1
    assert [each["custom_id"] for each in read(output)] == ["id-0", "id-1"]
    errors = read(tmp_path / "out.jsonl.errors.jsonl")
    messages = [each["error"]["message"] for each in errors if each["error"]]
    for message, said in zip(
        messages,
        [
            "line 2: not a JSON object",
            "line 4: method must be POST",
            "line 5: url must be one of /v1",
            "line 6: body must be an object",
            "line 7: stream is not supported",
            "line 8: custom_id 'id-0' is used by an earlier line",
            "line 9: custom_id must be",
        ],
        strict=True,
    ):
        assert said in message
    assert errors[-1]["custom_id"] == "id-7"
    assert errors[-1]["response"]["status_code"] == 400
    assert "Run the same command to retry those lines" in capsys.readouterr().err
    assert batch(server, source, output, "--ordered") == 1
    assert [each["custom_id"] for each in read(output)] == ["id-0", "id-1", "id-7"]
    assert len(read(tmp_path / "out.jsonl.errors.jsonl")) == 7
    assert (server.asked["number 0"], server.asked["number 7"]) == (1, 2)


def test_an_answer_without_its_schema_is_kept_and_counted(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer_to = lambda text: '{"name": "Ann"'
    source = write(tmp_path / "in.jsonl", [line(0)])
    assert batch(server, source, tmp_path / "out.jsonl") == 1
    assert len(read(tmp_path / "out.jsonl")) == 1
    assert "1 not valid" in capsys.readouterr().err


def test_formats_of_an_answer_are_checked_as_the_server_enforces_them(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    formats = [{"format": "date"}, {"format": "ipv4"}]
    schema = {"type": "array", "items": {"type": "string", "oneOf": formats}}
    named = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    answers = {"number 0": ["2026-11-26", "127.0.0.1"], "number 1": ["neither"]}
    server.answer_to = lambda text: json.dumps(answers[text])
    source = write(tmp_path / "in.jsonl", [line(n, response_format=named) for n in (0, 1)])
    assert batch(server, source, tmp_path / "out.jsonl") == 1
    assert "1 valid, 1 not valid, 0 failed" in capsys.readouterr().err


def test_rows_of_a_csv_file_become_rows_with_the_fields_of_the_schema(
    server: Server, tmp_path: Path
) -> None:
    rows = tmp_path / "in.csv"
    rows.write_text('key,body\na,"Ann, 7,\nis {here}"\nb,Bob\nc\n', encoding="utf-8")
    schema = write(tmp_path / "schema.json", [SCHEMA])
    server.script = lambda text, times: (400, {}) if "Bob" in text else None
    options = [
        *("--schema", str(schema), "--prompt", "Extract {text} of {key}:", "--column", "body"),
        *("--confidence", "--ordered", "--set", "model=mine"),
    ]
    assert batch(server, rows, tmp_path / "out.csv", *options) == 1
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert server.asked == {"Extract Ann, 7,\nis {here} of a:": 1, "Extract Bob of b:": 1}
    assert found[0] == {
        "custom_id": "row-1", "name": ANSWER["name"], "age": "7", "member": "true",
        "name_confidence": "", "age_confidence": "0.5", "member_confidence": "", "error": "",
    }  # fmt: skip
    assert [each["error"] for each in found[1:]] == [
        "as scripted",
        "line 3: the row has no 'body', a column that the prompt uses",
    ]


def test_parquet_goes_in_and_out(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setattr("app.cli.batch_files._ROWS", 100)
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({"text": [f"text {number}" for number in range(110)]})
    parquet.write_table(table, tmp_path / "in.parquet")
    schema = write(tmp_path / "schema.json", [SCHEMA])
    options = ["--schema", str(schema), "--prompt", "Extract {text}", "--ordered"]
    assert batch(server, tmp_path / "in.parquet", tmp_path / "out.parquet", *options) == 0
    found = parquet.read_table(tmp_path / "out.parquet")
    assert found.num_rows == 110
    assert found.slice(109).to_pylist() == [{"custom_id": "row-110", **ANSWER, "error": None}]


def test_a_value_that_does_not_fit_its_column_costs_its_row_alone(
    server: Server, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    large = json.dumps({**ANSWER, "age": 2**70})
    server.answer_to = lambda text: large if text == "a" else json.dumps(ANSWER)
    schema = write(tmp_path / "schema.json", [SCHEMA])
    rows = tmp_path / "in.csv"
    rows.write_text("text\na\nb\n")
    options = ["--schema", str(schema), "--prompt", "{text}", "--ordered"]
    assert batch(server, rows, tmp_path / "out.parquet", *options) == 1  # not valid by its schema
    first, second = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert first["age"] is None
    assert str(2**70) in first["error"]
    assert second == {"custom_id": "row-2", **ANSWER, "error": None}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--prompt", "no column"], "--prompt names no column"),
        (["--prompt", "{other}"], "has no column 'other'; it has 'key', 'body'"),
        (["--prompt", "{key}", "--column", "x"], "has no column 'x'"),
        (["--column", "key"], "--column is for rows of a table: add --prompt"),
        (["--prompt", "{key}", "--set", "x"], "--set x: write it as field=value"),
        (
            ["--prompt", "{key}", "--max-running", "3"],
            "--max-running is for the engine in this process",
        ),
        (["--prompt", "{key}", "--url", "localhost"], "write it as http://HOST:PORT"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_asked(
    options: list[str],
    said: str,
    server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = tmp_path / "in.csv"
    source.write_text("key,body\n1,2\n")
    assert batch(server, source, tmp_path / "out.csv", *options) == 2
    assert said in capsys.readouterr().err
    assert not server.asked


def test_the_input_is_no_output(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "in.jsonl", [line(0)])
    assert batch(server, source, source) == 2
    assert "already exists; choose another" in capsys.readouterr().err
    assert read(source)


def test_a_run_goes_on_only_with_the_same_input_and_options(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = write(tmp_path / "in.jsonl", [line(0)]), tmp_path / "out.jsonl"
    server.script = lambda text, times: (400, {})
    assert batch(server, source, output) == 1
    for change in (["--set", "seed=1"], []):
        if not change:  # the same size, different content
            write(source, [line(1)])
        assert batch(server, source, output, *change) == 2
        assert "belongs to a run with another input or other options" in capsys.readouterr().err
    server.script = lambda text, times: None
    Path(f"{output}.journal").unlink()
    output.unlink()
    assert batch(server, source, output) == 0
    assert batch(server, source, output) == 2
    assert "already exists" in capsys.readouterr().err
    assert len(read(output)) == 1


def test_a_server_that_stays_away_ends_the_run_and_no_line_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = write(tmp_path / "in.jsonl", [line(0), line(1)]), tmp_path / "out.jsonl"
    monkeypatch.setattr("app.cli.batch_targets.PATIENCE", 0.0)
    options = ["--concurrency", "1", "--model", "m"]
    with Server() as server:

        def leave(text: str, times: int) -> tuple[int, Mapping[str, str]] | None:
            if text == "number 0":
                return None
            server.close()
            return 0, {}

        server.script = leave
        assert batch(server, source, output, *options) == 2
        assert "run the same command again" in capsys.readouterr().err
        assert server.asked["number 0"] == 1
    with Server() as server:
        assert batch(server, source, output, *options) == 0
        assert server.asked == {"number 1": 1}
    assert [each["custom_id"] for each in read(output)] == ["id-0", "id-1"]


def test_a_line_that_loses_its_connection_each_time_fails_alone(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.cli.batch_targets.RETRIES", 1)
    monkeypatch.setattr("app.cli.batch_targets.PATIENCE", 0.0)
    server.script = lambda text, times: (0, {}) if text == "number 1" else None
    source, output = write(tmp_path / "in.jsonl", [line(0), line(1)]), tmp_path / "out.jsonl"
    assert batch(server, source, output) == 1
    assert [each["custom_id"] for each in read(output)] == ["id-0"]
    [error] = read(tmp_path / "out.jsonl.errors.jsonl")
    assert error["error"]["code"] == "connection_lost"
    assert server.asked["number 1"] == 2


async def test_a_line_that_the_engine_refuses_is_retried_until_there_is_room() -> None:
    asked = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal asked
        asked += 1
        headers = [(b"retry-after", b"0.001")]
        status = 429 if asked < 20 else 200
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    assembly = SimpleNamespace(app=app, worker=SimpleNamespace(alive=True))
    answer = await InProcess(assembly, Settings(), 1).ask(CHAT, {})
    assert (answer.status, asked) == (200, 20)


def test_errors_that_are_not_in_openais_form_are_rows_of_a_table(
    server: Server, tmp_path: Path
) -> None:
    server.refusal = {"error": "no such model"}
    server.script = lambda text, times: (404, {})
    source, output = write(tmp_path / "in.jsonl", [line(0)]), tmp_path / "out.csv"
    assert batch(server, source, output) == 1
    assert output.read_text().splitlines()[1] == "id-0,,no such model"


def test_a_file_that_is_no_parquet_is_refused(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    source = write(tmp_path / "in.parquet", ["text\n"])
    assert batch(server, source, tmp_path / "out.jsonl", "--prompt", "{text}") == 2
    assert "in.parquet: Parquet" in capsys.readouterr().err


def test_two_runs_do_not_write_one_journal(tmp_path: Path) -> None:
    name = str(tmp_path / "journal")
    journal = Journal(name, "f")
    with pytest.raises(UnusableInput, match="another process is writing to it"):
        Journal(name, "f")
    journal.close(delete=True)
    assert not list(tmp_path.iterdir())


def test_an_output_in_a_folder_that_is_not_writable_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match=r"out.jsonl.journal: unable to open .* is writable"):
        Journal(str(tmp_path / "none" / "out.jsonl.journal"), "run")


def test_on_a_full_disk_the_run_ends_and_goes_on_later(tmp_path: Path) -> None:
    name = str(tmp_path / "journal")
    journal = Journal(name, "f")
    journal.add(0, "valid", {"custom_id": "0"})
    size, before = os.path.getsize(f"{name}-wal"), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5, before[1]))
    try:
        with pytest.raises(UnusableInput, match="free some space and run the same command again"):
            journal.add(1, "valid", {"custom_id": "1"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    journal.close(delete=False)
    journal = Journal(name, "f")
    assert [json.loads(record) for _, record in journal.records(ordered=False)] == [
        {"custom_id": "0"}
    ]
    journal.close(delete=False)


def test_retry_after_has_priority_over_exponential_backoff() -> None:
    assert seconds_until_retry(InsideAnswer(429, {"retry-after": "7"}, b""), 3) == 7
    assert all(3 <= seconds_until_retry(InsideAnswer(429, {}, b""), 3) <= 4 for _ in range(20))
    assert is_retried(InsideAnswer(500, {}, b""))
    assert not is_retried(InsideAnswer(500, {"x-should-retry": "false"}, b""))
    assert not is_retried(InsideAnswer(400, {}, b""))


def test_a_change_amid_a_large_file_is_another_input(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [line(number) for number in range(1000, 2000)])
    before = Input(str(source), None).digest
    write(source, [line(1001 if number == 1500 else number) for number in range(1000, 2000)])
    assert Input(str(source), None).digest != before


def test_a_long_file_is_read_as_a_stream(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    with source.open("w") as file:
        for number in range(many(100_000)):
            file.write(json.dumps({**line(0), "custom_id": f"id-{number}"}) + "\n")
    found = Input(str(source), None)
    assert found.count == many(100_000)
    lines = found.lines()
    assert next(lines).custom_id == "id-0"
    assert next(lines).number == 1


def kept_numbers(output: Path) -> list[int]:
    """Numbers of the lines in the journal, read from a copy: the run locks the file."""
    with tempfile.TemporaryDirectory() as folder:
        for suffix in ("-wal", ""):  # a checkpoint moves records to the second
            source = Path(f"{output}.journal{suffix}")
            if source.exists():
                shutil.copy(source, f"{folder}/journal{suffix}")
        with closing(sqlite3.connect(f"{folder}/journal")) as database:
            try:
                return [number for (number,) in database.execute("SELECT number FROM lines")]
            except sqlite3.DatabaseError:  # the journal is still empty
                return []


class Run:
    """``leapjson batch`` with the demo model, in a separate process that can be killed."""

    def __init__(self, source: Path, output: Path) -> None:
        self._output = output
        self._log = output.with_suffix(".log").open("ab")
        names = (str(source), str(output))
        command = [sys.executable, "-m", "app", "batch", *names, "--device", "cpu"]
        environment = {**os.environ, "LEAPJSON_COMPILE_WORKERS": "1"}
        self.process = start(command, environment, self._log)

    def records(self) -> int:
        return len(kept_numbers(self._output))

    def kill_at(self, records: int, with_signal: int = signal.SIGKILL) -> int:
        """Sends the signal once that many records are written; returns the exit status."""
        given_up = time.monotonic() + 900
        while self.process.poll() is None and self.records() < records:
            assert time.monotonic() < given_up
            time.sleep(0.02)
        self.process.send_signal(with_signal)
        return self.end()

    def end(self) -> int:
        status = self.process.wait()
        self._log.close()
        return status


def check_answers(output: Path, count: int) -> None:
    found = read(output)
    assert Counter(each["custom_id"] for each in found) == Counter(
        f"id-{number}" for number in range(count)
    )
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for each in found:
        content = each["response"]["body"]["choices"][0]["message"]["content"]
        validator.validate(json.loads(content))
    assert not Path(f"{output}.journal").exists()


def test_after_a_kill_the_same_command_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEAPJSON_DATA", str(tmp_path / "data"))
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [line(number, model="leapjson-demo", seed=number) for number in range(300)]
    write(source, lines)
    first = Run(source, output)
    assert first.kill_at(20) == -signal.SIGKILL, "the run ended before it was killed"
    kept = kept_numbers(output)
    assert 20 <= len(kept) < 300
    assert not output.exists()
    second = Run(source, output)
    assert second.kill_at(len(kept) + 20, signal.SIGTERM) == 130
    assert "Run the same command again for the other" in output.with_suffix(".log").read_text()
    stopped = second.records()
    assert Run(source, output).end() == 0
    check_answers(output, 300)
    log = output.with_suffix(".log").read_text()
    assert f"300 lines ({stopped} in earlier runs)" in log
    assert "300 valid, 0 failed" in log
    assert not (tmp_path / "data").exists(), "the command opened the data folder of servers"


@pytest.mark.wide
def test_twenty_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    source, output, rng = tmp_path / "in.jsonl", tmp_path / "out.jsonl", random.Random(20)
    count, kills, kept = 3000, 0, [0]
    write(source, [line(number, model="leapjson-demo", seed=number) for number in range(count)])
    while kills < 20:
        run = Run(source, output)
        at = run.records() + rng.randint(1, (count - run.records()) // (22 - kills))
        assert run.kill_at(at) == -signal.SIGKILL, "the run ended before it was killed"
        kills += 1
        kept.append(run.records())
        assert kept == sorted(kept), "an answer is lost"
    assert Run(source, output).end() == 0
    check_answers(output, count)
