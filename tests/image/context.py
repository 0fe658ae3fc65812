"""The files that a build may COPY: those that .dockerignore does not exclude.

Source: docs.docker.com/build/concepts/context: the last line that matches a path or a folder
above it decides; a line that begins with ``!`` includes the path again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath


def read_patterns(path: Path) -> list[str]:
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def is_in_context(path: PurePosixPath, patterns: Sequence[str]) -> bool:
    """Whether ``path``, relative to the context, is included."""
    included = True
    folders = [str(each) for each in (path, *path.parents)]
    for pattern in patterns:
        glob = _regex(pattern.removeprefix("!"))
        if any(glob.fullmatch(folder) for folder in folders):
            included = pattern.startswith("!")
    return included


def _regex(pattern: str) -> re.Pattern[str]:
    """``*`` matches anything within a name, ``**/`` any number of folders, even none."""
    parts = re.split(r"(\*\*/|\*)", pattern.strip("/"))
    meaning = {"**/": r"(?:.*/)?", "*": r"[^/]*"}
    return re.compile("".join(meaning.get(part, re.escape(part)) for part in parts))
