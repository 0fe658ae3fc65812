"""Reads a Dockerfile into instructions and stages; no heredocs, no mounts, no parser directives.

Source: the Dockerfile reference (docs.docker.com/reference/dockerfile).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_FLAG = re.compile(r"--([a-z-]+)=(\S+)\s+")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, its lines joined, without comments."""

    name: str
    text: str
    """Everything after the name and the flags."""
    flags: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        """The strings of the exec form, or the words of the shell form without quotes."""
        if self.text.startswith("["):
            return [str(word) for word in json.loads(self.text)]
        return shlex.split(self.text)

    @property
    def pairs(self) -> dict[str, str]:
        """Names and values of ``ENV``; the name of ``ARG`` and its default or ``""``."""
        return {name: value for name, _, value in (word.partition("=") for word in self.words)}


@dataclass(frozen=True, slots=True)
class Stage:
    """The instructions from one ``FROM`` to the next."""

    image: str
    name: str
    instructions: list[Instruction]

    def all(self, name: str) -> list[Instruction]:
        return [each for each in self.instructions if each.name == name]

    def last(self, name: str) -> Instruction:
        """The last instruction ``name``, which overrides earlier ones (``USER``, ``CMD``, ...)."""
        return self.all(name)[-1]

    @property
    def environment(self) -> dict[str, str]:
        """The variables of ``ENV`` as written, without substitution."""
        return {key: value for each in self.all("ENV") for key, value in each.pairs.items()}


def read_dockerfile(path: Path) -> list[Stage]:
    """The stages in order. Raises ``ValueError`` for an instruction before the first ``FROM``."""
    stages: list[Stage] = []
    for instruction in _instructions(path.read_text(encoding="utf-8")):
        if instruction.name == "FROM":
            image, *rest = instruction.words
            stages.append(Stage(image, rest[1] if rest else "", []))
        elif not stages:
            raise ValueError(f"{instruction.name} before FROM")
        else:
            stages[-1].instructions.append(instruction)
    return stages


def substitute(text: str, values: Mapping[str, str]) -> str:
    """``text`` with ``$NAME`` and ``${NAME}`` replaced; unknown variables are empty."""
    return _VARIABLE.sub(lambda match: values.get(match[1] or match[2], ""), text)


def _instructions(text: str) -> list[Instruction]:
    lines = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    joined = re.sub(r"\\\n", "", "\n".join(lines))
    return [_instruction(line) for line in joined.splitlines()]


def _instruction(line: str) -> Instruction:
    name, _, rest = line.strip().partition(" ")
    rest = rest.strip()
    flags: dict[str, str] = {}
    while match := _FLAG.match(rest):
        flags[match[1]] = match[2]
        rest = rest[match.end() :]
    return Instruction(name.upper(), rest, flags)
