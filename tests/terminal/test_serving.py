"""Output of the server at a terminal, and in a log."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import httpx
import pytest

from app.terminal.screen import greeting
from tests.terminal.terminals import ROOT, Terminal, terminal

SERVED = "tests.terminal.served"
CHAT = "/v1/chat/completions"


def url_in(shown: str) -> str:
    found = re.search(r"http://127\.0\.0\.1:\d+(?=/v1)", shown)
    assert found
    return found[0]


@contextmanager
def long_answer(client: httpx.Client, url: str) -> Iterator[None]:
    """Keep an answer running during the block."""
    messages = [{"role": "user", "content": "long"}]
    body = {"model": "leapjson-demo", "stream": True, "messages": messages}
    with client.stream("POST", url + CHAT, json=body) as response:
        lines = response.iter_lines()  # kept: deleting it would close the connection
        next(lines)
        yield


def started(shell: Terminal) -> str:
    return url_in(shell.wait_for("Press Ctrl-C to stop."))


def test_a_person_sees_what_is_done_and_then_where_the_server_is(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    with terminal(SERVED, settings={"SERVED_WAITS_FOR": str(seen)}) as shell:
        shell.wait_for("1 of 3 tensors")  # the bar is not complete yet
        seen.touch()
        url = started(shell)
        shown = shell.text
        assert re.search(r"✓ Reading the weights +3 tensors +\d+\.\d s\n", shown)
        assert shown.splitlines().count("a library prints") == 3
        assert f"API   {url}/v1" in shown
        assert f"try   curl {url}{CHAT}" in shown
        shell.press(b"\x03")
        assert shell.wait() == 0
        assert shell.text.endswith("Stopped.\n")


@pytest.mark.parametrize("columns", [30, 60])
def test_no_line_of_a_bar_is_longer_than_a_narrow_terminal(columns: int) -> None:
    with terminal(SERVED, columns=columns) as shell:
        started(shell)
        while_loading = shell.text.partition("✓ Reading")[0]
        assert "Reading" in while_loading
        assert max(map(len, while_loading.splitlines())) <= columns
        shell.press(b"\x03")
        assert shell.wait() == 0


def test_ctrl_c_says_how_many_answers_it_waits_for_and_a_second_one_stops_at_once() -> None:
    with terminal(SERVED) as shell, httpx.Client(timeout=300) as client:
        with long_answer(client, started(shell)):
            shell.press(b"\x03")
            shown = shell.wait_for("0 of 1")
            assert (
                "Stopping: 1 answer is running, for up to 30 s. Ctrl-C again stops immediately."
                in shown
            )
            shell.press(b"\x03")
            assert shell.wait() == 0
        assert shell.text.endswith("Stopped immediately.\n")
        assert shell.written.count(b"\x1b[?25l") == shell.written.count(b"\x1b[?25h")  # the cursor


def test_without_a_terminal_stages_are_log_lines_and_the_greeting_is_a_line() -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", SERVED],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    lines = (line for line in server.stdout if line != "a library prints\n")
    greeted = next(lines)
    assert greeted.startswith(f"Leapjson serves leapjson-demo at {url_in(greeted)}/v1")
    assert server.stderr is not None
    with httpx.Client(timeout=300) as client, long_answer(client, url_in(greeted)):
        server.terminate()
        lines_of_log = map(json.loads, server.stderr)
        stages = (line for line in lines_of_log if line["logger"] == "app.terminal.screen")
        log = list(islice(stages, 3))
    assert server.communicate(timeout=300)[0] == ""
    assert server.returncode == 0
    assert [(line["message"], line.get("of")) for line in log] == [
        ("reading the weights", 3),
        ("starting the compile workers", None),
        ("finishing running answers", 1),
    ]


def test_a_dumb_terminal_gets_lines() -> None:
    with terminal(SERVED, settings={"TERM": "dumb"}) as shell:
        shell.wait_for("Leapjson serves leapjson-demo at ")
        assert "\x1b" not in shell.written.decode()
        assert "reading the weights" in shell.text
        shell.press(b"\x03")
        assert shell.wait() == 0


def test_the_greeting_has_the_addresses_and_a_command_that_a_shell_takes() -> None:
    name = 'it\'s "quoted"'
    stream = sys.__stdin__ or sys.stdin
    line = greeting(name, "http://0.0.0.0:8000", stream, page=True, keys=True)
    assert "\n" not in line
    assert " http://127.0.0.1:8000/ " in line
    command = line.partition(" - try: ")[2]
    spoken = subprocess.run(
        ["sh", "-c", command.replace("curl", "printf '%s\\n'", 1)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert spoken[0] == "http://127.0.0.1:8000/v1/chat/completions"
    assert "authorization: Bearer YOUR-KEY" in spoken
    assert json.loads(spoken[-1])["model"] == name
    assert "page" not in greeting("m", "http://127.0.0.1:1", sys.stdin, page=False, keys=False)
