"""The simulation as one SVG file that a browser or a README shows by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from loadtest.autoscale.report import Outcome
from loadtest.autoscale.simulation import Moment, Run
from loadtest.plots import Axis, Points

WIDTH, PANEL, GAP = 760, 150, 42
_LEFT, _RIGHT, _TOP = 56, 14, 26
_BIN = 30
"""Seconds that become one point."""
_COLOURS = ("#2a6fdb", "#d1495b", "#2e8b57")
_DASHES = ("none", "6 3", "2 3")
_STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#4b5563}.title{fill:#111827;font-weight:600}"
    "line{stroke:#d9dde3}polyline{fill:none;stroke-width:1.6}"
)


def figure(deployed: Outcome, alone: Outcome, server: float) -> str:
    """Load and capacity, replicas of both rules, and the queue. ``server``: one's answers/s."""
    panels = [
        (
            "requests a second",
            {
                "arriving": _binned(deployed.run, lambda each: each.arrivals, _mean),
                "what ready pods can answer": _binned(
                    deployed.run, lambda each: each.ready * server, _mean
                ),
            },
        ),
        (
            "pods asked for",
            {
                "as deployed": _binned(deployed.run, lambda each: each.replicas, _last),
                "scaled on the queue alone": _binned(alone.run, lambda each: each.replicas, _last),
            },
        ),
        (
            "requests waiting, all pods, the most in 30 s",
            {
                "as deployed": _binned(deployed.run, lambda each: each.waiting, max),
                "scaled on the queue alone": _binned(alone.run, lambda each: each.waiting, max),
            },
        ),
    ]
    height = _TOP + len(panels) * (PANEL + GAP) + 8
    drawn = [
        _panel(title, series, _TOP + number * (PANEL + GAP))
        for number, (title, series) in enumerate(panels)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-label="autoscaling, simulated">'
        f'<style>{_STYLE}</style><rect width="100%" height="100%" fill="#ffffff"/>'
        f"{''.join(drawn)}</svg>\n"
    )


def _panel(title: str, series: Mapping[str, Points], top: float) -> str:
    minutes = max(points[-1][0] for points in series.values())
    most = max(value for points in series.values() for _, value in points)
    x = Axis(0.0, minutes, _LEFT, WIDTH - _RIGHT)
    y = Axis(0.0, most * 1.05 or 1.0, top + PANEL, top)
    parts = [f'<text class="title" x="{_LEFT}" y="{top - 8}">{escape(title)}</text>']
    for value in y.ticks():
        at = y.pixel(value)
        parts.append(
            f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
    for value in range(0, int(minutes) + 1, 30):
        parts.append(
            f'<text x="{x.pixel(value):.1f}" y="{top + PANEL + 14}" text-anchor="middle">'
            f"{value} min</text>"
        )
    for number, (name, points) in enumerate(series.items()):
        look = f'stroke="{_COLOURS[number]}" stroke-dasharray="{_DASHES[number]}"'
        joined = " ".join(f"{x.pixel(a):.1f},{y.pixel(b):.1f}" for a, b in points)
        at = WIDTH - _RIGHT - 190 * (len(series) - number)
        parts.append(
            f'<polyline {look} points="{joined}"/>'
            f'<polyline {look} points="{at},{top - 12} {at + 24},{top - 12}"/>'
            f'<text x="{at + 30}" y="{top - 8}">{escape(name)}</text>'
        )
    return "".join(parts)


def _binned(
    run: Run, value: Callable[[Moment], float], of: Callable[[Sequence[float]], float]
) -> Points:
    """In minutes."""
    values = [value(each) for each in run.moments]
    return [(start / 60, of(values[start : start + _BIN])) for start in range(0, len(values), _BIN)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _last(values: Sequence[float]) -> float:
    return values[-1]
