"""What a person who starts the server wants to know: where it is and how to try it."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import TextIO

from app.terminal.paint import paint_for
from app.terminal.screen import is_watched

_EVERYWHERE = {"http://0.0.0.0:": "http://127.0.0.1:", "http://[::]:": "http://[::1]:"}
"""Addresses to listen on that are none to go to, and where to find them on this machine."""


@dataclass(frozen=True, slots=True)
class Served:
    """What is served, and where."""

    model: str
    url: str
    page: bool
    """Whether there is a page to look at."""
    keys: bool
    """Whether requests need a key."""

    @property
    def address(self) -> str:
        """Where a program on this machine finds it."""
        for anywhere, here in _EVERYWHERE.items():
            if self.url.startswith(anywhere):
                return here + self.url.removeprefix(anywhere)
        return self.url

    @property
    def command(self) -> str:
        """One to try in a shell."""
        messages = [{"role": "user", "content": "Hello"}]
        body = json.dumps({"model": self.model, "messages": messages}, ensure_ascii=False)
        key = " -H 'authorization: Bearer YOUR-KEY'" if self.keys else ""
        return (
            f"curl {self.address}/v1/chat/completions{key} -H 'content-type: application/json' "
            f"-d {shlex.quote(body)}"
        )


def greeting(served: Served, stream: TextIO) -> str:
    """A few lines where ``stream`` is a terminal, else one."""
    if not is_watched(stream):
        page = f", try it in a browser at {served.address}/" if served.page else ""
        return (
            f"Leapjson serves {served.model} at {served.address}/v1{page} - try: {served.command}"
        )
    paint = paint_for(stream)
    rows = [("page", f"{served.address}/")] if served.page else []
    rows += [("API", f"{served.address}/v1"), ("try", served.command)]
    return "\n".join(
        [
            "",
            f"Leapjson serves {paint(served.model, 'bold')}",
            *(f"  {paint(f'{name:<4}', 'dim')}  {paint(text, 'cyan')}" for name, text in rows),
            paint("Press Ctrl-C to stop.", "dim"),
            "",
        ]
    )
