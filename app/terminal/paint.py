"""Colours for words on standard output, where a terminal is to show them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TextIO

Paint = Callable[[str, str], str]
"""From a text and a style (``"bold red"``, as rich spells them) to what is written."""


def paint_for(stream: TextIO) -> Paint:
    """Colours where ``stream`` is a terminal that has them, or ``FORCE_COLOR`` is set.

    Not with ``NO_COLOR`` (no-color.org), and not on a dumb terminal.
    """
    if os.environ.get("NO_COLOR") or not (stream.isatty() or os.environ.get("FORCE_COLOR")):
        return plain
    # Imported where it is needed: what writes into files and pipes starts quicker without it.
    from rich.color import ColorSystem
    from rich.console import Console
    from rich.style import Style

    name = Console(file=stream).color_system
    if name is None:
        return plain
    system = {
        "standard": ColorSystem.STANDARD,
        "256": ColorSystem.EIGHT_BIT,
        "truecolor": ColorSystem.TRUECOLOR,
        "windows": ColorSystem.WINDOWS,
    }[name]

    def paint(text: str, style: str) -> str:
        return Style.parse(style).render(text, color_system=system) if text else text

    return paint


def plain(text: str, style: str) -> str:
    """No colours."""
    return text
