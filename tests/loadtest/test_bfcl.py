"""The leaderboard's questions and its rule: by hand, and against its checker if installed.

``python -m loadtest bfcl`` downloads the package to ``.cache``; without it the last test is
skipped.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import json
import random
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest

from loadtest.__main__ import main
from loadtest.dialects import DIALECTS
from loadtest.installing import NotInstalled
from loadtest.requests import Call, Content, Tools
from loadtest.workloads import bfcl, workload
from loadtest.workloads.bfcl_rule import api_name, are_right
from tests.loadtest.fake_server import Body, FakeServer, Reply, serving

Calls = list[tuple[str, dict[str, Any]]]


def function(name: str = "f", required: Sequence[str] = (), **properties: Any) -> dict[str, Any]:
    kinds = {key: {"type": kind} for key, kind in properties.items() if isinstance(kind, str)}
    described = {"type": "dict", "properties": properties | kinds, "required": list(required)}
    return {"name": name, "description": "Does it.", "parameters": described}


LIST = {"type": "array", "items": {"type": "string"}}
FLOATS = {"type": "array", "items": {"type": "float"}}
DICTS = {"type": "array", "items": {"type": "dict"}}


@pytest.mark.parametrize(
    ("kind", "listed", "value", "right"),
    [
        ("string", ["New York, NY"], "new york NY", True),
        ("string", ["New York, NY"], "New York", False),
        ("string", ["it's"], 'it"s', True),
        ("string", ["a", ""], "", True),  # an optional argument may be empty
        ("integer", [5], 5, True),
        ("integer", [5], 5.0, False),
        ("integer", [5], "5", False),
        ("integer", [1], True, False),
        ("float", [5.0], 5, True),
        ("float", [0.1], 0.1, True),
        ("boolean", [True], True, True),
        ("boolean", [True], False, False),
        ("integer", ["my_variable"], "my_variable", True),  # the name of a variable
        ("integer", ["my_variable"], "My_Variable", False),
        (LIST, [["a b", "C"]], ["AB", "c"], True),
        (LIST, [["a", "b"]], ["b", "a"], False),
        (LIST, [["a"]], [1], False),
        (FLOATS, [[1.0]], [1], False),
        (LIST, ["the_list"], "the_list", True),
        (LIST, [["a"], ""], [], True),
        ("dict", [{"k": ["V", 3], "o": ["", 1]}], {"k": "v"}, True),
        ("dict", [{"k": ["V", 3], "o": ["", 1]}], {"k": 3, "o": 1}, True),
        ("dict", [{"k": ["V", 3], "o": ["", 1]}], {"o": 1}, False),
        ("dict", [{"k": ["V"]}], {"k": "v", "more": 1}, False),
        (DICTS, [[{"k": [1]}, {"k": [2]}]], [{"k": 1}, {"k": 2}], True),
        (DICTS, [[{"k": [1]}, {"k": [2]}]], [{"k": 2}, {"k": 1}], False),
        (DICTS, [[{"k": [1]}]], ["k"], False),
    ],
)
def test_a_value_is_right_if_the_answer_lists_it(
    kind: Any, listed: Any, value: Any, right: bool
) -> None:
    calls = [("f", {"a": value})]
    assert are_right("simple_python", [function(a=kind)], [{"f": {"a": listed}}], calls) == right


@pytest.mark.parametrize(
    ("calls", "right"),
    [
        ([("a_b", {"x": 1})], True),
        ([("a_b", {"x": 1, "y": 2})], True),
        ([("a_b", {"x": 1, "y": 3})], False),
        ([("a_b", {"x": 1, "z": 3})], False),
        ([("a_b", {"y": 2})], False),
        ([("a.b", {"x": 1})], False),
        ([("a_b", {"x": 1}), ("a_b", {"x": 1})], False),
        ([], False),
    ],
)
def test_arguments_are_those_of_the_answer_and_no_others(calls: Calls, right: bool) -> None:
    functions = [function("a.b", ["x"], x="integer", y="integer", z="integer")]
    answers = [{"a.b": {"x": [1], "y": ["", 2]}}]
    assert are_right("live_simple", functions, answers, calls) == right


@pytest.mark.parametrize("arguments", ["[]", "null", "3", '"x"', "{"])
def test_arguments_that_are_no_object_are_wrong(arguments: str) -> None:
    functions = [function("f", ["x"], x="integer")]
    expected = bfcl.Expected("simple_python", functions, [{"f": {"x": [1]}}])
    assert expected.right(Content("", [Call("f", arguments)], None)) == (0, 1)
    assert expected.right(Content("", [Call("f", '{"x": 1}')], None)) == (1, 1)


def test_an_argument_that_the_answer_wants_may_be_optional_in_the_schema() -> None:
    functions, answers = [function("f", [], x="integer")], [{"f": {"x": [1]}}]
    assert not are_right("simple_python", functions, answers, [("f", {})])


def test_parallel_calls_come_in_any_order_and_each_counts_once() -> None:
    functions = [function("f", [], x="integer"), function("g", [], x="integer")]
    answers = [{"f": {"x": [1, 2]}}, {"f": {"x": [2]}}, {"g": {"x": [1]}}]
    right = [("g", {"x": 1}), ("f", {"x": 1}), ("f", {"x": 2})]
    assert are_right("parallel_multiple", functions, answers, right)
    assert not are_right("parallel_multiple", functions, answers, [right[0], right[1], right[1]])
    assert not are_right("parallel_multiple", functions, answers, right[:2])


@pytest.mark.parametrize(
    ("part", "kind", "listed", "text", "right"),
    [
        ("simple_java", "integer", [3], "3", True),
        ("simple_java", "integer", [3], 3, False),
        ("simple_java", "long", [3], "3L", True),
        ("simple_java", "long", [3], "3", False),
        ("simple_java", "float", [1.5], "1.5f", True),
        ("simple_java", "double", [1500.0], "1.5e3", True),
        ("simple_java", "boolean", [True], "true", True),
        ("simple_java", "String", ["x"], "x", True),
        ("simple_java", "any", ["obj"], "obj", True),
        ("simple_java", "HashMap", [{"k": [1]}], 'new HashMap<>() {{ put("k", 1); }}', True),
        ("simple_java", "HashMap", [{}], "new HashMap<String, Integer>()", True),
        ("simple_java", {"type": "Array", "items": {"type": "integer"}}, [[1, 2]],
         "new int[]{1, 2}", True),
        ("simple_java", {"type": "ArrayList", "items": {"type": "String"}}, [["a", "b"]],
         'new ArrayList<>(Arrays.asList("a", "b"))', True),
        ("simple_java", {"type": "ArrayList", "items": {"type": "integer"}}, [[7]],
         "new ArrayList<Integer>() {{ add(7); }}", True),
        ("simple_javascript", "String", ["x"], "'x'", True),
        ("simple_javascript", "String", ["x"], "x", True),
        ("simple_javascript", "Bigint", [12], "12n", True),
        ("simple_javascript", "Boolean", [False], "false", True),
        ("simple_javascript", "dict", [{"a": [1], "b": [[1, "x"]]}], "{a: 1, 'b': [1, 'x']}", True),
        ("simple_javascript", {"type": "array", "items": {"type": "String"}}, [["a", "b"]],
         "['a', \"b\"]", True),
        ("simple_javascript", {"type": "array", "items": {"type": "array"}}, [[[1, 2], [3]]],
         "new Array([1, 2], [3])", True),
    ],
)  # fmt: skip
def test_arguments_of_java_and_javascript_are_texts_of_the_language(
    part: str, kind: Any, listed: Any, text: Any, right: bool
) -> None:
    calls = [("f", {"a": text})]
    assert are_right(part, [function(a=kind)], [{"f": {"a": listed}}], calls) == right


QUESTIONS = [
    {
        "id": f"{number}",
        "question": [[{"role": "user", "content": f"question {number}"}]],
        "function": [function("geo.area", ["base"], base="float", tags={"type": "tuple"})],
    }
    for number in range(200)
]
ANSWERS = [{"id": f"{n}", "ground_truth": [{"geo.area": {"base": [float(n)]}}]} for n in range(200)]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small package in place of the leaderboard's."""
    file = tmp_path / "bfcl.whl"
    with ZipFile(file, "w") as wheel:
        for folder, rows in (("", QUESTIONS), ("possible_answer/", ANSWERS)):
            text = "\n".join(map(json.dumps, rows))
            wheel.writestr(f"bfcl_eval/data/{folder}BFCL_v4_simple_python.json", text)
    monkeypatch.setattr(bfcl, "CACHE", tmp_path)
    monkeypatch.setattr(bfcl, "_FILE", file.name)
    monkeypatch.setattr(bfcl, "_DIGEST", sha256(file.read_bytes()).hexdigest())
    bfcl.questions.cache_clear()
    yield file
    bfcl.questions.cache_clear()


