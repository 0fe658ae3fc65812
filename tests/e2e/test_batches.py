"""Files and batches with OpenAI's client; servers that are killed; two servers on one store."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import openai
import pytest
from openai.types import Batch

from loadtest.server import Server, free_port, running_process
from tests.servers import running_server

SCHEMA = {
    "type": "object",
    "properties": {"product": {"type": "string"}, "rating": {"type": "integer", "minimum": 1}},
    "required": ["product", "rating"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "review", "schema": SCHEMA}}
CHAT = "/v1/chat/completions"


def jsonl(count: int, **more: Any) -> bytes:
    lines = []
    for number in range(count):
        text = f"Extract the review from: I bought the Greenford lamp {number}. Bad. 2 stars."
        body: dict[str, Any] = {
            "model": "leapjson-demo",
            "messages": [{"role": "user", "content": text}],
        }
        body |= {"response_format": FORMAT, "temperature": 0, "max_tokens": 64, **more}
        asked = {"custom_id": f"r{number}", "method": "POST", "url": CHAT, "body": body}
        lines.append(json.dumps(asked))
    return "\n".join(lines).encode()


def client_of(server: Server, key: str = "ann") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


def started(client: openai.OpenAI, data: bytes) -> Batch:
    file = client.files.create(file=("in.jsonl", data), purpose="batch")
    return client.batches.create(
        input_file_id=file.id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        metadata={"job": "reviews"},
    )


def ended(client: openai.OpenAI, batch_id: str, seconds: float = 300) -> Batch:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        batch = client.batches.retrieve(batch_id)
        if batch.status in ("completed", "failed", "expired", "cancelled"):
            return batch
        time.sleep(0.05)
    raise AssertionError(f"the batch did not end: {batch}")


def check_answers(client: openai.OpenAI, batch: Batch, count: int) -> None:
    """Every line is answered once, in order, with a valid answer."""
    assert batch.status == "completed", batch
    assert batch.request_counts is not None
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (count, count, 0)
    assert batch.error_file_id is None
    assert batch.output_file_id is not None
    lines = client.files.content(batch.output_file_id).text.splitlines()
    answers = [json.loads(line) for line in lines]
    assert [each["custom_id"] for each in answers] == [f"r{number}" for number in range(count)]
    for each in answers:
        content = each["response"]["body"]["choices"][0]["message"]["content"]
        jsonschema.validate(json.loads(content), SCHEMA)


def test_openai_s_client_drives_files_and_batches_to_the_end(tmp_path: Path) -> None:
    settings = {"DTYPE": "float32", "DATA": str(tmp_path / "data"), "API_KEYS": "ann,bob"}
    with running_server(None, tmp_path / "log", settings) as server, client_of(server) as client:
        batch = started(client, jsonl(40))
        batch = ended(client, batch.id)
        check_answers(client, batch, 40)
        assert batch.metadata == {"job": "reviews"}
        [listed] = client.batches.list(limit=1).data
        assert listed.id == batch.id
        names = {each.filename for each in client.files.list()}
        assert names == {"in.jsonl", f"{batch.id}_output.jsonl"}
        [day] = client.get("/usage", cast_to=httpx.Response).json()["data"]
        assert day["requests"] == 40
        with client_of(server, "bob") as bob, pytest.raises(openai.NotFoundError):
            bob.batches.retrieve(batch.id)
        cancelled = started(client, jsonl(1000))
        assert client.batches.cancel(cancelled.id).status in ("cancelling", "cancelled")
        assert ended(client, cancelled.id).status == "cancelled"
        assert client.files.delete(batch.input_file_id).deleted
        waiting = started(client, jsonl(1000))
        while client.batches.retrieve(waiting.id).status != "in_progress":
            time.sleep(0.02)
        server.process.terminate()  # it drains: running lines end, waiting ones remain
        assert server.process.wait(60) == 0


@pytest.mark.wide
def test_a_batch_goes_on_after_kills(tmp_path: Path) -> None:
    settings = {"DTYPE": "float32", "DATA": str(tmp_path / "data")}
    batch_id = ""
    for kill in (0, 300, 600, None):
        with (
            running_server(None, tmp_path / f"log{kill}", settings) as server,
            client_of(server) as client,
        ):
            batch_id = batch_id or started(client, jsonl(1000)).id
            if kill is None:
                check_answers(client, ended(client, batch_id), 1000)
                break
            deadline = time.monotonic() + 300
            while (counts := client.batches.retrieve(batch_id).request_counts) is None or (
                counts.completed <= kill
            ):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            server.process.kill()
            assert server.process.wait() == -signal.SIGKILL


class Postgres:
    """A Postgres server of its own, with its data in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._as_user: dict[str, Any] = {}
        if os.getuid() == 0:  # Postgres refuses to run as root
            self._as_user = {"user": "postgres"}
            shutil.chown(folder, "postgres")
        self._folder, self._port = folder, free_port()
        self.url = f"postgresql://leapjson@127.0.0.1:{self._port}/postgres"
        self._run("initdb", "-U", "leapjson", "--auth=trust", "--no-sync")

    def start(self) -> None:
        options = f"-p {self._port} -k {self._folder} -c listen_addresses=127.0.0.1"
        self._run("pg_ctl", "-w", "-l", str(self._folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    def _run(self, *command: str) -> None:
        program, *arguments = command
        data = ["-D", str(self._folder / "database")]
        null = subprocess.DEVNULL  # the server would hold a pipe open
        subprocess.run(
            [program, *data, *arguments], check=True, cwd="/", stdout=null, **self._as_user
        )


@contextmanager
def postgres() -> Iterator[Postgres]:
    with tempfile.TemporaryDirectory() as folder:  # only root can read pytest's own folders
        server = Postgres(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def bucket(folder: Path) -> Iterator[Mapping[str, str]]:
    """Variables of an S3 server with the bucket ``leapjson``."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = ("moto_server", "-H", "127.0.0.1", "-p", str(port))
    environment, ready = dict(os.environ), f"{url}/moto-api/data.json"
    with running_process(command, environment, folder / "s3.log", ready, 120):
        assert httpx.put(f"{url}/leapjson", timeout=300).status_code == 200
        yield {
            "AWS_ENDPOINT_URL": url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }


@pytest.mark.wide
@pytest.mark.needs("initdb")
def test_two_servers_share_a_database_and_one_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are in S3 if ``moto_server`` is installed, else in a folder that both servers share."""
    with ExitStack() as stack:
        url = stack.enter_context(postgres()).url
        data = str(tmp_path / "data")
        if shutil.which("moto_server"):
            data = "s3://leapjson/files"
            for name, value in stack.enter_context(bucket(tmp_path)).items():
                monkeypatch.setenv(name, value)
        settings = {"DTYPE": "float32", "DATA": data, "STORE": url}
        first, second = [
            stack.enter_context(running_server(None, tmp_path / f"log{number}", settings))
            for number in range(2)
        ]
        clients = [stack.enter_context(client_of(each)) for each in (first, second)]
        batch_id = started(clients[0], jsonl(2000)).id
        answer = clients[0].responses.create(model="leapjson-demo", input="hi", max_output_tokens=8)
        schema = {"type": "object", "properties": {"day": {"type": "string", "format": "date"}}}
        made = httpx.post(f"{first.url}/v1/schemas", json={"schema": schema}, timeout=300).json()
        deadline = time.monotonic() + 300
        while (counts := clients[1].batches.retrieve(batch_id).request_counts) is None or (
            counts.completed < 500
        ):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        first.process.kill()
        batch = ended(clients[1], batch_id)
        check_answers(clients[1], batch, 2000)
        # The conversation that the killed server began continues.
        clients[1].responses.create(
            model="leapjson-demo", input="and?", previous_response_id=answer.id, max_output_tokens=8
        )
        named = {"type": "json_schema", "schema_id": made["id"]}
        messages = [{"role": "user", "content": "when?"}]
        asked = {"model": "leapjson-demo", "messages": messages, "response_format": named}
        answered = httpx.post(f"{second.url}{CHAT}", json=asked, timeout=300)
        assert answered.status_code == 200, answered.text
        metrics = httpx.get(f"{second.url}/metrics", timeout=300).text
        assert re.search(r"^leapjson_stored_programs_loaded_total [1-9]", metrics, re.MULTILINE)
        logs = [(tmp_path / f"log{number}").read_text() for number in range(2)]
        assert all(f'"endpoint": "{CHAT}"' in log for log in logs), "one of the servers did nothing"


@pytest.mark.wide
@pytest.mark.needs("initdb")
def test_a_database_that_is_away_for_a_while_loses_nothing(tmp_path: Path) -> None:
    with postgres() as database:
        settings = {"DTYPE": "float32", "DATA": str(tmp_path / "data"), "STORE": database.url}
        with (
            running_server(None, tmp_path / "log", settings) as server,
            client_of(server) as client,
        ):
            batch_id = started(client, jsonl(2000)).id
            deadline = time.monotonic() + 300
            while (counts := client.batches.retrieve(batch_id).request_counts) is None or (
                counts.completed < 100
            ):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            database.stop()
            for _ in range(3):
                with pytest.raises(openai.InternalServerError, match="LEAPJSON_STORE"):
                    client.batches.retrieve(batch_id)
                message: Any = {"role": "user", "content": "hi"}
                client.chat.completions.create(model="leapjson-demo", messages=[message])
                # A response is served, though it cannot be stored.
                client.responses.create(model="leapjson-demo", input="hi", max_output_tokens=8)
                time.sleep(1)
            database.start()
            while True:
                try:
                    batch = ended(client, batch_id)
                    break
                except openai.InternalServerError:  # the database is still starting
                    time.sleep(0.1)
            check_answers(client, batch, 2000)
