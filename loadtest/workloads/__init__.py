"""The workloads by name; some take an argument after a colon, as in ``free:256``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from loadtest.workloads.base import Mixed, Nonces, Workload
from loadtest.workloads.bfcl import function_calls
from loadtest.workloads.extraction import LongDocument, ShortTexts
from loadtest.workloads.lmsys import Coordinates, FreeText, character, city
from loadtest.workloads.maskbench import maskbench
from loadtest.workloads.tools import ToolCalls

__all__ = ["DESCRIPTIONS", "Nonces", "Workload", "workload"]

_FREE_TOKENS = 80
_DOCUMENT_CHARACTERS = 2_000


def _lmsys(name: str) -> Workload:
    return Mixed(name, [character("character"), city("city")])


def _mixed(name: str) -> Workload:
    free = FreeText("free", _FREE_TOKENS)
    return Mixed(name, [character("character"), free, ToolCalls("tools"), free])


_SIMPLE: Mapping[str, tuple[Callable[[str], Workload], str]] = MappingProxyType(
    {
        "character": (character, "LMSYS's character sheet, with patterns for bounded strings"),
        "city": (city, "LMSYS's city sheet"),
        "lmsys": (_lmsys, "character and city sheets in turn"),
        "one": (character, "same as character: one schema for all requests"),
        "fresh": (
            lambda name: character(name, always_fresh=True),
            "the character sheet, with a new property name in every request",
        ),
        "pattern": (Coordinates, "a line that matches a regular expression"),
        "tools": (ToolCalls, "one or more calls of three functions"),
        "extraction": (ShortTexts, "the demo model's held-out extraction tasks"),
        "maskbench": (maskbench, "MaskBench's schemas, with new property names in every request"),
        "maskbench-free": (
            lambda name: maskbench(name, constrained=False),
            "the prompts of maskbench without a schema, 16 tokens",
        ),
        "mixed": (_mixed, "character sheets, free text, function calls"),
    }
)
_WITH_ARGUMENT: Mapping[str, tuple[Callable[[str, int], Workload], int, str]] = MappingProxyType(
    {
        "free": (FreeText, _FREE_TOKENS, "the character prompts without a schema, N tokens"),
        "document": (
            LongDocument,
            _DOCUMENT_CHARACTERS,
            "six values from a document of N characters",
        ),
    }
)
DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        **{name: text for name, (_, text) in _SIMPLE.items()},
        **{
            f"{name}[:N]": f"{text} (default: {default})"
            for name, (_, default, text) in _WITH_ARGUMENT.items()
        },
    }
)


def workload(asked: str) -> Workload:
    """The workload with this name, or ``bfcl:PART``. Raises ValueError for an unknown name."""
    name, _, argument = asked.partition(":")
    if name == "bfcl":
        return function_calls(asked, argument)
    if name in _WITH_ARGUMENT:
        build, default, _ = _WITH_ARGUMENT[name]
        return build(asked, int(argument) if argument else default)
    if asked not in _SIMPLE:
        raise ValueError(f"there is no workload {asked!r}; known: " + ", ".join(DESCRIPTIONS))
    return _SIMPLE[asked][0](asked)