@pytest.mark.usefixtures("package")
def test_a_question_is_asked_in_the_words_of_json_schema_and_openai() -> None:
    request = workload("bfcl:simple_python").request(3, "")
    assert request.messages == [{"role": "user", "content": "question 3"}]
    assert isinstance(request.constraint, Tools)
    (tool,) = request.constraint.functions
    assert tool["name"] == "geo_area"
    assert tool["parameters"]["type"] == "object"
    kinds = {name: each["type"] for name, each in tool["parameters"]["properties"].items()}
    assert kinds == {"base": "number", "tags": "array"}
    assert request.expected is not None
    right, wrong = ([Call("geo_area", json.dumps({"base": base}))] for base in (3, 4))
    assert request.expected.right(Content("", right, "stop")) == (1, 1)
    assert request.expected.right(Content("", wrong, "stop")) == (0, 1)
    assert request.expected.right(Content("", [Call("geo_area", "{")], "stop")) == (0, 1)


@pytest.mark.usefixtures("package")
def test_no_round_of_64_asks_what_another_has_asked_and_sharing_arms_are_asked_the_same() -> None:
    def asked(start: int) -> list[Any]:
        requests = (workload("bfcl:simple_python").request(start + n, "") for n in range(64))
        return [request.messages[0]["content"] for request in requests]

    rounds = [asked(number * 1_200) for number in range(3)]
    assert len({each for some in rounds for each in some}) == 3 * 64
    assert asked(1_200_000 + 1_200) == rounds[1]


