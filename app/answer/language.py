"""The constraint of a whole answer: reasoning, then content or calls.

The reader parses every text that it admits in exactly one way, so content and arguments are
validated against the schemas that constrained them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator

from app.answer.formats.calls import ToolFormat
from app.answer.formats.reasoning import (
    BARE,
    NEWLINES_BEFORE_ANSWER,
    ContentFormat,
    ReasoningFormat,
)
from app.answer.prompt import Opening
from app.answer.tools import ToolUse
from app.core.composite import (
    Composite,
    Either,
    FixedText,
    FreeText,
    NotStarting,
    Part,
    Repeated,
    Series,
)
from app.core.constraint import ConstraintSpec
from app.core.specs import Choice, Grammar, JsonObject, JsonSchema, Regex

_JSON_BEGINNING = re.compile(r'["{\d\-tfn]|\[($|[\s\[\]"{\d\-tfn])')

_MOST_MESSAGES = 4
"""Maximum rounds of reasoning or messages in an answer, in formats that repeat them."""


def answer(
    content: ConstraintSpec | None,
    use: ToolUse | None,
    format: ToolFormat,
    around: ContentFormat = BARE,
    thoughts: ReasoningFormat | None = None,
) -> ConstraintSpec | None:
    """The answer after the reasoning. ``content`` None: free text; returns None if all is free.
    ``thoughts``: reasoning that may stand between text and calls, if these are messages.

    Raises ``InvalidRequest`` for parameters that no object can satisfy by their type alone.
    """
    if use is None:
        return content and _spec(_marked(_part(content), around))
    if (around.begin or around.end) and not format.native:  # to the model its calls are content
        without = (around.end, *around.without) if around.end else around.without
        whole = answer(content, use, format, ContentFormat(without=without))
        return whole and Composite(_marked(_part(whole), around))
    calls = format.calls(use)
    if around.always:
        return Composite(_behind_content(calls, content, use, format, around))
    if content is None and around.preamble:
        calls = Series((Repeated(_preamble(around, thoughts), at_most=1), calls))
    if use.mode == "required":
        return Composite(calls)
    if content is not None:
        marked = _marked(_part(content), around)
        return Composite(Either((_not_starting(marked, format.leads(use.names)), calls)))
    free = free_content(around)
    if around.begin:
        if around.end and format.trigger is not None:
            return Composite(Either((Series((free, Repeated(calls, at_most=1))), calls)))
        return Composite(Either((free, calls)))
    if format.trigger is not None:
        leads = [lead for other in format.also for lead in other.leads(use.names)]
        ways = Either((calls, *[each.calls(use) for each in format.also])) if leads else calls
        text = FreeText(without=(format.trigger, *leads, *around.without))
        return Composite(Series((text, Repeated(ways, at_most=1))))
    # Text that begins like a call has to become one: the name need not decide.
    return Composite(Either((_not_starting(free, format.heads()), calls)))


def _behind_content(
    calls: Part,
    content: ConstraintSpec | None,
    use: ToolUse,
    format: ToolFormat,
    around: ContentFormat,
) -> Part:
    """Content, or calls behind content with nothing in it; free text may have calls behind it."""
    nothing = around.begin + around.end
    silent = Series((FixedText(nothing), calls))
    if use.mode == "required":
        return silent
    if content is None:
        # If the mask excluded the usual ending, the next token would be arbitrary.
        rest = Either((calls, FixedText(around.ending)))
        return Series((free_content(around), Repeated(rest, at_most=1)))
    leads = (nothing + lead for lead in format.leads(use.names))
    return Either((_not_starting(_marked(_part(content), around), leads), silent))


def free_content(around: ContentFormat) -> Part:
    """Any text, with the marks around it."""
    without = (around.end, *around.without) if around.end else around.without
    return _marked(FreeText(without), around)


def _marked(content: Part, around: ContentFormat) -> Part:
    parts = (FixedText(around.begin), content, FixedText(around.end))
    kept = tuple(part for part in parts if part != FixedText(""))
    return kept[0] if len(kept) == 1 else Series(kept)


def _preamble(around: ContentFormat, thoughts: ReasoningFormat | None) -> Part:
    text = FreeText((around.preamble_end, *around.without))
    message = (FixedText(around.preamble), text, FixedText(around.preamble_end))
    if thoughts is None or not thoughts.repeated:
        return Series(message)
    thought = Series(
        (
            FixedText(thoughts.begin),
            FreeText(without=(thoughts.end,)),
            FixedText(thoughts.end + thoughts.then),
        )
    )
    return Series((*message, Repeated(thought, at_most=_MOST_MESSAGES)))


def with_reasoning(
    answer: ConstraintSpec | None,
    format: ReasoningFormat,
    opening: Opening,
    *,
    barred: bool = False,
) -> ConstraintSpec | None:
    """``answer`` after reasoning, or after none: see ``prompt.opening``. None stays None.

    ``barred``: there is no reasoning, or it is empty.
    """
    if answer is None or opening == "closed":
        return answer
    body = _part(answer)
    unreasoned: Part = _not_starting(body, [format.begin])
    if format.unreasoned:
        unreasoned = Series((FixedText(format.unreasoned), body))
    if opening == "possible" and barred:
        return answer if unreasoned is body else _spec(unreasoned)
    thoughts = () if barred else (FreeText(without=(format.end,)),)
    rest = (FixedText(format.end), _gap(body, format), FixedText(format.then))
    reasoned = (*thoughts, *(part for part in rest if part != FixedText("")))
    ending = (body, FixedText(format.closing)) if format.closing else (body,)
    if opening == "open":
        return Composite(Series((*reasoned, *ending)))
    reasoned = (FixedText(format.begin), *reasoned)
    if format.repeated:
        at_least = 1 if opening == "needed" else 0
        thinking = Repeated(Series(reasoned), at_least=at_least, at_most=_MOST_MESSAGES)
        return Composite(Series((thinking, unreasoned)))
    whole = Series((*reasoned, *ending))
    return Composite(whole if opening == "needed" else Either((unreasoned, whole)))


def _gap(body: Part, format: ReasoningFormat) -> Part:
    """Newlines between the reasoning and what follows it."""
    constrained = (leaf for leaf in _first_leaves(body) if not isinstance(leaf, FreeText))
    if not format.then and any(_may_start(leaf)("\n") for leaf in constrained):
        # Require all newlines: otherwise the answer's own could be taken for them.
        return FixedText("\n" * NEWLINES_BEFORE_ANSWER)
    return Repeated(FixedText("\n"), at_most=NEWLINES_BEFORE_ANSWER)


def is_open_ended(spec: ConstraintSpec) -> bool:
    """Whether an answer may end inside free text, where ``max_tokens`` cuts it."""
    return isinstance(spec, Composite) and _ends_free(spec.root)


def _part(spec: ConstraintSpec) -> Part:
    return spec.root if isinstance(spec, Composite) else spec


def _spec(part: Part) -> ConstraintSpec:
    if isinstance(part, JsonSchema | JsonObject | Regex | Choice | Grammar):
        return part
    return Composite(part)


def _not_starting(part: Part, marks: Iterable[str]) -> Part:
    """The texts of ``part`` at whose start the reader finds none of ``marks``."""
    starts = [_may_start(leaf) for leaf in _first_leaves(part)]
    # The reader may pass over newlines before a mark.
    prefixes = (
        "\n" * count + mark for mark in marks for count in range(NEWLINES_BEFORE_ANSWER + 1)
    )
    relevant = tuple(each for each in prefixes if any(may_start(each) for may_start in starts))
    return NotStarting(part, relevant) if relevant else part


def _first_leaves(part: Part) -> Iterator[Part]:
    """The parts that may hold the first character, and perhaps some that cannot."""
    match part:
        case Series(parts):
            for each in parts:
                yield from _first_leaves(each)
                if not _may_be_empty(each):
                    return
        case Either(parts):
            for each in parts:
                yield from _first_leaves(each)
        case Repeated(inner, separator):
            yield from _first_leaves(inner)
            if _may_be_empty(inner):
                yield from _first_leaves(FixedText(separator))
        case FixedText(""):
            return
        case NotStarting(inner):
            yield from _first_leaves(inner)
        case _:
            yield part


def _may_be_empty(part: Part) -> bool:
    """Whether ``part`` may be empty; False only if certain."""
    match part:
        case FixedText(text):
            return not text
        case Series(parts):
            return all(map(_may_be_empty, parts))
        case Either(parts):
            return any(map(_may_be_empty, parts))
        case Repeated(inner, _, at_least):
            return at_least == 0 or _may_be_empty(inner)
        case NotStarting(inner):
            return _may_be_empty(inner)
        case JsonSchema() | JsonObject():
            return False
        case Choice(options):
            return "" in options
    return True


def _may_start(leaf: Part) -> Callable[[str], bool]:
    """Tells whether a text that begins with ``leaf`` may begin with a prefix; False if certain.

    A call takes O(log n) for a choice of n options.
    """
    match leaf:
        case FixedText(text):
            texts = [text]
        case Choice(options):
            texts = sorted(options)
        case JsonSchema() | JsonObject():
            return lambda prefix: _JSON_BEGINNING.match(prefix) is not None
        case _:
            return lambda prefix: True
    known = set(texts)

    def may_start(prefix: str) -> bool:
        """Whether a text begins with ``prefix``, or ``prefix`` with a text: more may follow it."""
        at = bisect_left(texts, prefix)
        if at < len(texts) and texts[at].startswith(prefix):
            return True
        return any(prefix[:size] in known for size in range(len(prefix)))

    return may_start


def _ends_free(part: Part) -> bool:
    match part:
        case FreeText():
            return True
        case Series(parts):
            for each in reversed(parts):
                if _ends_free(each):
                    return True
                # Only a fixed mark or an optional part may follow the free text.
                leaf = isinstance(each, JsonSchema | JsonObject | Regex | Choice | Grammar)
                if not isinstance(each, FixedText) and (leaf or not _may_be_empty(each)):
                    return False
            return False
        case Either(parts):
            return any(map(_ends_free, parts))
        case Repeated(inner) | NotStarting(inner):
            return _ends_free(inner)
    return False
