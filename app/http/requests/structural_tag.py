"""vLLM's and SGLang's structural tags, in XGrammar's two forms, as composite grammars.

The older form lists ``structures`` (begin, schema, end) and ``triggers``. The newer one has a
``format``, a tree of parts by type. Free text ends where the end of its tag first occurs, and at
the first complete trigger, as for a client that scans the answer for them. Objects are read member
by member, so that errors have a path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from app.core.composite import (
    Composite,
    Either,
    FixedText,
    FreeText,
    Part,
    Repeated,
    Series,
    text_before,
)
from app.core.errors import InvalidRequest
from app.core.specs import Grammar, JsonSchema, Regex
from app.http.requests.body import parsed
from app.http.requests.wire import Ignored, invalid


class Fields:
    """Reads the members of one JSON object; those that are not read are ignored by ``finish``."""

    def __init__(self, value: Any, param: str) -> None:
        if not isinstance(value, dict):
            raise invalid(param, "it must be an object")
        self.value = value
        self.param = param
        self._asked: set[str] = set()

    def needed(self, name: str, expected: type | tuple[type, ...] = object) -> Any:
        if name not in self.value:
            raise invalid(f"{self.param}.{name}", "it is missing")
        return self.optional(name, expected, None)

    def optional(self, name: str, expected: type | tuple[type, ...], default: Any) -> Any:
        self._asked.add(name)
        value = self.value.get(name, default)
        if name in self.value and (
            not isinstance(value, expected) or (expected is int and isinstance(value, bool))
        ):
            names = {str: "text", list: "a list", int: "an integer", bool: "true or false"}
            types = expected if isinstance(expected, tuple) else (expected,)
            wanted = " or ".join(names.get(each, "null") for each in types)
            raise self.wrong(name, f"it must be {wanted}")
        return value

    def texts(self, name: str, default: Sequence[str] | None = None) -> list[str]:
        """A list of texts that are not empty; needed unless there is a default."""
        if default is None:
            self.needed(name)
        texts = self.optional(name, list, default)
        for index, text in enumerate(texts):
            if not isinstance(text, str) or not text:
                raise self.wrong(f"{name}[{index}]", "it must be a string that is not empty")
        return list(texts)

    def items(self, name: str) -> list[tuple[Any, str]]:
        """The members of a list that is not empty, and the path of each."""
        values = self.needed(name, list)
        if not values:
            raise self.wrong(name, "it must not be empty")
        return [(value, f"{self.param}.{name}[{index}]") for index, value in enumerate(values)]

    def wrong(self, name: str, reason: str) -> InvalidRequest:
        return invalid(f"{self.param}.{name}", reason)

    def finish(self, ignored: Ignored) -> None:
        """Ignore the members that were not read."""
        for name in self.value:
            if name not in self._asked:
                ignored.leave_out(f"{self.param}.{name}")


_DEEPEST = 64
"""Maximum depth of formats inside formats."""

_MOST_TWICE = 3
"""Maximum depth of formats whose tags are written twice."""

_MOST_WORK = 300_000
"""Maximum steps to read a structural tag, each well below a microsecond."""

_WORK_OF_FORMAT = 40

_NO_END = ("",)
"""``Ends`` of a format that nothing has to follow."""

_TYPES = (
    *("const_string", "json_schema", "regex", "grammar", "any_text", "sequence", "or", "optional"),
    *("star", "plus", "repeat", "tag", "triggered_tags", "tags_with_separator", "dispatch"),
)

Ends = tuple[str, ...]
"""Texts one of which follows a format; "": nothing has to follow."""


def structure(
    value: Any, whitespace: str, ignored: Ignored, param: str = "structural_tag"
) -> Composite:
    """The answers that a structural tag describes; ``value`` is the tag or its JSON.

    ``whitespace`` is the white space of JSON in it, ``param`` the field it is in. Raises
    ``InvalidRequest`` with the path, also for formats in terms of tokens and for what cannot be
    enforced.
    """
    if isinstance(value, str):
        value = parsed(value, param)
    reader = _TagReader(whitespace, ignored, param)
    tag = Fields(value, param)
    if tag.optional("type", str, "structural_tag") != "structural_tag":
        raise tag.wrong("type", 'it must be "structural_tag"')
    if "format" in tag.value:
        root = reader.format(tag.needed("format"), f"{param}.format", _NO_END)
    else:
        root = reader.older_form(tag)
    tag.finish(ignored)
    return Composite(root)


class _TagReader:
    """Reads formats. Each gets the texts that may follow it: free text ends where one occurs.

    Work is limited, because marks are compared with each other, and ends are written after every
    format that may be the last.
    """

    def __init__(self, whitespace: str, ignored: Ignored, param: str) -> None:
        self._whitespace = whitespace
        self._ignored = ignored
        self._param = param
        self._depth = 0
        self._left = _MOST_WORK
        self._stops: tuple[str, ...] = ()
        """Ends of the enclosing tag, which free text inside it may not contain."""
        self._written_twice = 0
        """Number of enclosing formats whose tags are written twice: as first and as later tags."""

    def format(self, value: Any, param: str, ends: Ends) -> Part:
        """The texts of a format, each followed by one of ``ends``."""
        fields = Fields(value, param)
        type = fields.needed("type", str)
        if type not in _TYPES:
            raise fields.wrong(
                "type", f"{type!r} cannot be enforced here, only {', '.join(_TYPES)}"
            )
        if self._depth == _DEEPEST:
            raise invalid(param, f"it is nested deeper than the limit of {_DEEPEST} formats")
        self._spend(_WORK_OF_FORMAT)
        self._depth += 1
        part = self._read(type, fields, ends)
        self._depth -= 1
        fields.finish(self._ignored)
        return part

    def _read(self, type: str, fields: Fields, ends: Ends) -> Part:
        match type:
            case "const_string":
                return self._followed(FixedText(fields.needed("value", str)), ends)
            case "regex":
                return self._followed(Regex(fields.needed("pattern", str)), ends)
            case "grammar":
                return self._followed(Grammar(fields.needed("grammar", str)), ends)
            case "sequence":
                *first, (last, param) = fields.items("elements")
                parts = [self.format(value, where, _NO_END) for value, where in first]
                return Series((*parts, self.format(last, param, ends)))
            case "or":
                elements = fields.items("elements")
                return Either(tuple(self.format(value, param, ends) for value, param in elements))
            case "optional":
                content = self.format(fields.needed("content"), f"{fields.param}.content", ends)
                return Either((self._one_of(ends), content))
            case "star" | "plus":
                return self._times(fields, int(type == "plus"), None, ends)
            case "tag":
                _, whole = self._tag(fields)
                return self._followed(whole, ends)
        reader: Callable[[Fields, Ends], Part] = getattr(self, f"_{type}")
        return reader(fields, ends)

    def older_form(self, tag: Fields) -> Part:
        """``structures`` and ``triggers``: text with tags in it, any number of them."""
        triggers = self._triggers(tag, ())
        tags = []
        for value, param in tag.items("structures"):
            self._spend(_WORK_OF_FORMAT)
            fields = Fields(value, param)
            begin, end = fields.needed("begin", str), fields.needed("end", str)
            schema = fields.needed("schema")
            if isinstance(schema, str):
                schema = parsed(schema, f"{param}.schema")
            fields.finish(self._ignored)
            content = self._schema(schema, f"{param}.schema", self._whitespace)
            whole = Series((FixedText(begin), self._followed(content, (end,))))
            tags.append((begin, f"{param}.begin", whole))
        one = self._triggered(tags, triggers, ())
        return Series((Repeated(one), self._text(_NO_END, triggers, ())))

    def _json_schema(self, fields: Fields, ends: Ends) -> Part:
        schema = fields.needed("json_schema")
        if fields.optional("style", str, "json") != "json":
            raise fields.wrong("style", 'only "json" is supported')
        if fields.optional("any_order", bool, False):
            raise fields.wrong("any_order", "keys are in the order of the schema; leave it out")
        if fields.optional("excludes", list, []):
            raise fields.wrong("excludes", "it cannot be enforced; use a pattern in the schema")
        most = fields.optional("max_whitespace_cnt", (int, type(None)), None)
        form = self._whitespace
        if most is not None:
            if isinstance(most, bool) or most < 1:
                raise fields.wrong("max_whitespace_cnt", "it must be 1 or more")
            form = "compact" if form == "compact" else "spaced"
        return self._followed(self._schema(schema, f"{fields.param}.json_schema", form), ends)

    def _schema(self, schema: Any, param: str, whitespace: str) -> Part:
        if not isinstance(schema, (dict, bool)):
            raise invalid(param, "it must be a JSON Schema: an object, true or false")
        return JsonSchema(schema, close_objects=True, whitespace=whitespace)

    def _any_text(self, fields: Fields, ends: Ends) -> Part:
        for name in ("max_tokens", "max_chars"):
            if fields.optional(name, (int, type(None)), None) is not None:
                raise fields.wrong(name, "limits on text are not supported; leave it out")
        return self._text(ends, (), fields.texts("excludes", ()))

    def _repeat(self, fields: Fields, ends: Ends) -> Part:
        least, most = fields.needed("min", int), fields.needed("max", int)
        if least < 0:
            raise fields.wrong("min", "it must be 0 or more")
        if most != -1 and most < least:
            raise fields.wrong("max", "it must be at least min, or -1 for no limit")
        return self._times(fields, least, None if most == -1 else most, ends)

    def _times(self, fields: Fields, least: int, most: int | None, ends: Ends) -> Part:
        content = self.format(fields.needed("content"), f"{fields.param}.content", _NO_END)
        return self._followed(Repeated(content, "", least, most), ends)

    def _tag(self, fields: Fields) -> tuple[str, Part]:
        """A tag's beginning, and the whole tag."""
        begin = fields.needed("begin")
        if not isinstance(begin, str):
            raise fields.wrong("begin", "it must be a string; token ids are not supported")
        end = fields.needed("end")
        ends = tuple(end) if isinstance(end, list) else (end,)
        if not ends or not all(isinstance(each, str) for each in ends):
            raise fields.wrong("end", "it must be a string or a list of strings")
        around, self._stops = self._stops, tuple(each for each in ends if each)
        content = self.format(fields.needed("content"), f"{fields.param}.content", ends)
        self._stops = around
        return begin, Series((FixedText(begin), content))

    def _tags(self, fields: Fields) -> list[tuple[str, str, Part]]:
        """For each tag its beginning, the path of that in the request, and the whole tag."""
        tags = []
        for value, param in fields.items("tags"):
            tag = Fields(value, param)
            if tag.optional("type", str, "tag") != "tag":
                raise tag.wrong("type", 'it must be "tag"')
            begin, whole = self._tag(tag)
            tag.finish(self._ignored)
            tags.append((begin, f"{param}.begin", whole))
        return tags

    def _triggered_tags(self, fields: Fields, ends: Ends) -> Part:
        excludes = fields.texts("excludes", ())
        triggers = self._triggers(fields, excludes)
        needs_one = fields.optional("at_least_one", bool, False)
        stops = fields.optional("stop_after_first", bool, False)
        twice = needs_one and not stops
        if self._written_twice == _MOST_TWICE and twice:
            raise fields.wrong("at_least_one", f"it is nested in {_MOST_TWICE} others of its kind")
        self._written_twice += twice
        tags = self._tags(fields)
        self._written_twice -= twice
        first = Either(tuple(whole for _, _, whole in tags))
        one = self._triggered(tags, triggers, excludes)
        if needs_one and stops:
            return self._followed(first, ends)
        text = self._text(ends, triggers, excludes)
        if stops:
            return Either((text, self._followed(one, ends)))
        more = Series((Repeated(one), text))
        return Series((first, more)) if needs_one else more

    def _tags_with_separator(self, fields: Fields, ends: Ends) -> Part:
        separator = fields.needed("separator", str)
        tags = Either(tuple(whole for _, _, whole in self._tags(fields)))
        least = int(fields.optional("at_least_one", bool, False))
        most = 1 if fields.optional("stop_after_first", bool, False) else None
        return self._followed(Repeated(tags, separator, least, most), ends)

    def _dispatch(self, fields: Fields, ends: Ends) -> Part:
        rules, loop = fields.items("rules"), fields.optional("loop", bool, True)
        tags = []
        for rule, param in rules:
            if not isinstance(rule, list) or len(rule) != 2 or not isinstance(rule[0], str):
                raise invalid(param, "it must be a pair of a pattern (a string) and a format")
            after = self.format(rule[1], f"{param}[1]", _NO_END if loop else ends)
            tags.append((rule[0], f"{param}[0]", Series((FixedText(rule[0]), after))))
        patterns, excludes = [pattern for pattern, _, _ in tags], fields.texts("excludes", ())
        self._check_triggers(patterns, [param for _, param, _ in tags], excludes)
        one = self._triggered(tags, patterns, excludes)
        text = self._text(ends, patterns, excludes)
        return Series((Repeated(one), text)) if loop else Either((text, one))

    def _triggered(
        self,
        tags: Sequence[tuple[str, str, Part]],
        triggers: Sequence[str],
        excludes: Sequence[str],
    ) -> Part:
        """Text up to the first of ``triggers``, and a tag that begins with it."""
        by_trigger: dict[str, list[Part]] = {}
        for begin, param, whole in tags:
            self._spend(len(triggers))
            found = {trigger for trigger in triggers if begin.startswith(trigger)}
            if len(found) != 1:
                how = "more than one" if found else "none"
                raise invalid(param, f"it must begin with one of the triggers, not with {how}")
            by_trigger.setdefault(found.pop(), []).append(whole)
        marks = (*triggers, *self._stops, *excludes)
        by_text: dict[FreeText, list[Part]] = {}
        for trigger, some in by_trigger.items():
            by_text.setdefault(self._text_before(trigger, marks), []).extend(some)
        return Either(tuple(Series((text, Either(tuple(some)))) for text, some in by_text.items()))

    def _text(self, ends: Ends, triggers: Sequence[str], excludes: Sequence[str]) -> Part:
        """Text in which no trigger and none of ``excludes`` occurs, up to the first end."""
        marks = (*self._stops, *triggers)
        texts = [Series((self._text_before(end, marks, excludes), FixedText(end))) for end in ends]
        return Either(tuple(texts))

    def _text_before(
        self, mark: str, marks: Sequence[str], without: Sequence[str] = ()
    ) -> FreeText:
        self._spend(sum(1 + len(other) for other in (*marks, *without)))
        return text_before(mark, marks, without)

    def _followed(self, part: Part, ends: Ends) -> Part:
        return Series((part, self._one_of(ends)))

    def _one_of(self, ends: Ends) -> Part:
        self._spend(5 * len(ends))
        return Either(tuple(map(FixedText, ends)))

    def _triggers(self, fields: Fields, excludes: Sequence[str]) -> list[str]:
        triggers = fields.texts("triggers")
        if not triggers:
            raise fields.wrong("triggers", "it must not be empty")
        params = [f"{fields.param}.triggers[{index}]" for index in range(len(triggers))]
        self._check_triggers(triggers, params, excludes)
        return triggers

    def _check_triggers(
        self, triggers: Sequence[str], params: Sequence[str], excludes: Sequence[str]
    ) -> None:
        """Refuse a trigger that can never match: it contains another or an excluded text."""
        for trigger, param in zip(triggers, params, strict=True):
            self._spend(len(triggers) + len(excludes))
            if not trigger:
                raise invalid(param, "it must not be empty")
            for other in triggers:
                if other in trigger[:-1]:
                    raise invalid(param, f"it contains the trigger {other!r}, which matches first")
            for exclude in excludes:
                if exclude in trigger:
                    raise invalid(param, f"it contains {exclude!r}, which is excluded")

    def _spend(self, work: int) -> None:
        self._left -= work
        if self._left < 0:
            raise invalid(self._param, "too many formats, triggers or ends")
