from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import outlines.types
import pytest
from openai.lib._parsing._completions import type_to_response_format_param
from pydantic import BaseModel, Field, TypeAdapter
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypedDict

from app.constraint import from_python_type
from app.core.errors import InvalidSchema, UnsupportedSchema
from app.core.specs import Choice, Grammar, JsonSchema, Regex
from tests.constraint.walks import Walker

terms: Any = outlines.types  # Any: its annotations lack the addition of a string to a term


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    street: str
    number: int | None = None


class Tree(BaseModel):
    value: int
    children: list[Tree] = Field(default_factory=list, description="below")


class Person(BaseModel):
    """A person."""

    name: str = Field(description="full name")
    home: Address = Field(description="where they live")
    work: Address | None = Field(None, description="where they work")
    colours: list[Colour] = []
    favourite: Colour = Field(Colour.RED, title="Favourite")
    either: Address | int | None
    tags: dict[str, str]
    tree: Tree
    level: Literal[1, 2] = 1


@pydantic_dataclass
class Point:
    x: float
    y: float = 0.0


@dataclasses.dataclass
class Plain:
    a: int
    b: list[str] = dataclasses.field(default_factory=list)


class Typed(TypedDict):
    k: str


@pytest.mark.parametrize("python_type", [Person, Address, Tree, Point])
def test_a_strict_schema_is_the_one_that_openais_sdk_sends(python_type: Any) -> None:
    sent: Any = type_to_response_format_param(python_type)
    spec = from_python_type(python_type, strict=True)
    assert isinstance(spec, JsonSchema)
    assert json.dumps(spec.schema) == json.dumps(sent["json_schema"]["schema"])


@pytest.mark.parametrize("python_type", [Person, Point, Plain, Typed])
def test_without_strict_the_schema_is_the_types_own(python_type: Any) -> None:
    schema = TypeAdapter(python_type).json_schema()
    assert from_python_type(python_type) == JsonSchema(schema)
    assert from_python_type(python_type, close_objects=True) == JsonSchema(schema, True)


@pytest.mark.parametrize(
    ("python_type", "spec"),
    [
        (Colour, Choice(("red", "blue"))),
        (Literal["a", "b/c"], Choice(("a", "b/c"))),
        (terms.Choice(["x", "y"]), Choice(("x", "y"))),
        (terms.Regex("a+"), Regex("a+")),
        (terms.CFG('start: "a"'), Grammar('start: "a"')),
        (terms.JsonSchema('{"type": "null"}'), JsonSchema({"type": "null"})),
    ],
)
def test_what_has_a_specification_of_its_own_becomes_it(python_type: Any, spec: Any) -> None:
    assert from_python_type(python_type) == spec


@pytest.mark.parametrize(
    "python_type",
    [int, float, bool, datetime.date, datetime.datetime, list[int], tuple[int, str], dict[str, int],
     int | None, Literal["a", 1], terms.ipv4, terms.at_least(2, terms.digit) + "//x"],
)  # fmt: skip
def test_other_types_have_the_texts_that_outlines_gives_them(python_type: Any) -> None:
    walker = Walker.of(from_python_type(python_type))
    pattern = re.compile(terms.dsl.to_regex(terms.dsl.python_types_to_terms(python_type)))
    for seed in range(30):
        assert pattern.fullmatch(walker.sample(random.Random(seed), steps=20).decode())


def test_a_schema_inside_other_terms_is_followed_as_a_schema() -> None:
    walker = Walker.of(from_python_type(list[Address]))
    assert walker.accepts('[{"street": "a/\\"b"}, {"street": "", "number": 3}]')
    assert not walker.accepts('[{"street": 1}]')
    path = terms.exactly(2, terms.JsonSchema(Typed)) + "\n" + terms.Regex("/+[^/]/")
    walker = Walker.of(from_python_type(path))
    assert walker.accepts('{"k": "v"}{"k": "w"}\n//é/')
    assert not walker.accepts('{"k": "v"}\n//é/')


def test_what_outlines_does_not_convert_is_refused() -> None:
    with pytest.raises(InvalidSchema, match="complex cannot be converted"):
        from_python_type(complex)


def test_terms_that_cannot_be_followed_exactly_are_refused() -> None:
    with pytest.raises(UnsupportedSchema, match="whitespace_pattern"):
        from_python_type(terms.JsonSchema(Typed, whitespace_pattern=" ?"))
    with pytest.raises(UnsupportedSchema, match="CFG"):
        from_python_type(terms.CFG('start: "a"') + "b")


def test_outlines_is_imported_on_use_alone() -> None:
    script = (
        "import sys; from app.constraint import compile_program, JsonSchema;"
        "compile_program(JsonSchema({'type': 'null'}));"
        "assert 'outlines' not in sys.modules and 'pydantic' not in sys.modules;"
        "from app.constraint import from_python_type; from pydantic import BaseModel;"
        "from_python_type(type('A', (BaseModel,), {'__annotations__': {'b': int}}), strict=True);"
        "assert 'outlines' not in sys.modules and 'diskcache' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_converting_types_opens_no_cache_of_pickles(tmp_path: Path) -> None:
    """CVE-2025-69872: anyone who can write to diskcache's folder can run code in its readers."""
    script = (
        "import datetime, typing; from app.constraint import compile_program, from_python_type;"
        "from outlines import caching, types;"
        "kinds = typing.Literal['a', 1], datetime.date, types.email, types.CFG('start: \"a\"');"
        "[compile_program(from_python_type(kind)) for kind in kinds];"
        "assert caching.get_cache.cache_info().currsize == 0"
    )
    environment = {**os.environ, "OUTLINES_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
    assert not list(tmp_path.iterdir())
