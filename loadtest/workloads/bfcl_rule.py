"""Checks function calls by the rule of the Berkeley Function-Calling Leaderboard.

The rule of version 4 (``bfcl-eval`` 2026.3.23), reimplemented from its checker: the number of calls
and their functions must be right, all required arguments present and no argument that the answer
does not list, and each value one of those that the answer lists. Comparison of strings ignores
case, blanks and ``,./-_*^``. Arguments of Java and JavaScript functions are texts in that language,
parsed as in the leaderboard. Calls that crash the leaderboard's own checker are wrong here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Function = Mapping[str, Any]
"""A function as in the leaderboard's files; ``parameters`` use its own type names."""
Arguments = Mapping[str, Any]

_PYTHON = {
    "string": str, "integer": int, "float": float, "boolean": bool, "array": list, "tuple": list,
    "dict": dict, "any": str,
}  # fmt: skip
_JAVA = {
    "byte": int, "short": int, "integer": int, "float": float, "double": float, "long": int,
    "boolean": bool, "char": str, "Array": list, "ArrayList": list, "HashMap": dict, "String": str,
    "any": str,
}  # fmt: skip
_JAVASCRIPT = {
    "String": str, "integer": int, "float": float, "Bigint": int, "Boolean": bool, "dict": dict,
    "array": list, "any": str,
}  # fmt: skip
_TYPES = {"java": _JAVA, "javascript": _JAVASCRIPT, "python": _PYTHON}
_IGNORED = re.compile(r"[ ,./\-_*^]")
_OMITTED = ""
"""A value of an answer which means that the argument may be omitted."""


def are_right(
    category: str,
    functions: Sequence[Function],
    answers: Sequence[Mapping[str, Any]],
    calls: Sequence[tuple[str, Arguments]],
) -> bool:
    """Whether ``calls``, pairs of a function's name and arguments, match ``answers``.

    ``answers`` are the ``ground_truth`` of a question of ``category``: for each call its function
    and, by argument, the correct values. Calls may be in any order. Names are compared in the form
    of OpenAI's API, with ``_`` for dots.
    """
    if len(calls) != len(answers):
        return False
    language = category.removeprefix("simple_")
    types = _TYPES.get(language, _PYTHON)
    left = list(calls)
    for answer in answers:
        ((name, values),) = answer.items()
        function = next((each for each in functions if each["name"] == name), None)
        if "parallel" not in category and "multiple" not in category:
            function = functions[0]
        if function is None:
            return False
        right = (at for at, call in enumerate(left) if _is_right(function, values, call, types))
        found = next(right, None)
        if found is None:
            return False
        del left[found]
    return True


def _is_right(
    function: Function,
    answer: Mapping[str, Sequence[Any]],
    call: tuple[str, Arguments],
    types: Mapping[str, type],
) -> bool:
    name, arguments = call
    parameters = function["parameters"]
    if name != api_name(function["name"]):
        return False
    if any(required not in arguments for required in parameters.get("required", ())):
        return False
    for argument, value in arguments.items():
        described = parameters["properties"].get(argument)
        if described is None or argument not in answer:
            return False
        try:
            if not _is_value(value, answer[argument], described, types):
                return False
        except (AttributeError, IndexError, KeyError, TypeError):
            return False
    return all(each in arguments or _OMITTED in values for each, values in answer.items())


def api_name(name: str) -> str:
    """A function's name in the form of OpenAI's API."""
    return name.replace(".", "_")