@pytest.mark.usefixtures("package")
def test_a_server_that_makes_no_calls_is_asked_for_them_as_json() -> None:
    dialect = DIALECTS["llama.cpp-json"]
    request = dialect.asked(workload("bfcl:simple_python").request(3, ""))
    body = dialect.body(request, "m", 0, 0.0)
    assert "tools" not in body
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert '"name":"geo_area"' in body["messages"][0]["content"]
    schema = body["response_format"]["schema"]["properties"]["tool_calls"]
    assert schema["maxItems"] == 1
    assert schema["items"]["anyOf"][0]["properties"]["name"] == {"const": "geo_area"}
    assert request.expected is not None
    answer = {"tool_calls": [{"name": "geo_area", "arguments": {"base": 3}}]}
    assert request.expected.right(Content(json.dumps(answer), [], "stop")) == (1, 1)
    assert request.expected.right(Content("It is 3.", [], "stop")) == (0, 1)


def test_a_file_that_is_not_the_known_one_is_not_read(package: Path) -> None:
    package.write_bytes(package.read_bytes() + b"more")
    with pytest.raises(NotInstalled, match="delete it"):
        workload("bfcl:simple_python").request(0, "")


def test_an_unknown_part_is_named() -> None:
    with pytest.raises(ValueError, match="'memory'"):
        workload("bfcl:memory")


@pytest.mark.usefixtures("package")
def test_every_question_is_asked_once_and_the_table_says_how_many_are_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def even(body: Body) -> Reply:
        number = int(body["messages"][0]["content"].split()[1])
        arguments = json.dumps({"base": number - number % 2, "tags": []})
        call = {"index": 0, "id": "1", "function": {"name": "geo_area", "arguments": arguments}}
        return Reply([{"tool_calls": [call]}], "tool_calls", {"completion_tokens": 3})

    def untagged(body: Body) -> Reply:
        reply = even(body)
        call = reply.deltas[0]["tool_calls"][0]["function"]
        call["arguments"] = call["arguments"].replace(', "tags": []', "")
        return reply

    with serving(FakeServer(untagged)) as fake:
        options = ["--url", fake.url, "--workload", "bfcl:simple_python", "--clients", "4"]
        assert main(["bfcl", *options, "--warm-up", "0"]) == 0
    asked = [body["messages"][0]["content"] for body in fake.bodies]
    assert sorted(asked) == sorted(f"question {number}" for number in range(200))
    assert {
        (body["temperature"], body["tool_choice"], body["parallel_tool_calls"])
        for body in fake.bodies
    } == {(0.0, "required", False)}
    assert "| 200 of 200 | 100 of 200 |" in capsys.readouterr().out


