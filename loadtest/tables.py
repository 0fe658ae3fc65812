"""The results as Markdown tables, for the terminal and for docs/performance.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from loadtest.summary import Comparison, Distribution, Ratio, Summary

SUMMARY_COLUMNS = (
    "workload", "load", "server", "valid of", "right of", "latency s", "95%", "99%",
    "first token ms", "99%", "gap ms", "99%", "valid/s", "tokens/s", "tokens", "leapt", "drafted",
    "passes", "server's passes",
)  # fmt: skip
RATIO_COLUMNS = (
    "workload", "load", "server", "latency", "first token", "valid answers/s", "tokens/s",
)  # fmt: skip


def summary_table(summaries: Iterable[Summary]) -> str:
    """Medians, unless a percentile is named; columns from ``tokens`` on are means of an answer.

    ``passes`` are forward passes that included the answer's sequence; ``server's passes`` are all
    passes of the server, divided by the number of answers. Rates with ``~`` count chunks.
    """
    return table(SUMMARY_COLUMNS, map(summary_cells, summaries))


def summary_cells(each: Summary) -> list[str]:
    total = sum(each.outcomes.values())
    counted = "" if each.tokens_counted else "~"
    return [
        each.workload,
        each.load,
        each.arm,
        f"{each.outcomes['valid']} of {total}",
        "" if each.right is None else f"{each.right} of {each.parts}",
        *(_time(each.latency, name, 1, 2) for name in ("p50", "p95", "p99")),
        *(_time(each.first_token, name, 1e3, 1) for name in ("p50", "p99")),
        *(_time(each.gap, name, 1e3, 1) for name in ("p50", "p99")),
        f"{each.valid_per_second:.2f}",
        f"{counted}{each.tokens_per_second:.0f}",
        *(
            "" if value is None else f"{value:.1f}"
            for value in (
                each.tokens_per_answer,
                each.leapt_per_answer,
                each.drafted_per_answer,
                each.passes_per_answer,
                each.server_passes_per_answer,
            )
        ),
    ]


def wrong_answers(summaries: Iterable[Summary]) -> list[str]:
    """A line for each arm and cell with answers that are not valid."""
    lines = []
    for each in summaries:
        bad = {name: count for name, count in each.outcomes.items() if count and name != "valid"}
        if bad:
            counts = ", ".join(f"{count} {name}" for name, count in bad.items())
            lines.append(f"{each.arm}, {each.workload}, {each.load}: {counts}")
    return lines


def ratio_table(comparisons: Sequence[Comparison]) -> str:
    """Ratios to the baseline; in parentheses the range over repetitions."""
    return table(RATIO_COLUMNS, map(ratio_cells, comparisons))


def ratio_cells(each: Comparison) -> list[str]:
    ratios = (each.latency, each.first_token, each.valid_per_second, each.tokens_per_second)
    return [
        each.workload,
        each.load,
        f"{each.arm} against {each.baseline}",
        *(_ratio(ratio) for ratio in ratios),
    ]


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    return "\n".join([heading(columns), *map(table_row, rows)])


def heading(columns: Sequence[str]) -> str:
    """The first two lines of a table whose rows are printed one by one."""
    return f"{table_row(columns)}\n|{'---|' * len(columns)}"


def table_row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _time(times: Distribution | None, percentile: str, scale: float, digits: int) -> str:
    return "" if times is None else f"{scale * getattr(times, percentile):.{digits}f}"


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio.value:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"
