"""``leapjson check``: exit status and output, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.__main__ import main

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "status": {"enum": ["active", "closed"]},
        "age": {"type": "integer"},
    },
    "required": ["name", "status"],
}

GOOD = '{"name": "Ada", "status": "active"}'


class Files:
    """Writes the files of a test and runs ``check`` on them."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._capsys = capsys

    def write(self, name: str, content: str) -> str:
        path = self._folder / name
        path.write_text(content, encoding="utf-8")
        return str(path)

    def check(self, text: str, *options: str, schema: Any = SCHEMA) -> tuple[int, str]:
        """Exit status and output for one instance."""
        where = ["--schema", self.write("schema.json", json.dumps(schema))] if schema else []
        status = main(["check", *where, "--instance", self.write("text", text), *options])
        return status, self._capsys.readouterr().out

    def report(self, text: str, *options: str, schema: Any = SCHEMA) -> dict[str, Any]:
        found: list[dict[str, Any]] = json.loads(
            self.check(text, "--json", *options, schema=schema)[1]
        )
        return found[0]


@pytest.fixture
def files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Files:
    return Files(tmp_path, capsys)


def test_a_valid_text_is_valid_whether_or_not_a_newline_ends_it(files: Files) -> None:
    assert files.check(GOOD)[0] == 0
    status, output = files.check(GOOD + "\n")
    assert status == 0
    assert output.endswith("text: valid\n")


def test_the_place_of_an_error_and_the_allowed_characters_are_printed(files: Files) -> None:
    status, output = files.check('{"name": "Ada", "status": "retired"}')
    assert status == 1
    assert "not valid from byte 27, line 1, column 28" in output
    assert "found        r" in output
    assert "allowed      [ac]" in output


def test_lines_and_columns_count_characters_and_offsets_count_bytes(files: Files) -> None:
    report = files.report('{\n  "ü": "é", 1', "--whitespace", "indent:2", schema={
        "type": "object", "properties": {"ü": {"type": "string"}}, "required": ["ü"],
    })  # fmt: skip
    assert (report["line"], report["column"], report["offset"]) == (2, 11, 14)
    assert report["found"] == ","


def test_forced_text_at_the_place_of_an_error_is_reported(files: Files) -> None:
    report = files.report('{"nome": "Ada"}')
    assert report["forced"] == 'ame": "'
    assert report["offset"] == 3


def test_the_beginning_of_an_answer_is_incomplete_and_gets_its_shortest_end(files: Files) -> None:
    report = files.report('{"name": "Ada", "sta')
    assert report["incomplete"]
    assert report["completion"] == 'tus": "active"}'
    assert files.check('{"name": "Ada", "sta')[0] == 1


@pytest.mark.parametrize(
    "text",
    [
        '{"status": "active", "name": "Ada"}',
        '{"name":"Ada","status":"active"}',
        '{"age": 36,\n "status": "active",\n "name": "\\u0041da"}',
    ],
)
def test_a_valid_value_in_another_form_comes_with_the_form_of_answers(
    files: Files, text: str
) -> None:
    report = files.report(text)
    assert not report["valid"]
    assert json.loads(report["suggestion"]) == json.loads(text)
    assert files.report(report["suggestion"])["valid"]


@pytest.mark.parametrize("text", ['{"name": "Ada"}', "[1]", '{"name": "a", "name": "b"}', "{"])
def test_an_invalid_value_gets_no_suggestion(files: Files, text: str) -> None:
    assert not files.report(text).get("valid_in_other_form")


def test_further_keys_are_closed_as_in_the_server_and_open_on_request(files: Files) -> None:
    text = GOOD.replace("}", ', "more": 1}')
    assert files.check(text)[0] == 1
    assert files.check(text, "--open")[0] == 0


def test_white_space_is_an_option(files: Files) -> None:
    compact = json.dumps(json.loads(GOOD), separators=(",", ":"))
    assert files.check(compact)[0] == 1
    assert files.check(compact, "--whitespace", "compact")[0] == 0


