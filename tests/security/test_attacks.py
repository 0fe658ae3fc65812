"""Requests that crashed, hung or filled other servers, sent to a process of the complete server.

The response to each is a 400 that names the field, or a valid answer, and the process continues
to answer other requests.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from loadtest.server import Server
from tests.servers import running_server
from tests.wide import many

MODEL = "leapjson-demo"
CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
HONEST = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
ADDRESS = re.compile(r"0x[0-9a-f]{6,}|object at |Traceback|site-packages|/app/")
"""Text that errors must not have: addresses in memory and paths on disk (CVE-2026-22778)."""


@dataclass(frozen=True, slots=True)
class Running:
    server: Server
    client: httpx.Client
    home: Path
    log: Path


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("server")
    home, log = folder / "home", folder / "log"
    home.mkdir()
    settings = {"DTYPE": "float32", "COMPILE_SECONDS": "3", "COMPILE_WORKERS": "2"}
    with pytest.MonkeyPatch.context() as patched:
        # The trusted cache of machine code is beside the sources, so these do not move it.
        for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME"):
            patched.setenv(name, str(home))
        with (
            running_server(None, log, settings) as server,
            httpx.Client(base_url=server.url, timeout=300) as client,
        ):
            yield Running(server, client, home, log)


def chat(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "hi"}]
    return {"model": MODEL, "messages": messages, "max_tokens": 16, **fields}


def text(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "hi", "max_tokens": 16, **fields}


def outputs(**fields: Any) -> dict[str, Any]:
    return chat(structured_outputs=fields)


def schema(value: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}


def tool(parameters: Any) -> dict[str, Any]:
    """A strict tool: schemas of other tools are relaxed, not refused."""
    function = {"name": "f", "parameters": parameters, "strict": True}
    return chat(tools=[{"type": "function", "function": function}], tool_choice="required")


def nested(levels: int) -> Any:
    value: Any = {"type": "string"}
    for _ in range(levels):
        value = {"type": "array", "items": value}
    return value


IMAGE = [{"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest/"}}]
LOOP = "{% for i in range(10**9) %}{% for j in range(10**9) %}x{% endfor %}{% endfor %}"
ENUM = "root ::= " + " | ".join(f'"value {number}"' for number in range(8_000))
assert 100_000 < len(ENUM) < 1 << 18

REFUSED: list[tuple[str, str, Mapping[str, Any], str]] = [
    # advisory, path, body, field that the error names
    ("CVE-2025-48942", COMPLETIONS, text(guided_json={"type": "nonsense"}), "guided_json"),
    ("CVE-2025-48942", CHAT, outputs(json={"properties": "x"}), "structured_outputs.json"),
    ("CVE-2025-48942", CHAT, chat(response_format=schema({"type": 1})), "response_format"),
    ("CVE-2025-48943", CHAT, chat(guided_regex="foo**"), "guided_regex"),
    ("CVE-2025-48943", CHAT, outputs(regex="([a-z"), "structured_outputs.regex"),
    ("CVE-2025-48944", CHAT, tool({"type": "object", "properties": {"a": {"type": "x"}}}), "tools"),
    (
        "CVE-2025-48944",
        CHAT,
        tool({"type": "object", "properties": {"a": {"type": "string", "pattern": "[a"}}}),
        "tools",
    ),
    ("CVE-2026-105757", CHAT, outputs(choice=[]), "structured_outputs.choice"),
    ("CVE-2026-105757", CHAT, outputs(grammar=""), "structured_outputs.grammar"),
    ("CVE-2026-105757", CHAT, outputs(json=""), "structured_outputs.json"),
    ("CVE-2026-105757", CHAT, outputs(structural_tag=""), "structured_outputs.structural_tag"),
    ("CVE-2026-105757", CHAT, outputs(), "structured_outputs"),
    (
        "CVE-2026-55574",
        CHAT,
        chat(guided_regex="((a{1,100}){1,100}){1,100}"),
        "guided_regex",
    ),
    ("CVE-2025-57809", CHAT, chat(grammar='root ::= root "a"'), "grammar"),
    ("CVE-2025-57809", CHAT, chat(ebnf="root ::= a\na ::= b\nb ::= a"), "ebnf"),
    ("CVE-2026-25048", CHAT, chat(grammar="root ::= " + "(" * 30_000 + '"a"'), "grammar"),
    ("CVE-2026-25048", CHAT, chat(guided_regex="(" * 8_000), "guided_regex"),
    ("CVE-2026-25048", CHAT, chat(json_schema=json.dumps(nested(150))), "json_schema"),
    ("CVE-2026-34756", CHAT, chat(n=10**9), "n"),
    ("CVE-2026-34756", COMPLETIONS, text(n=2**62), "n"),
    ("CVE-2024-8939", COMPLETIONS, text(best_of=10**9), "best_of"),
    ("CVE-2024-8939", CHAT, chat(best_of=20), "best_of"),
    ("CVE-2026-73559", COMPLETIONS, text(prompt=["a"] * 100_000), "prompt"),
    ("CVE-2026-73559", COMPLETIONS, text(prompt=[[1]] * 50_000), "prompt"),
    ("CVE-2024-8768", COMPLETIONS, text(prompt=""), "prompt"),
    ("CVE-2024-8768", COMPLETIONS, text(prompt=[]), "prompt"),
    ("CVE-2024-8768", COMPLETIONS, text(prompt=[[]]), "prompt[0]"),
    ("CVE-2025-62164", COMPLETIONS, text(prompt_embeds="gASVAAA="), "prompt_embeds"),
    ("CVE-2025-6242", CHAT, chat(messages=[{"role": "user", "content": IMAGE}]), "messages[0]"),
    ("CVE-2025-6242", CHAT, chat(json_schema={"$ref": "http://169.254.169.254/"}), "json_schema"),
    ("PYSEC-2026-2013", CHAT, chat(chat_template=LOOP), "chat_template"),
    ("PYSEC-2026-2013", "/tokenize", {**chat(chat_template=LOOP), "max_tokens": 1}, "chat_"),
    (
        "CVE-2026-115918",
        RESPONSES,
        {"model": MODEL, "input": "hi", "chat_template_kwargs": {"chat_template": LOOP}},
        "chat_template_kwargs.chat_template",
    ),
    (
        "CVE-2025-62426",
        CHAT,
        chat(chat_template_kwargs={"tokenize": True}),
        "chat_template_kwargs.tokenize",
    ),
    ("CVE-2026-93840", CHAT, chat(allowed_token_ids=[10**6]), "allowed_token_ids"),
    ("CVE-2026-93840", CHAT, chat(logit_bias={"1000000": 5}), "logit_bias"),
    ("CVE-2026-93840", COMPLETIONS, text(prompt=[1, 10**6]), "prompt[1]"),
    ("CVE-2026-93840", CHAT, chat(stop_token_ids=[10**6], min_tokens=2), "stop_token_ids"),
    ("CVE-2026-93989", CHAT, chat(bad_words=["x"]), "bad_words"),
    ("CVE-2026-114051", CHAT, chat(min_tokens=10**9, max_tokens=None), "min_tokens"),
    ("CVE-2026-105756", CHAT, chat(cache_salt="\n" * 100_000), "cache_salt"),
    ("CVE-2026-21869", COMPLETIONS, text(max_tokens=-2), "max_tokens"),
    ("CVE-2026-71486", "/detokenize", {"tokens": [1, 10**6]}, "tokens[1]"),
]

LEFT_OUT = [
    (CHAT, chat(kv_transfer_params={"tp_size": 10**9}), "kv_transfer_params"),
    (COMPLETIONS, text(n_discard=-1), "n_discard"),
]
"""CVE-2026-94626 and CVE-2026-21869: the server ignores these fields."""


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [each[1:] for each in REFUSED],
    ids=[f"{number} {each[0]}" for number, each in enumerate(REFUSED)],
)
def test_an_attack_is_refused_and_the_field_is_named(
    running: Running, path: str, body: Mapping[str, Any], param: str
) -> None:
    answer = running.client.post(path, json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"].startswith(param)
    assert len(answer.content) < 10_000
    assert not ADDRESS.search(error["message"])
    assert_server_answers(running)


@pytest.mark.parametrize(("path", "body", "name"), LEFT_OUT)
def test_what_an_attack_asks_for_is_left_out_and_named(
    running: Running, path: str, body: Mapping[str, Any], name: str
) -> None:
    answer = running.client.post(path, json=body)
    assert (answer.status_code, answer.headers["x-leapjson-ignored"]) == (200, name)
    assert_server_answers(running)


ANSWERED: list[tuple[str, Mapping[str, Any]]] = [
    ("CVE-2026-55574", chat(guided_regex="(a+)+b")),
    ("CVE-2026-55574", chat(guided_regex="(a|a)*(a|aa)+$")),
    ("CVE-2025-58446", chat(grammar=ENUM)),
    ("CVE-2026-44223", chat(repetition_penalty=1.1, presence_penalty=2, frequency_penalty=-2)),
    (
        "CVE-2026-44222",
        chat(messages=[{"role": "user", "content": "<|image_pad|><|im_end|><|user|><s></s>" * 9}]),
    ),
]


@pytest.mark.parametrize(
    "body",
    [each[1] for each in ANSWERED],
    ids=[f"{number} {each[0]}" for number, each in enumerate(ANSWERED)],
)
def test_an_attack_is_answered_like_any_request(running: Running, body: Mapping[str, Any]) -> None:
    answer = running.client.post(CHAT, json=body)
    assert answer.status_code == 200
    pattern = body.get("guided_regex")
    content = answer.json()["choices"][0]["message"]["content"]
    assert pattern is None or re.fullmatch(pattern.removesuffix("$"), content)
    assert_server_answers(running)


def test_many_schemas_that_came_once_fill_neither_the_disk_nor_the_cache(running: Running) -> None:
    """CVE-2025-29770 and CVE-2025-32381: every new schema stayed in a cache forever."""
    assert_server_answers(running)
    files = set(running.home.rglob("*"))
    for number in range(many(60, 4)):
        body = chat(response_format=schema({**HONEST, "title": f"once {number}"}))
        assert running.client.post(CHAT, json=body).status_code == 200
    assert set(running.home.rglob("*")) == files
    assert metric(running, "leapjson_schema_cache_bytes") <= 256 << 20


def test_an_id_is_the_servers_own_whatever_a_client_calls_itself(running: Running) -> None:
    """CVE-2026-105755, CVE-2026-116176: an id from a header was a key to another client's state."""
    ids = set()
    for _ in range(2):
        for name in ("x-request-id", "request-id"):
            answer = running.client.post(
                CHAT, json=chat(request_id="mine"), headers={name: "mine___decode_addr_10.0.0.1:1"}
            )
            assert answer.status_code == 200
            ids |= {answer.headers["x-request-id"], answer.json()["id"]}
    assert len(ids) == 8
    assert not any("mine" in each for each in ids)


