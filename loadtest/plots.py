"""Plots as SVG text, drawn without a library. Colours are CSS classes of the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 460, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 14, 44
_TICKS = 5
_LEAST = 1e-9
"""Where nothing is higher, an axis ends at 1."""
SERIES = 8
"""Looks that the page has; more series begin again."""

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Axis:
    """From values to pixels. ``low`` below ``high``; logarithmic axes need both above 0."""

    low: float
    high: float
    start: float
    """Pixel of ``low``; that of ``high`` is ``end``."""
    end: float
    logarithmic: bool = False

    def pixel(self, value: float) -> float:
        scale = math.log10 if self.logarithmic else float
        low, high = scale(self.low), scale(self.high)
        share = (scale(value) - low) / (high - low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values within the axis."""
        if self.logarithmic:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            powers = [10.0**power for power in range(first, last + 1)]
            if len(powers) >= 3:
                return powers
            steps = [m * 10.0**p for p in range(first - 1, last + 1) for m in (1, 2, 5)]
            return [value for value in steps if self.low <= value <= self.high]
        step = _round_step((self.high - self.low) / _TICKS)
        first = math.ceil(self.low / step - 1e-9)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def lines(series: Mapping[str, Points], x_label: str, y_label: str) -> str:
    """Points joined by lines, both axes from 0; each point says its values when pointed at."""
    if not any(series.values()):
        return ""
    x = Axis(0.0, _above(series, 0) * 1.04, _LEFT, WIDTH - _RIGHT)
    y = Axis(0.0, _above(series, 1) * 1.08, HEIGHT - _BOTTOM, _TOP)
    parts = [_frame(x, y, x_label, y_label)]
    for number, (name, points) in enumerate(series.items()):
        parts.append(_path(points, x, y, number))
        for point in points:
            title = f"{name}: {_text(point[1])} at {_text(point[0])}"
            parts.append(
                f'<circle class="s{number % SERIES}" cx="{x.pixel(point[0]):.1f}" '
                f'cy="{y.pixel(point[1]):.1f}" r="4"><title>{escape(title)}</title></circle>'
            )
    return _svg(parts, f"{y_label} by {x_label}")


def cumulative(series: Mapping[str, Sequence[float]], x_label: str) -> str:
    """The share of values up to x, over a logarithmic axis of x.

    What is less than a microsecond, or 0, stands at the axis' beginning.
    """
    above = [value for values in series.values() for value in values if value >= 1e-6]
    if not above:
        return ""
    low, high = min(above) / 1.1, max(above) * 1.1
    x = Axis(low, high, _LEFT, WIDTH - _RIGHT, logarithmic=True)
    y = Axis(0.0, 1.0, HEIGHT - _BOTTOM, _TOP)
    parts = [_frame(x, y, x_label, "share", lambda value: f"{value:.0%}")]
    for number, values in enumerate(series.values()):
        parts.append(_path(_steps([max(value, low) for value in values]), x, y, number))
    return _svg(parts, f"distribution of {x_label}")


def legend(names: Sequence[str]) -> str:
    items = [
        '<span><svg width="14" height="14">'
        f'<circle class="s{number % SERIES}" cx="7" cy="7" r="5"/></svg>'
        f"{escape(name)}</span>"
        for number, name in enumerate(names)
    ]
    return f'<p class="legend">{"".join(items)}</p>'


def _steps(values: Sequence[float], most: int = 200) -> Points:
    """The cumulative distribution in at most ``most`` points."""
    ordered = sorted(values)
    count = len(ordered)
    indices = sorted({round(i * (count - 1) / (most - 1)) for i in range(most)}) if count else []
    return [(ordered[index], (index + 1) / count) for index in indices]


def _path(points: Points, x: Axis, y: Axis, number: int) -> str:
    joined = " ".join(f"{x.pixel(a):.1f},{y.pixel(b):.1f}" for a, b in points)
    return f'<polyline class="l{number % SERIES}" points="{joined}"/>'


def _frame(
    x: Axis, y: Axis, x_label: str, y_label: str, y_text: Callable[[float], str] | None = None
) -> str:
    bottom, parts = HEIGHT - _BOTTOM, []
    for value in y.ticks():
        at = y.pixel(value)
        label = (y_text or _text)(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" '
                     f'y2="{at:.1f}"/><text x="{_LEFT - 6}" y="{at + 4:.1f}" '
                     f'text-anchor="end">{label}</text>')  # fmt: skip
    for value in x.ticks():
        parts.append(f'<text x="{x.pixel(value):.1f}" y="{bottom + 16}" '
                     f'text-anchor="middle">{_text(value)}</text>')  # fmt: skip
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}'
                 f'</text><text transform="translate(13 {(bottom + _TOP) / 2}) rotate(-90)" '
                 f'text-anchor="middle">{escape(y_label)}</text>')  # fmt: skip
    return "".join(parts)


def _svg(parts: Sequence[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def _above(series: Mapping[str, Points], place: int) -> float:
    """The highest value, the end of an axis; 1 where there is nothing to see."""
    highest = max(point[place] for points in series.values() for point in points)
    return highest if highest > _LEAST else 1.0


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step * 0.999)


def _text(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