def test_several_instances_are_reported_one_by_one(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = files.write("s.json", json.dumps(SCHEMA))
    good, bad = files.write("good", GOOD), files.write("bad", "[]")
    assert main(["check", "--schema", schema, "--instance", good, bad, "--json"]) == 1
    assert [each["valid"] for each in json.loads(capsys.readouterr().out)] == [True, False]


def test_a_pattern_is_checked_as_it_stands(files: Files) -> None:
    assert files.check("aab", "--regex", "a+b", schema=None)[0] == 0
    report = files.report("aac", "--regex", "a+b", schema=None)
    assert (report["offset"], report["allowed"]) == (2, "[ab]")


def test_a_schema_that_cannot_be_used_is_status_2_with_its_place(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = {"properties": {"a": {"type": "strong"}}}
    path = files.write("s.json", json.dumps(schema))
    assert main(["check", "--schema", path, "--instance", path]) == 2
    assert "/properties/a/type" in capsys.readouterr().err
    assert main(["check", "--schema", path, "--instance", path, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["pointer"]) == ("invalid_schema", "/properties/a/type")


@pytest.mark.parametrize("content", ["{", "\x00", "[" * 100_000])
def test_a_schema_that_is_not_json_is_status_2(files: Files, content: str) -> None:
    path = files.write("s.json", content)
    assert main(["check", "--schema", path, "--instance", path]) == 2


def test_a_file_that_is_not_there_is_status_2(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    path = files.write("s.json", "true")
    assert main(["check", "--schema", path, "--instance", path + ".gone"]) == 2
    assert "s.json.gone" in capsys.readouterr().err


def test_the_limits_are_those_that_the_server_is_given(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = {"type": "number"}
    assert files.check("1.234", schema=number)[0] == 0
    monkeypatch.setenv("LEAPJSON_MAX_FRACTION_DIGITS", "2")
    assert files.check("1.234", schema=number)[0] == 1
    assert files.check("1.23", schema=number)[0] == 0
    monkeypatch.setenv("LEAPJSON_MAX_FRACTION_DIGITS", "many")
    status, output = files.check("1.23", "--json", schema=number)
    assert status == 2
    assert "LEAPJSON_MAX_FRACTION_DIGITS" in output


UNIQUE = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}


def test_a_repeated_item_is_not_valid_if_items_are_unique(files: Files) -> None:
    assert files.check('["a", "b", "ab"]', schema=UNIQUE)[0] == 0
    report = files.report('["a", "b", "a"]', schema=UNIQUE)
    assert (report["valid"], report["offset"], report["found"]) == (False, 13, '"')
    assert report["allowed"] == '[^"] or non-ASCII'
    report = files.report('["a", "a', schema=UNIQUE)
    assert report["incomplete"]
    assert files.check('["a", "a' + report["completion"], schema=UNIQUE)[0] == 0


@pytest.mark.parametrize("verbatim", [True, "words", "messages[1]"])
def test_quotes_are_pieces_of_the_document(files: Files, verbatim: Any) -> None:
    quote = {"type": "string", "x-verbatim": verbatim, "minLength": 2}
    schema = {"type": "object", "properties": {"q": quote}, "required": ["q"]}
    document = ["--document", files.write("document", "The lamp is\nbad.")]
    assert files.check('{"q": "lamp is\\nbad"}', *document, schema=schema)[0] == 0
    report = files.report('{"q": "lamp was"}', *document, schema=schema)
    assert (report["offset"], report["found"]) == (12, "w")
    assert files.check('{"q": "lamp was"}', schema=schema)[0] == 0
    report = files.report('{"q": "la', *document, schema=schema)
    ended = '{"q": "la' + report["completion"]
    assert files.check(ended, *document, schema=schema)[0] == 0


@pytest.mark.parametrize(("content", "schema"), [("x", SCHEMA), ("", {"x-verbatim": True})])
def test_a_document_that_no_answer_can_quote_is_an_error(
    files: Files, content: str, schema: Any
) -> None:
    schema = {"type": "string", "minLength": 1, **schema} if "x-verbatim" in schema else schema
    assert files.check('"x"', "--document", files.write("d", content), schema=schema)[0] == 2
