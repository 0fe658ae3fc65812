"""The report as one HTML page that fetches nothing from anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from loadtest.drive import Closed, Open
from loadtest.measure import Cell, Results
from loadtest.plots import cumulative, legend, lines
from loadtest.summary import Comparison, Summary
from loadtest.tables import (
    RATIO_COLUMNS,
    SUMMARY_COLUMNS,
    ratio_cells,
    summary_cells,
    wrong_answers,
)

_COLOURS = ("#2a6fdb", "#d1495b", "#2e8b57", "#b8860b", "#7b4fb5", "#0f8b8d", "#8a5a44", "#6b7280")
_DASHES = ("none", "7 3", "2 3", "9 3 2 3", "4 2", "12 4", "1 4", "6 6")

_STYLE = """
:root { color-scheme: light dark; --ink: #1a1d21; --faint: #6b7280; --line: #d9dde3;
  --paper: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --faint: #9aa3af; --line: #3a4048;
  --paper: #15181c; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }
th { color: var(--faint); font-weight: 500; }
th:nth-child(-n+3), td:nth-child(-n+3) { text-align: left; }
figure { display: inline-block; margin: .5rem 1rem .5rem 0; }
figcaption { color: var(--faint); font-size: 13px; }
svg { max-width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: var(--faint); }
svg .grid { stroke: var(--line); }
svg polyline { fill: none; stroke-width: 2; }
.legend span { margin-right: 1.2rem; }
.legend svg { vertical-align: -2px; margin-right: .3rem; }
"""


def page(
    about: Mapping[str, str],
    results: Results,
    summaries: Sequence[Summary],
    comparisons: Sequence[Comparison],
) -> str:
    """A whole document."""
    arms = list(dict.fromkeys(each.arm for each in summaries))
    parts = ["<h1>Load test</h1>", _list(f"{name}: {value}" for name, value in about.items())]
    if comparisons:
        parts += ["<h2>Times better than the baseline</h2>"]
        parts += [_table(RATIO_COLUMNS, map(ratio_cells, comparisons))]
    parts += ["<h2>Figures</h2>", _table(SUMMARY_COLUMNS, map(summary_cells, summaries))]
    if wrong := [*wrong_answers(summaries), *results.notes]:
        parts += ["<h2>Not valid, or not measured</h2>", _list(wrong)]
    for workload in dict.fromkeys(cell.workload for cell in results.cells):
        parts += [f"<h2>{escape(workload)}</h2>", legend(arms)]
        parts += _by_load(workload, arms, results, summaries)
        parts += _distributions(workload, arms, results)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>Load test</title><style>{_STYLE}{_series_style()}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


Figure = Callable[[Summary], float | None]
_CURVES: Mapping[str, Figure] = {
    "latency, median, s": lambda each: each.latency.p50 if each.latency else None,
    "latency, 95%, s": lambda each: each.latency.p95 if each.latency else None,
    "first token, median, s": lambda each: each.first_token.p50 if each.first_token else None,
    "valid answers a second": lambda each: each.valid_per_second,
    "tokens a second": lambda each: each.tokens_per_second,
}


def _by_load(
    workload: str, arms: Sequence[str], results: Results, summaries: Sequence[Summary]
) -> list[str]:
    """Curves over the number of clients, and over the rate, where there are two or more."""
    figures = []
    for kind, x_label in ((Closed, "clients"), (Open, "arrivals a second")):
        sizes = {
            str(cell.load): _size(cell)
            for cell in results.cells
            if cell.workload == workload and isinstance(cell.load, kind)
        }
        shown = [s for s in summaries if s.workload == workload and s.load in sizes]
        for y_label, figure in _CURVES.items() if len(sizes) > 1 else ():
            curves = {
                arm: sorted(
                    (sizes[each.load], value)
                    for each in shown
                    if each.arm == arm and (value := figure(each)) is not None
                )
                for arm in arms
            }
            figures.append(_figure(lines(curves, x_label, y_label), f"{y_label}, by {x_label}"))
    return figures


def _distributions(workload: str, arms: Sequence[str], results: Results) -> list[str]:
    figures = []
    for cell in results.cells:
        if cell.workload != workload:
            continue
        answers = {
            arm: [
                answer
                for each in results.rounds.get((cell, arm), ())
                for answer in each.answers
                if answer.complete
            ]
            for arm in arms
        }
        latency = {arm: [answer.seconds for answer in some] for arm, some in answers.items()}
        first = {
            arm: [answer.first for answer in some if answer.first is not None]
            for arm, some in answers.items()
        }
        gaps = {arm: [gap for a in some for gap in a.gaps] for arm, some in answers.items()}
        for name, values in (
            ("latency, s", latency),
            ("time to first token, s", first),
            ("gap between chunks, s", gaps),
        ):
            figures.append(_figure(cumulative(values, name), f"{cell.load}: {name}"))
    return figures


def _size(cell: Cell) -> float:
    return cell.load.clients if isinstance(cell.load, Closed) else cell.load.rate


def _figure(drawing: str, caption: str) -> str:
    return f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _list(items: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def _series_style() -> str:
    """Lines differ in their dashes as well, for those who do not see the colours."""
    return "".join(
        f".l{number} {{ stroke: {colour}; stroke-dasharray: {dash}; }} "
        f".s{number} {{ fill: {colour}; }}\n"
        for number, (colour, dash) in enumerate(zip(_COLOURS, _DASHES, strict=True))
    )
