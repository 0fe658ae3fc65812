"""The table of keywords that a run over the official suite writes to ``docs/keywords.md``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.conformance.verdicts import Verdict

if TYPE_CHECKING:
    from tests.conformance.suite import Record

_INTRODUCTION = """\
# Keywords of JSON Schema

Made by `python -m tests.conformance.suite --write docs/keywords.md`; do not edit. The numbers count
instances of the official
[JSON-Schema-Test-Suite](https://github.com/json-schema-org/JSON-Schema-Test-Suite). A row is one of
its files, which tests one keyword, often together with others.

- **right**: a valid instance is in the language of answers and an invalid one is not.
- **refused**: the schema is refused with a 400 that names the keyword and its place, because it
  cannot be enforced exactly; where nobody asked for strictness it is relaxed instead
  ([decision 48](decisions/0048-unsupported-keywords-are-relaxed.md)), and every valid instance is
  in its language.
- **exceptions**: deliberate; see below.

## Keywords of our own

| keyword | of | an answer |
| --- | --- | --- |
| `x-verbatim` | strings | is a piece of the prompt: [verbatim](verbatim.md) |
| `x-grammar` | strings | is a text of a grammar: [schemas](schemas.md#grammars) |
| `x-choice` | finite sets | is drawn as a whole, by probability: [confidence](confidence.md) |

They are never relaxed: where one cannot be enforced, the schema is refused. `leapjson explain`
says of each keyword of a schema whether it is enforced.
"""

_OPTIONAL = """\
## Optional part, for information

`wrong` are instances on which we differ from the suite.
"""

_EXCEPTIONS = {
    Verdict.SPELLING: (
        "A valid instance is in the language in another spelling: answers write an integer "
        "without a fraction of zeros, so `1` and never `1.0`, except where a `const` or `enum` "
        "itself has `1.0`."
    ),
    Verdict.DIGITS: (
        "A valid number has more digits than answers write where no bound asks for them "
        "(`Limits.integer_digits` and `Limits.fraction_digits`), or is near the ends of the range "
        "of floats."
    ),
    Verdict.SURROGATE: (
        "A string holds half of a surrogate pair, which is not text; answers have none."
    ),
    Verdict.FORMAT: (
        "The specification lets `format` be an annotation, and the required part of the suite "
        "tests that it asserts nothing; answers always satisfy the formats that are known."
    ),
    Verdict.FREE_NAMES: (
        "An object among items that have to differ has at most one member whose name is left "
        "open: two could come in either order."
    ),
    Verdict.DIALECT: (
        "`$schema` names a meta-schema of its own, which leaves out a standard vocabulary; every "
        "keyword is enforced all the same."
    ),
}


def markdown(required: list[Record], optional: list[Record]) -> str:
    """The whole document."""
    parts = [_INTRODUCTION]
    for draft in dict.fromkeys(record.draft for record in required):
        records = [record for record in required if record.draft == draft]
        parts += [f"## {draft}, required\n", _table(records, wrong=False)]
    parts += ["## Exceptions\n", _exceptions(required)]
    parts += ["## Refused in the required part\n", _refusals(required)]
    parts.append(_OPTIONAL)
    for draft in dict.fromkeys(record.draft for record in optional):
        records = [record for record in optional if record.draft == draft]
        parts += [f"### {draft}, optional\n", _table(records, wrong=True)]
    return "\n".join(parts)


def _table(records: list[Record], *, wrong: bool) -> str:
    last = ["wrong"] if wrong or any(record.counts[Verdict.WRONG] for record in records) else []
    titles = ["keyword", "right", "refused", "exceptions", *last]
    lines = [titles, ["---"] + ["--:"] * (len(titles) - 1)]
    lines += [[f"`{record.keyword}`", *_cells(record.counts, last)] for record in records]
    totals = sum((record.counts for record in records), Counter[Verdict]())
    lines.append(["all", *_cells(totals, last)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cells(counts: Counter[Verdict], last: list[str]) -> list[str]:
    exceptions = sum(counts[verdict] for verdict in _EXCEPTIONS)
    shown = [counts[Verdict.RIGHT], counts[Verdict.REFUSED], exceptions]
    if last:
        shown.append(counts[Verdict.WRONG])
    return [str(number) if number else "" for number in shown]


def _exceptions(records: list[Record]) -> str:
    lines = []
    for verdict, text in _EXCEPTIONS.items():
        places = Counter(
            f"`{record.keyword}`"
            for record in records
            for found, _ in record.exceptions
            if found is verdict
        )
        if places:
            where = ", ".join(f"{place} {count}" for place, count in sorted(places.items()))
            lines.append(f"- **{verdict}** ({where}). {text}\n")
    return "".join(lines)


def _refusals(records: list[Record]) -> str:
    cases: dict[tuple[str, str, str], list[str]] = {}
    for record in records:
        for keyword, description in record.refused:
            drafts = cases.setdefault((keyword, record.keyword, description), [])
            if record.draft not in drafts:
                drafts.append(record.draft)
    lines = ["| keyword at fault | file | case | drafts |\n", "| --- | --- | --- | --- |\n"]
    for (keyword, file, description), drafts in sorted(cases.items()):
        shown = description.replace("|", "\\|")
        lines.append(f"| `{keyword}` | `{file}` | {shown} | {', '.join(drafts)} |\n")
    return "".join(lines)
