"""``leapjson explain``: a compiled constraint in figures, words and a picture."""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.answer.schema_prompt import SchemaPrompt, schema_text
from app.cli.specification import Constrained, UnusableInput, read_specification
from app.constraint.program import compile_program
from app.core.errors import UnsupportedModel, UnsupportedSchema
from app.core.graphs import GraphOptions, GraphSpec
from app.explain.drawing import drawing_of
from app.explain.exploring import folded_graph
from app.explain.graph import Graph
from app.explain.keywords import KeywordUse, keyword_uses
from app.explain.report import graph_facts, length_facts, program_facts
from app.explain.spelling import cut, spell_bytes
from app.explain.svg import dot_text, draw
from app.terminal.screen import Paint, paint_for

_WAYS = 60
"""Maximum lines that list ways."""
_CHOICE, _LEAP = "yellow", "green"
"""Colours, as in the picture."""
_COLOURS = {
    "enforced": "green",
    "annotation": "dim",
    "no effect": "dim",
    "not enforced": "yellow",
    "refused": "bold red",
}
"""Colours by fate of a keyword."""


def run(options: argparse.Namespace) -> int:
    """The exit status."""
    constrained = read_specification(options)
    paint = paint_for(sys.stdout)
    try:
        program = compile_program(constrained.spec, constrained.limits)
    except UnsupportedSchema as error:
        if not options.json:
            print("\n".join(_keyword_lines(keyword_uses(constrained.schema, error), paint)))
        raise
    report = length_facts(program)
    if options.tokenizer is not None:
        report |= _in_tokens(constrained, options.tokenizer)
    asked = GraphOptions(tuple(options.unfold), max(2, options.max_nodes))
    graph, _ = folded_graph(GraphSpec(constrained.spec, asked), constrained.limits)
    uses = keyword_uses(constrained.schema)
    report |= graph_facts(graph) | {"keywords": [asdict(use) for use in uses]}
    report |= program_facts(program)
    if options.svg is not None or options.dot is not None:
        drawing = drawing_of(graph)
        _write(options.svg, draw(drawing, constrained.title))
        _write(options.dot, dot_text(drawing, constrained.title))
    if options.prompt:
        schema = schema_text(constrained.schema)
        prompt = SchemaPrompt(schema).instructions(may_call=False) if schema else ""
        report["prompt"] = prompt
        if options.tokenizer is not None:
            from tokenizers import Tokenizer

            reader = Tokenizer.from_file(str(_tokenizer_file(options.tokenizer)))
            report["prompt_tokens"] = len(reader.encode(prompt, add_special_tokens=False).ids)
    if options.json:
        print(json.dumps(report, ensure_ascii=False, indent=2))
        return 0
    lines = [paint(constrained.title, "bold"), "", *_figure_lines(report), ""]
    lines += _way_lines(graph, paint)
    if uses:
        lines += ["", *_keyword_lines(uses, paint)]
    if options.prompt:
        tokens = f", {report['prompt_tokens']} tokens" if "prompt_tokens" in report else ""
        lines += ["", f"prompt: {len(report['prompt'])} characters{tokens}", report["prompt"]]
    for inexact, title in ((False, "not enforced"), (True, "enforced as some validators read it")):
        found = [each for each in program.relaxed if each.inexact is inexact]
        if found:
            name = "inexact" if inexact else "relaxed"
            lines += ["", f"{paint(name, _COLOURS['not enforced'])}: {title}"]
            lines += [f"  {each.pointer or 'the root'}: {each.reason}" for each in found]
    if options.svg is not None:
        lines += ["", f"picture: {options.svg}"]
    if options.dot is not None:
        lines += ["", f"for Graphviz: {options.dot}"]
    print("\n".join(lines))
    return 0


def _write(file: str | None, text: str) -> None:
    if file is not None:
        try:
            Path(file).write_text(text, encoding="utf-8")
        except OSError as error:
            raise UnusableInput(f"{file}: {error.strerror}") from None


