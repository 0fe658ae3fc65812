"""Colours in the output of commands, and cases without colours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.__main__ import main
from tests.terminal.terminals import terminal

SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean", "description": "?"}, "tag": {"format": "slug"}},
    "required": ["ok"],
}


@pytest.fixture
def commands(tmp_path: Path) -> list[list[str]]:
    schema, good, bad = (tmp_path / name for name in ("schema", "good", "bad"))
    schema.write_text(json.dumps(SCHEMA))
    good.write_text('{"ok": true}')
    bad.write_text('{"ok": maybe}')
    given = ["--schema", str(schema)]
    return [["check", *given, "--instance", str(good), str(bad)], ["explain", *given]]


def plain(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    main(command)
    return capsys.readouterr().out


def test_a_terminal_shows_in_colours_what_a_pipe_gets_without(
    commands: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    for command, coloured in zip(
        commands,
        (["\x1b[1;32mvalid\x1b[0m", "\x1b[1;31mnot valid\x1b[0m"], ["\x1b[32menforced\x1b[0m"]),
        strict=True,
    ):
        expected = plain(command, capsys)
        assert "\x1b" not in expected
        with terminal("app", *command) as shell:
            shell.wait()
            assert shell.text == expected
            assert all(each in shell.written.decode() for each in coloured)


@pytest.mark.parametrize(
    "settings", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}]
)
def test_a_terminal_that_wants_no_colours_gets_none(
    commands: list[list[str]], settings: dict[str, str]
) -> None:
    with terminal("app", *commands[0], settings=settings) as shell:
        assert shell.wait() == 1
        assert "not valid" in shell.text
        assert b"\x1b" not in shell.written


def test_colours_may_be_forced_into_a_pipe_but_not_into_json(
    commands: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for command in commands:
        assert "\x1b[" in plain(command, capsys)
        json.loads(plain([*command, "--json"], capsys))
