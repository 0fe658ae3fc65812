"""The command line, from its arguments to the files it writes, against fake servers."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest.__main__ import main
from tests.loadtest.fake_server import Body, FakeServer, Reply, serving, text

SHEET = {
    "name": "Luna", "house": "Ravenclaw", "blood status": "Half-blood", "occupation": "student",
    "wand": {"wood": "oak", "core": "hair", "length": "9.5"}, "alive": "Alive",
    "patronus": "hare", "bogart": "none",
}  # fmt: skip


def sheet(body: Body) -> Reply:
    """A valid answer to the character sheet, with any name of its last property."""
    if "response_format" not in body:
        return text("some ", "text", forward_passes=2, leapt_tokens=0, drafted_tokens=0)
    asked = list(body["response_format"]["json_schema"]["schema"]["properties"])
    whole = json.dumps(dict(zip(asked, SHEET.values(), strict=True)))
    half = len(whole) // 2
    return text(whole[:half], whole[half:], forward_passes=1, leapt_tokens=1, drafted_tokens=0)


def nonsense(body: Body) -> Reply:
    return text("{", "}") if "response_format" in body else text("some ", "text")


@pytest.fixture
def good() -> Iterator[FakeServer]:
    with serving(FakeServer(sheet)) as fake:
        yield fake


@pytest.fixture
def bad() -> Iterator[FakeServer]:
    with serving(FakeServer(nonsense)) as fake:
        yield fake


def compare(good: FakeServer, bad: FakeServer, *others: str) -> int:
    servers = ["--server", f"good={good.url}", "--server", f"bad={bad.url}"]
    counts = ["--requests", "4", "--repeats", "2", "--warm-up", "1"]
    return main(["compare", *servers, *counts, "--baseline", "bad", *others])


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_answer_is_in_the_files_and_the_percentiles_are_those_of_numpy(
    good: FakeServer, bad: FakeServer, tmp_path: Path
) -> None:
    options = ["--workload", "character", "free", "--clients", "1", "2", "--rate", "200"]
    assert compare(good, bad, *options, "--out", str(tmp_path)) == 0
    answers, summary = rows(tmp_path / "answers.csv"), rows(tmp_path / "summary.csv")
    assert len(summary) == 2 * 2 * 3
    assert len(answers) == len(summary) * 2 * 4
    for row in summary:
        place = ("workload", "load", "arm")
        mine = [each for each in answers if all(each[name] == row[name] for name in place)]
        for column, name in (("seconds", "latency"), ("first", "first_token")):
            values = [float(each[column]) for each in mine]
            for percent in (50, 90, 95, 99):
                expected = np.percentile(values, percent)
                assert float(row[f"{name}.p{percent}"]) == pytest.approx(expected)
        wrong = row["arm"] == "bad" and row["workload"] == "character"
        assert row["outcomes.invalid"] == ("8" if wrong else "0")
        assert float(row["valid_per_second"]) == (0 if wrong else pytest.approx(
            float(row["answers_per_second"])))  # fmt: skip
    content = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert [each["latency"]["p50"] for each in content["summaries"]] == [
        pytest.approx(float(row["latency.p50"])) for row in summary
    ]
    assert {each["baseline"] for each in content["comparisons"]} == {"bad"}
    assert len(content["rounds"]) == len(summary) * 2


def test_the_tables_name_the_server_with_invalid_answers(
    good: FakeServer, bad: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(good, bad, "--clients", "2") == 0
    printed = capsys.readouterr().out
    assert "| character | 2 clients | good | 8 of 8 |" in printed
    assert "| character | 2 clients | bad | 0 of 8 |" in printed
    assert "good against bad" in printed
    assert "bad, character, 2 clients: 8 invalid" in printed


def test_the_servers_take_turns_and_the_one_that_begins_changes(
    good: FakeServer, bad: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(good, bad, "--clients", "1") == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "repetition" in line]
    turns = [line.split(", ")[3].split(":")[0] for line in told]
    assert turns == ["good", "bad", "bad", "good"]


def test_servers_are_asked_the_same_questions(good: FakeServer, bad: FakeServer) -> None:
    assert compare(good, bad, "--clients", "1") == 0
    assert good.bodies == bad.bodies
    assert {body["model"] for body in good.bodies} == {"fake"}


def schemas(fake: FakeServer) -> list[Any]:
    return [body["response_format"]["json_schema"]["schema"] for body in fake.bodies]


def test_a_cold_cache_means_that_no_schema_comes_twice(good: FakeServer, bad: FakeServer) -> None:
    assert compare(good, bad, "--clients", "1", "--cache", "cold") == 0
    sent = [json.dumps(schema) for schema in [*schemas(good), *schemas(bad)]]
    assert len(set(sent)) == len(sent) == 2 * (1 + 2 * 4)
    assert {len(schema) for schema in sent} == {len(sent[0])}


def test_a_warm_cache_means_one_schema_for_all(good: FakeServer, bad: FakeServer) -> None:
    assert compare(good, bad, "--clients", "1", "--workload", "one") == 0
    assert len({json.dumps(schema) for schema in schemas(good)}) == 1


def test_two_sides_of_one_server_differ_in_what_they_send(good: FakeServer) -> None:
    sides = ["--server", f"on={good.url}", "--server", f"off={good.url}"]
    bodies = ["--body", 'on={"leap": true}', "--body", 'off={"leap": false}']
    counts = ["--clients", "1", "--requests", "2", "--repeats", "1", "--warm-up", "0"]
    assert main(["compare", *sides, *bodies, *counts, "--instead", "off=free:5"]) == 0
    assert [(body["leap"], "response_format" in body) for body in good.bodies] == [
        (True, True), (True, True), (False, False), (False, False),
    ]  # fmt: skip


def test_an_unsupported_constraint_is_reported_and_the_others_are_measured(
    good: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = ["--server", f"a={good.url}", "--server", f"b={good.url}", "--dialect", "b=vllm"]
    options = ["--workload", "pattern", "--clients", "1", "--requests", "1", "--repeats", "1"]
    assert main(["compare", *sides, *options]) == 0
    printed = capsys.readouterr().out
    assert "a, pattern: there is no regular expression in the dialect openai" in printed
    assert "| pattern | 1 client | b |" in printed


def test_run_measures_one_server(good: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--clients", "1", "--requests", "2", "--repeats", "1"]
    assert main(["run", "--url", good.url, "--model", "mine", *options]) == 0
    assert "| character | 1 client | server | 2 of 2 |" in capsys.readouterr().out
    assert {body["model"] for body in good.bodies} == {"mine"}


@pytest.mark.parametrize("key", [["--api-key", "sk-secret"], ["--api-k=sk-secret"]])
def test_a_key_is_sent_and_stays_out_of_the_report(
    good: FakeServer, tmp_path: Path, key: list[str]
) -> None:
    options = ["--clients", "1", "--requests", "1", "--repeats", "1", "--out", str(tmp_path)]
    assert main(["run", "--url", good.url, *key, *options]) == 0
    assert good.keys == {"Bearer sk-secret"}
    for path in tmp_path.rglob("*.*"):
        assert "sk-secret" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "--url", "http://127.0.0.1:9", "--workload", "nothing"], "no workload 'nothing'"),
        (["compare", "--server", "a=nowhere"], "'nowhere' is neither a URL nor a server"),
        (["compare", "--server", "a=http://x", "--server", "a=http://y"], "have one name"),
        (["compare", "--server", "a=http://x", "--baseline", "b"], "--baseline b"),
        (["compare", "--server", "a=http://x", "--body", "b={}"], "no server of that name"),
        (["compare", "--server", "a=http://x", "--body", "a=[]"], "takes a JSON object"),
        (["compare", "--server", "a=http://x", "--dialect", "a=latin"], "no dialect 'latin'"),
    ],
)
def test_an_option_that_does_not_fit_is_named(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    assert complaint in capsys.readouterr().err


def test_a_server_that_refuses_everything_is_not_measured(
    good: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(FakeServer(lambda body: Reply(status=400))) as fake:
        assert main(["run", "--url", fake.url, "--clients", "1"]) == 1
        sides = ["--server", f"good={good.url}", "--server", f"stubborn={fake.url}"]
        counts = ["--clients", "1", "--requests", "2", "--repeats", "2"]
        assert main(["compare", *sides, *counts]) == 0
    printed = capsys.readouterr().out
    assert "| good | 4 of 4 |" in printed
    assert printed.count("stubborn, character: none of the first requests was answered: 400") == 1