@pytest.mark.skipif(not (bfcl.CACHE / bfcl._FILE).exists(), reason="bfcl-eval is not in .cache")
def test_the_rule_is_the_leaderboards_own(monkeypatch: pytest.MonkeyPatch) -> None:
    checker, languages = _leaderboard(monkeypatch)
    rng = random.Random(0)
    seen = set()
    for part in bfcl.PARTS:
        language = getattr(languages, part.removeprefix("simple_").upper(), languages.PYTHON)
        for question in bfcl.questions(part)[:100]:
            functions, answers = question["function"], question["ground_truth"]
            for calls in _guesses(rng, functions, answers):
                given = [{name: copy.deepcopy(arguments)} for name, arguments in calls]
                with contextlib.redirect_stdout(None):
                    try:
                        theirs = checker(functions, given, answers, language, part, "")["valid"]
                    except (AttributeError, IndexError, KeyError, TypeError):
                        theirs = False  # the checker does not expect such a value
                assert are_right(part, functions, answers, calls) == theirs, (question, calls)
                seen.add((part, theirs))
    assert len(seen) == 2 * len(bfcl.PARTS)


def _leaderboard(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """The leaderboard's checker and languages, from its package, without its list of models."""
    models: Any = ModuleType("bfcl_eval.constants.model_config")
    models.MODEL_CONFIG_MAPPING = {"": SimpleNamespace(underscore_to_dot=True)}
    monkeypatch.syspath_prepend(str(bfcl.CACHE / bfcl._FILE))
    monkeypatch.setitem(sys.modules, models.__name__, models)
    checker = importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")
    return checker.ast_checker, importlib.import_module("bfcl_eval.constants.enums").Language


def _guesses(
    rng: random.Random, functions: Sequence[Any], answers: Sequence[dict[str, Any]]
) -> Iterator[Calls]:
    """Right calls, and calls with one or two random changes."""
    for changes in (0, 1, 1, 2):
        calls: Calls = []
        for answer in answers:
            ((name, values),) = answer.items()
            kept = {
                key: some for key, some in values.items() if "" not in some or rng.random() < 0.5
            }
            picked = {key: _picked(rng, some) for key, some in kept.items() if some}
            calls.append((api_name(name), picked))
        for _ in range(changes):
            at = rng.randrange(len(calls))
            name, arguments = calls[at]
            what = rng.random()
            if what < 0.1:
                calls.append(calls[at])
            elif what < 0.2:
                calls[at] = api_name(rng.choice(functions)["name"]), arguments
            elif arguments and what < 0.3:
                del arguments[rng.choice(list(arguments))]
            elif arguments:
                key = rng.choice(list(arguments))
                arguments[key] = _changed(rng, arguments[key])
        rng.shuffle(calls)
        yield calls


def _picked(rng: random.Random, values: Sequence[Any]) -> Any:
    value = rng.choice(values)
    if isinstance(value, list):
        return [_picked(rng, [each]) for each in value]
    if isinstance(value, dict) and all(isinstance(each, list) for each in value.values()):
        return {key: _picked(rng, each) for key, each in value.items() if each != [""]}
    return value


def _changed(rng: random.Random, value: Any) -> Any:
    others: list[Any] = [str(value), None, 1, 1.0, True, [], ["a"], {}]
    match value:
        case str():
            others += [value.upper(), f" {value}-", value + "x", value.replace("'", '"')] * 4
        case int() | float():
            others += [value + 1, float(value), int(value)] * 4
        case [first, *rest]:
            others += [[*rest, first], rest, [_changed(rng, first), *rest]] * 4
        case dict() if value:
            key = rng.choice(list(value))
            others += [{**value, key: _changed(rng, value[key])}] * 8
    return copy.deepcopy(rng.choice(others))