def test_no_line_of_the_log_is_a_clients(running: Running) -> None:
    """Every line is one JSON object without text from clients."""
    forged = '\n{"level": "critical", "message": "forged"}\r\n'
    running.client.post(CHAT, json=chat(model=forged))
    running.client.post(CHAT, json={**chat(), forged: 1})
    running.client.get("/v1/models/%0a%7b%22level%22%3a%22forged%22%7d")
    running.client.post(
        CHAT, json=chat(), headers={"user-agent": "forged", "x-request-id": "forged"}
    )
    assert_server_answers(running)
    lines = [line for line in running.log.read_text().splitlines() if line.startswith("{")]
    assert lines
    for line in lines:
        assert "forged" not in json.dumps(json.loads(line))


def test_the_server_listens_on_one_address_and_its_workers_on_none(running: Running) -> None:
    """CVE-2025-32444, CVE-2025-30202, CVE-2026-3059 and CVE-2023-48022 used other open ports."""
    assert_server_answers(running)
    processes = _with_children(running.server.process.pid)
    assert len(processes) >= 3  # the server and its two compile workers
    listening = [each for process in processes for each in _listening(process)]
    assert listening == [("127.0.0.1", int(running.server.url.rpartition(":")[2]))]


def assert_server_answers(running: Running) -> None:
    """A normal request after the attack gets a valid answer."""
    assert running.client.get("/ready").status_code == 200
    answer = running.client.post(CHAT, json=chat(response_format=schema(HONEST)))
    assert answer.status_code == 200
    content = json.loads(answer.json()["choices"][0]["message"]["content"])
    jsonschema.validate(content, HONEST)


def metric(running: Running, name: str) -> float:
    for line in running.client.get("/metrics").text.splitlines():
        if line.startswith(name + " "):
            return float(line.split()[1])
    raise AssertionError(f"no metric {name}")


def _with_children(pid: int) -> list[int]:
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process may have ended
            # After the name, which may have any characters: state and parent.
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found


def _listening(pid: int) -> list[tuple[str, int]]:
    """TCP addresses on which a process listens: IPv4 as usual, IPv6 in hexadecimal."""
    sockets = {os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()}
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                address, port = fields[1].split(":")
                if table == "tcp":
                    address = ".".join(str(byte) for byte in reversed(bytes.fromhex(address)))
                found.append((address, int(port, 16)))
    return found
