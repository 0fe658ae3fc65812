"""Which names of a request may stand in labels and logs: those that this server gave out itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

OTHER = "other"
HIDDEN = "*"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_STEP = re.compile(r"\[(\d{1,6})\]|([^.\[\]]+)|\.")
_LONGEST_PARAM = 200


class KnownNames:
    """The paths and fields of an OpenAPI document; whatever else a client sends is ``other``."""

    def __init__(self, document: Mapping[str, Any], more_paths: Iterable[str] = ()) -> None:
        paths = {*document.get("paths", {}), *more_paths}
        self._exact = frozenset(path for path in paths if "{" not in path)
        self._templates: list[tuple[re.Pattern[str], str]] = [
            (re.compile(re.sub(r"\\\{.*?\\\}", ".+", re.escape(path)), re.DOTALL), path)
            for path in sorted(paths - self._exact)
        ]
        self._fields = frozenset(_field_names(document))

    @property
    def endpoints(self) -> frozenset[str]:
        """Every value that ``endpoint`` may give."""
        return self._exact | {path for _, path in self._templates} | {OTHER}

    def endpoint(self, path: str) -> str:
        """The route's path for a request's path."""
        if path in self._exact:
            return path
        for pattern, template in self._templates:
            if pattern.fullmatch(path):
                return template
        return OTHER

    def method(self, method: str) -> str:
        return method if method in _METHODS else OTHER

    def param(self, param: str) -> str:
        """``messages[0].sEcReT`` as ``messages[0].*``: members that clients name are content."""
        steps = []
        for match in _STEP.finditer(param[: 2 * _LONGEST_PARAM]):
            index, name = match.groups()
            known = index is not None or name is None or name in self._fields
            steps.append(match[0] if known else HIDDEN)
        return "".join(steps)[:_LONGEST_PARAM]


def _field_names(value: Any) -> Iterable[str]:
    if isinstance(value, Mapping):
        properties = value.get("properties")
        if isinstance(properties, Mapping):
            yield from properties
        for each in value.values():
            yield from _field_names(each)
    elif isinstance(value, list):
        for each in value:
            yield from _field_names(each)
