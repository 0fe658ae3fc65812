"""``leapjson check``: whether texts satisfy a constraint, and where they violate it."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from app.cli.specification import UnusableInput, read_bytes, read_specification
from app.constraint.program import Program, compile_program
from app.core.specs import JsonSchema
from app.explain.check import Checker, Verdict
from app.explain.spelling import spell_bytes
from app.terminal.screen import Paint, paint_for


def run(options: argparse.Namespace) -> int:
    """The exit status."""
    constrained = read_specification(options)
    texts = {name: read_bytes(name) for name in options.instance}
    spec = constrained.spec
    program = compile_program(spec, constrained.limits)
    if options.document is not None:
        program = _bound(program, options.document)
    paint = paint_for(sys.stdout)
    checker = Checker(program, constrained.schema)
    reports: list[dict[str, Any]] = []
    for name, text in texts.items():
        text = text.removesuffix(b"\n").removesuffix(b"\r")
        verdict = checker.check(text)
        other = None
        if isinstance(spec, JsonSchema) and not verdict.valid:
            other = checker.rewritten(text, spec.whitespace)
        if options.json:
            reports.append(_as_json(name, verdict, other))
        else:
            print("\n".join(_as_text(name, verdict, other, paint)))
            reports.append({"valid": verdict.valid})
    if options.json:
        print(json.dumps(reports, ensure_ascii=False, indent=2))
    return 0 if all(report["valid"] for report in reports) else 1


def _bound(program: Program, name: str) -> Program:
    """``program`` with the text of a file in its holes. Raises ``UnusableInput``."""
    from app.constraint.quotes.binding import bind, holes_of
    from app.constraint.quotes.document import Document

    holes = holes_of(program)
    if not holes:
        raise UnusableInput("--document: the constraint has no string with x-verbatim")
    try:
        text = read_bytes(name).decode()
    except UnicodeDecodeError:
        raise UnusableInput(f"{name}: not UTF-8") from None
    documents = {words: Document([text], words=words) for words in {h.source.words for h in holes}}
    return bind(program, {hole.source: documents[hole.source.words] for hole in holes})


def _as_text(name: str, verdict: Verdict, other: bytes | None, paint: Paint) -> list[str]:
    if verdict.valid:
        return [f"{name}: {paint('valid', 'bold green')}"]
    place = f"byte {verdict.offset}, line {verdict.line}, column {verdict.column}"
    if verdict.incomplete:
        word = paint("incomplete", "bold yellow")
        lines = [f"{name}: {word}, valid so far, ends at {place}"]
    else:
        lines = [f"{name}: {paint('not valid', 'bold red')} from {place}"]
    before = spell_bytes(verdict.before)
    lines.append(f"  text before  {'...' if verdict.offset > len(verdict.before) else ''}{before}")
    if not verdict.incomplete:
        lines.append(f"  found        {paint(spell_bytes(verdict.found), 'red')}")
    allowed = f"only {spell_bytes(verdict.forced)}"
    if not verdict.forced:
        end = "the end of the text" if verdict.may_end else ""
        allowed = " or ".join(filter(None, [verdict.allowed, end]))
    lines.append(f"  allowed      {paint(allowed, 'green')}")
    if verdict.incomplete:
        spelled = verdict.completion
        rest = "longer than 2,000 bytes" if spelled is None else spell_bytes(spelled)
        lines.append(f"  shortest end {paint(rest, 'green')}")
    if other is not None:
        lines.append("The value satisfies the schema, but answers write it in this form:")
        lines.append(f"  {other.decode('utf-8', 'backslashreplace')}")
    return lines


def _as_json(name: str, verdict: Verdict, other: bytes | None) -> dict[str, Any]:
    report: dict[str, Any] = {"instance": name, "valid": verdict.valid}
    if verdict.valid:
        return report
    fields = asdict(verdict)
    completion = fields.pop("completion")
    report |= {"incomplete": verdict.incomplete} | fields
    report["valid_in_other_form"] = other is not None
    if verdict.incomplete and completion is not None:
        report["completion"] = completion
    if other is not None:
        report["suggestion"] = other
    return {
        key: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        for key, value in report.items()
    }
