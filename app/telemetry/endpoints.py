"""Which names of a request may stand in labels and logs: those that this server gave out itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

OTHER = "other"
HIDDEN = "*"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_STEP = re.compile(r"\[\d{1,6}\]|([^.\[\]]+)|\.")
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
        matching = (route for pattern, route in self._templates if pattern.fullmatch(path))
        return next(matching, OTHER)

    def method(self, method: str) -> str:
        return method if method in _METHODS else OTHER

    def param(self, param: str) -> str:
        """``messages[0].sEcReT`` as ``messages[0].*``: members that clients name are content."""

        def shown(step: re.Match[str]) -> str:
            return step[0] if step[1] is None or step[1] in self._fields else HIDDEN

        return "".join(map(shown, _STEP.finditer(param[: 2 * _LONGEST_PARAM])))[:_LONGEST_PARAM]


def _field_names(value: Any) -> Iterable[str]:
    if isinstance(value, Mapping):
        properties = value.get("properties")
        if isinstance(properties, Mapping):
            yield from properties
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _field_names(each)