def _in_tokens(constrained: Constrained, tokenizer: str) -> dict[str, Any]:
    """Figures in tokens, from a separate constraint over the tokenizer's vocabulary."""
    from app.constraint.compiler import Compiler
    from app.text.vocabulary import Vocabulary

    try:
        vocabulary = Vocabulary.from_file(_tokenizer_file(tokenizer))
    except (OSError, ValueError, LookupError, UnsupportedModel) as error:
        raise UnusableInput(f"{tokenizer}: not a tokenizer.json: {error}") from None
    state = Compiler(vocabulary, constrained.limits).compile(constrained.spec).start()
    return {
        "vocabulary": vocabulary.size,
        "shortest_tokens": state.shortest_tokens(),
        "first_mask_tokens": sum(int(word).bit_count() for word in state.mask()),
    }


def _tokenizer_file(name: str) -> Path:
    path = Path(name)
    return path / "tokenizer.json" if path.is_dir() else path


def _figure_lines(report: dict[str, Any]) -> list[str]:
    longest = report["longest_bytes"]
    spelled = "unbounded" if longest is None else f"{longest} bytes"
    if longest is not None and not report["longest_is_exact"]:
        spelled = "at most " + spelled
    size, forced = report["shortest_bytes"], report["shortest_forced_bytes"]
    share = f"{forced / size:.0%}" if size else "nothing"
    lines = [
        f"shortest answer  {size} bytes: {cut(report['shortest'])}",
        f"longest answer   {spelled}",
        f"forced           {share} of the shortest answer's bytes, in "
        f"{report['shortest_states']} states",
        f"                 {report['graph_forced_share']:.0%} of the graph's bytes, each way once "
        "and free text at its shortest",
        f"graph            {report['branch_points']} branch points, {report['ways']} ways, "
        f"{report['leaps']} leaps of {report['leap_bytes']} bytes"
        + ("" if report["graph_is_whole"] else "; the limit was reached, there is more"),
    ]
    if "vocabulary" in report:
        lines.append(
            f"tokens           {report['shortest_tokens']} for the shortest answer; "
            f"{report['first_mask_tokens']} of {report['vocabulary']} allowed at the start"
        )
    return lines


def _way_lines(graph: Graph, paint: Paint) -> list[str]:
    """The ways from each branch point: the choice in angle brackets, then the leap."""
    lines = ["ways, as: from -> to  <choice> leap"]
    for edge in graph.edges[:_WAYS]:
        node = graph.nodes[edge.source]
        notes = [f"rule {node.rule}"] if node.rule is not None and edge is node.edges[0] else []
        if node.repeats and edge is node.edges[0]:
            notes.append(node.repeats)
        choice = paint(f"<{edge.choice}>", _CHOICE) + " " if edge.choice else ""
        target = "..." if edge.target is None else str(edge.target)
        text = choice + paint(cut(spell_bytes(edge.leap)).rstrip("\n"), _LEAP)
        note = paint(f"   ({', '.join(notes)})", "dim") if notes else ""
        lines.append(f"  {edge.source:>3} -> {target:<3}  {text}{note}")
    if len(graph.edges) > _WAYS:
        lines.append(f"  ... and {len(graph.edges) - _WAYS} more")
    ends = [str(number) for number, node in enumerate(graph.nodes) if node.accepting]
    lines.append(f"  an answer or a rule may end at {', '.join(ends)}")
    return lines


def _keyword_lines(uses: list[KeywordUse], paint: Paint) -> list[str]:
    """One line for each keyword and its treatment, with the number of places and the first one."""
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for use in uses:
        groups[use.keyword, use.fate, use.note].append(use.pointer)
    lines = ["keywords"]
    for (keyword, fate, note), pointers in groups.items():
        times = f"{len(pointers)} times, first at " if len(pointers) > 1 else ""
        shown = paint(fate, _COLOURS.get(fate, ""))
        lines.append(f"  {keyword:<22} {shown}: {note} ({times}{cut(pointers[0])})")
    return lines
