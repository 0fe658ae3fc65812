"""What of a request is not acted on: named in a header of its answer, or refused."""

from __future__ import annotations

import re
from urllib.parse import quote

from app.core.errors import InvalidRequest

HEADER = "x-leapjson-ignored"

_MOST_NAMES = 16
_LONGEST_NAME = 64
_INDEX = re.compile(r"\[\d+\]")


class Ignored:
    """Fields of one request that change nothing in its answer, in the order they were found."""

    def __init__(self, *, refuses: bool = False) -> None:
        """``refuses``: nothing may be left out."""
        self.refuses = refuses
        self._names: dict[str, None] = {}
        """Bounded: a body may have 200,000 of them."""
        self._more = False

    def leave_out(self, param: str, reason: str | None = None, *, name: str | None = None) -> None:
        """The field ``param`` is not acted on. Raises ``InvalidRequest`` if nothing may be.

        ``reason``: the error's message; by default nobody knows the field. ``name``: what is named
        where it is not the field.
        """
        if self.refuses:
            unknown = f"Unrecognized request argument supplied: {param}"
            raise InvalidRequest(reason or unknown, param=param)
        self.note(name or param)

    def note(self, param: str) -> None:
        """The same for a field that is never refused."""
        name = _INDEX.sub("[]", param)
        if len(self._names) < _MOST_NAMES:
            self._names[name] = None
        elif name not in self._names:
            self._more = True

    @property
    def headers(self) -> dict[str, str]:
        """One that names the fields, as ``tools[].cache_control``; none where there are none.

        Names are separated by commas; what else may not stand in a header is percent-encoded.
        """
        names = [_clipped(quote(name, safe="[].=:/$@")) for name in self._names]
        if self._more:
            names.append("...")
        return {HEADER: ", ".join(names)} if names else {}


def _clipped(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."