def _is_value(
    value: Any, answers: Sequence[Any], described: Mapping[str, Any], types: Mapping[str, type]
) -> bool:
    kind = described["type"]
    expected, items = types[kind], None
    if types is not _PYTHON:
        if not isinstance(value, str):
            return False
        inner = described["items"]["type"] if kind in ("Array", "ArrayList", "array") else None
        items = None if inner is None else types[inner]
        value = _java(value, kind, inner) if types is _JAVA else _javascript(value, kind, inner)
    elif kind in ("array", "tuple"):
        items = types[described["items"]["type"]]
    elif kind == "float" and type(value) is int:
        value = float(value)
    usual = _usual_type(answers)
    if not _has_type(value, answers, expected, items):
        return False
    if usual in (None, expected):  # otherwise the answer is the name of a variable
        if expected is dict:
            return any(_is_dict(value, each) for each in answers if each != _OMITTED)
        if expected is list and items is dict:
            return any(_are_dicts(value, each) for each in answers)
        if expected is str:
            return _plain(value) in [_plain(each) for each in answers if isinstance(each, str)]
        if expected is list:
            return _plain_items(value) in [_plain_items(each) for each in answers]
    return value in answers


def _usual_type(answers: Sequence[Any]) -> type | None:
    return next((type(each) for each in answers if each != _OMITTED), None)


def _has_type(value: Any, answers: Sequence[Any], expected: type, items: type | None) -> bool:
    if type(value) is not expected:
        return type(value) is _usual_type(answers)
    if items is None or not isinstance(value, list):
        return True
    # An answer that is not a list does not restrict items.
    return any(
        not isinstance(each, list) or all(_has_type(item, each, items, None) for item in value)
        for each in answers
    )


def _is_dict(value: Mapping[str, Any], answer: Mapping[str, Sequence[Any]]) -> bool:
    return all(
        key in answer and _plain(each) in [_plain(right) for right in answer[key]]
        for key, each in value.items()
    ) and all(key in value or _OMITTED in right for key, right in answer.items())


def _are_dicts(value: Sequence[Any], answer: Sequence[Any]) -> bool:
    # The answer for an item is one dict; an empty list is only right if the answer is empty.
    return len(value) == len(answer) and all(
        right != _OMITTED and _is_dict(each, right)
        for each, right in zip(value, answer, strict=True)
    )


def _plain(value: Any) -> Any:
    return _IGNORED.sub("", value).lower().replace("'", '"') if isinstance(value, str) else value


def _plain_items(values: Sequence[Any]) -> list[Any]:
    return [_plain(each) for each in values]


_INTEGER = re.compile(r"-?\d+$")
_JAVA_NUMBER = r"-?\d+(\.\d+)?([eE][+-]?\d+)?"
_JAVA_FORMS: Mapping[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    **dict.fromkeys(("byte", "short", "integer"), (_INTEGER, int)),
    "float": (re.compile(_JAVA_NUMBER + r"[fF]$"), lambda text: float(text[:-1])),
    "double": (re.compile(_JAVA_NUMBER + r"$"), float),
    "long": (re.compile(r"-?\d+[lL]$"), lambda text: int(text[:-1])),
    "boolean": (re.compile(r"(true|false)$"), lambda text: text == "true"),
}
_JAVASCRIPT_FORMS: Mapping[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "integer": (_INTEGER, int),
    "float": (re.compile(r"-?\d+(\.\d+)?$"), float),
    "Bigint": (re.compile(r"-?\d+n$"), lambda text: int(text[:-1])),
    "Boolean": (re.compile(r"(true|false)$"), lambda text: text == "true"),
    "String": (re.compile(r"(\".*\"|'.*'|[\"'])\Z", re.DOTALL), lambda text: text[1:-1]),
}


def _java(text: str, kind: str, items: str | None = None) -> Any:
    """The value of a Java expression; its text if it is not of ``kind``."""
    if kind in _JAVA_FORMS:
        form, read = _JAVA_FORMS[kind]
        return read(text) if form.match(text) else text
    if kind == "HashMap":
        return _java_map(text)
    if kind == "Array":
        listed = re.search(r"new\s+\w+\[\]\s*\{(.*?)\}", text)
        if listed is None:
            return text
        parts = [part.strip() for part in listed[1].split(",") if part.strip()]
        return [_java(part, items) if items else _java_literal(part) for part in parts]
    if kind == "ArrayList":
        return _java_list(text, items)
    return text


def _java_list(text: str, items: str | None) -> Any:
    def item(part: str) -> Any:
        if items in ("char", "String"):
            return part[1:-1]
        return _java(part, items) if items else _java_literal(part)

    if listed := re.search(r"new\s+ArrayList<\w*>\(Arrays\.asList\((.+?)\)\)", text):
        return [item(part.strip()) for part in listed[1].split(",")]
    if added := re.search(r"new\s+ArrayList<\w*>\(\)\s*\{\{\s*(.+?)\s*\}\}", text, re.DOTALL):
        return [item(part.strip()) for part in re.findall(r"add\((.+?)\)", added[1])]
    return [] if re.search(r"new\s+ArrayList<\w*>\(\)", text) else text


def _java_map(text: str) -> Any:
    body = r"new\s+HashMap<.*?>\s*\(\)\s*\{\s*\{?\s*(.*?)\s*\}?\s*\}"
    if put := re.search(body, text, re.DOTALL):
        pairs = re.findall(r"put\(\"(.*?)\",\s*(.*?)\)", put[1])
        return {key: _java_literal(value.strip()) for key, value in pairs}
    return {} if re.search(r"new\s+HashMap<.*?>\s*\(\)", text) else text


def _java_literal(text: str) -> Any:
    if text.startswith('"') and text.endswith('"'):
        return text[1:-1]
    for kind in ("boolean", "long", "float"):
        value = _java(text, kind)
        if value is not text:
            return value
    return _number(text)


def _number(text: str) -> Any:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _javascript(text: str, kind: str, items: str | None = None) -> Any:
    """The value of a JavaScript expression; its text if it is not of ``kind``."""
    if kind in _JAVASCRIPT_FORMS:
        form, read = _JAVASCRIPT_FORMS[kind]
        return read(text) if form.match(text) else text
    if kind == "array":
        return _javascript_array(text.strip(), items)
    return _javascript_object(text.strip()) if kind == "dict" else text


def _javascript_array(text: str, items: str | None = None) -> Any:
    rows = r"\[\s*\[.*?\]\s*(,\s*\[.*?\]\s*)*\]|\bnew\s+Array\(\s*\[.*?\]\s*(,\s*\[.*?\]\s*)*\)"
    if nested := re.match(rows, text):
        found = [row.strip() for row in re.findall(r"\[(.*?)\]", nested[0])]
        found[0] = found[0].removeprefix("[")
        return [[_javascript_literal(part) for part in row.split(",")] for row in found]
    flat = re.match(r"\[(.*?)\]|\bnew\s+Array\((.*?)\)", text)
    if flat is None:
        return text
    inside = (flat[1] if flat[1] is not None else flat[2] or "").strip()
    parts = [part.strip() for part in inside.split(",")] if inside else []
    if items is None:
        return [_javascript_literal(part) for part in parts]
    if items not in _JAVASCRIPT:
        return text
    return [_javascript(part, items) for part in parts]


def _javascript_object(text: str) -> Any:
    if text == "{}":
        return {}
    body = re.match(r"\{(.*?)\}", text)
    if body is None:
        return text
    found: dict[str, Any] = {}
    for key, value in re.findall(r"([^:]+):\s*(.*?)(?:,\s*(?=[^,]+:)|$)", body[1]):
        value = value.strip()
        if value.startswith("[") and value.endswith("]"):
            read: Any = _javascript_array(value)
        elif value.startswith("{") and value.endswith("}"):
            read = _javascript_object(value)
        else:
            read = _javascript_literal(value.strip("'\""))
        found[key.strip().strip("'\"")] = read
    return found


def _javascript_literal(text: str) -> Any:
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    if text[:1] in ("'", '"') and text.endswith(text[:1]):
        return text[1:-1]
    return _number(text)
