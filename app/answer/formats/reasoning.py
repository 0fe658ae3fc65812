"""Marks around a model's reasoning and its content; the amount of reasoning a request wants.

Also the names in chat templates for the reasoning of messages, and for the reasoning effort.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

NEWLINES_BEFORE_ANSWER = 2
"""Maximum newlines after the reasoning that belong neither to it nor to the answer."""

_MARK = re.compile(r"<[^<>\s]+>|\[/?[A-Z_ ]+\]")
"""Possible special tokens. Marks of other shapes have to be added here, or they could not be
generated as tokens."""


def marks_in(*texts: str) -> frozenset[str]:
    """The marks that a tokenizer may have a special token for."""
    return frozenset(mark for text in texts for mark in _MARK.findall(text))


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """What stands around the reasoning::

    begin REASONING end  \\n\\n  then ANSWER closing
    """

    begin: str
    end: str
    then: str = ""
    """Text between ``end`` and the answer."""
    closing: str = ""
    """Text after the content of an answer with reasoning."""
    unreasoned: str = ""
    """Beginning of an answer without reasoning, in formats that mark it."""
    repeated: bool = False
    """Whether there may be reasoning again after ``then``."""

    def marks(self) -> frozenset[str]:
        return marks_in(self.begin, self.end, self.then, self.closing, self.unreasoned)


@dataclass(frozen=True, slots=True)
class ContentFormat:
    """The text around the content of an answer; calls have marks of their own."""

    begin: str = ""
    end: str = ""
    preamble: str = ""
    preamble_end: str = ""
    """Marks around text before calls; "": there is no such text, or it is content."""
    without: tuple[str, ...] = ()
    """Strings that free-text content cannot contain, besides ``end``."""
    other_begins: tuple[str, ...] = ()
    """Variants of ``begin`` that unconstrained models write."""
    always: bool = False
    """Whether the marks are written before calls as well, even around empty content."""
    ending: str = ""
    """Text that models write after content without calls, before they end."""

    def marks(self) -> frozenset[str]:
        others = (*self.other_begins, self.ending, *self.without)
        return marks_in(self.begin, self.end, self.preamble, self.preamble_end, *others)


BARE = ContentFormat()
"""Content as it is."""

THINK = ReasoningFormat("<think>", "</think>")
"""DeepSeek R1 and most that came after it."""

_HUNYUAN_SUFFIX = re.compile(r"set HYTK = '(:\w+)'")
"""Suffix inside all marks of Hunyuan 3."""

_ON_A_LINE = re.compile(r"\{\{-?\s*'\\n<think>'\s*\+")

HARMONY = ReasoningFormat(
    "<|channel|>analysis<|message|>", "<|end|>", then="<|start|>assistant", repeated=True
)


def reasoning_format(template: str, special_tokens: Collection[str]) -> ReasoningFormat | None:
    """The format by a chat template and the names of special tokens; None: they have none."""
    found = next(filter(None, (known(template) for known in _FAMILIES)), None)
    if found is not None:
        return found
    for known in (THINK, ReasoningFormat("[THINK]", "[/THINK]")):
        in_tokens = known.begin in special_tokens and known.end in special_tokens
        # One mark is enough: some templates only remove old reasoning from the history.
        if known.end in template or known.begin in template or in_tokens:
            return known
    return None


def content_format(template: str) -> ContentFormat:
    """The marks around content, by a chat template."""
    return next((marks for sign, marks in _CONTENTS if sign in template), BARE)


def _where(sign: str, format: ReasoningFormat) -> Callable[[str], ReasoningFormat | None]:
    return lambda template: format if sign in template else None


def _hunyuan(template: str) -> ReasoningFormat | None:
    """Hunyuan 3."""
    suffix = _HUNYUAN_SUFFIX.search(template)
    return suffix and ReasoningFormat(f"<think{suffix[1]}>", f"</think{suffix[1]}>")


_FAMILIES: tuple[Callable[[str], ReasoningFormat | None], ...] = (
    _where(HARMONY.begin, HARMONY),
    _where("<|channel>thought", ReasoningFormat("<|channel>thought\n", "<channel|>")),
    _where("<seed:think>", ReasoningFormat("<seed:think>", "</seed:think>")),
    _where("<mm:think>", ReasoningFormat("<mm:think>", "</mm:think>", unreasoned="</mm:think>")),
    _hunyuan,
    lambda template: (  # GLM 4.5 and 4.6, whose prompts end before the newline
        ReasoningFormat("\n<think>", "</think>") if _ON_A_LINE.search(template) else None
    ),
    _where("<|START_THINKING|>", ReasoningFormat("<|START_THINKING|>", "<|END_THINKING|>")),
    _where("<|inner_prefix|>", ReasoningFormat("<|inner_prefix|>", "<|inner_suffix|>")),
    _where("open_tag('think')", ReasoningFormat("<|open|>think<|sep|>", "<|close|>think<|sep|>")),
    _where(
        "<|begin|>assistant<|think|>",
        ReasoningFormat("<|think|>", "<|end|>", then="<|begin|>assistant"),
    ),
    _where(
        "assistant to=self<|message|>",
        ReasoningFormat(" to=self<|message|>", "<|eom|>", then="<|start|>assistant"),
    ),
    _where(
        "[BEGIN FINAL RESPONSE]",
        ReasoningFormat("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"),
    ),
    _where(
        "Here is my thought process:",
        ReasoningFormat("Here is my thought process:", "Here is my response:"),
    ),
    _where(
        "<response></response>",
        ReasoningFormat("<think>", "</think>", then="<response>", closing="</response>"),
    ),
)
"""Formats by a string that only their templates contain: gpt-oss, Gemma 4, Seed-OSS, MiniMax M3,
Hunyuan 3, GLM, Command, Apertus, Kimi K3, Solar Open, Muse, Apriel, Granite 3.2 and 3.3."""

_CONTENTS = (
    (
        "<|channel|>final<|message|>",
        ContentFormat(
            "<|channel|>final<|message|>",
            preamble="<|channel|>commentary<|message|>",
            preamble_end="<|end|><|start|>assistant",
            without=("<|channel|>", "<|start|>", "<|end|>"),
            other_begins=(
                "<|channel|>final <|constrain|>json<|message|>",
                "<|channel|>final<|constrain|>json<|message|>",
                "<|channel|>final json<|message|>",
            ),
        ),
    ),
    ("<|START_RESPONSE|>", ContentFormat("<|START_RESPONSE|>", "<|END_RESPONSE|>")),
    ("<|START_THINKING|>", ContentFormat("<|START_TEXT|>", "<|END_TEXT|>")),
    (
        "open_tag('response')",
        ContentFormat(
            "<|open|>response<|sep|>",
            "<|close|>response<|sep|>",
            always=True,
            ending="<|close|>message<|sep|>",
        ),
    ),
    ("<|begin|>assistant<|content|>", ContentFormat("<|content|>", without=("<|end|>",))),
    ("以助手：开头", ContentFormat(other_begins=("助手：",))),
    ("assistant to=self<|message|>", ContentFormat(" to=user<|message|>", without=("<|eom|>",))),
)
"""gpt-oss, Command R7B, A and MoE, Kimi K3, Solar Open, Hunyuan A13B, Muse."""


REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking", "thought", "tool_plan")
"""Names under which templates read the reasoning of a message."""

_EFFORT_VARIABLES = (
    "reasoning_effort",
    "reasoning_strength",
    "thinking_effort",
    "thinking_mode",
    "thinking_option",
)

_EFFORTS = {"none": 0, "minimal": 1, "low": 2, "medium": 3, "high": 4, "xhigh": 5, "max": 6}
"""Efforts in requests, with their order."""

_AMOUNTS = {**_EFFORTS, "no_think": 0, "off": 0, "disabled": 0, "on": 3, "enabled": 3}
"""Also the words of templates, on the same scale."""

_USUAL = ("low", "medium", "high")
"""Words for templates that write the effort into the prompt as it is."""


def reasoning_fields(template: str) -> frozenset[str]:
    """Names in ``REASONING_FIELDS`` that ``template`` reads in messages."""
    return frozenset(
        name for name in REASONING_FIELDS if re.search(rf"""[.'"]{name}\b""", template)
    )


def effort_words(template: str, variables: Collection[str]) -> Mapping[str, Mapping[str, str]]:
    """For each variable that sets the amount of reasoning, the template's word for each effort."""
    found = {}
    for name in [name for name in _EFFORT_VARIABLES if name in variables]:
        words = _words(template, name)
        found[name] = {effort: _word(effort, words) for effort in _EFFORTS}
    return found


def _words(template: str, variable: str) -> list[str]:
    """The words that ``variable`` may be."""
    compared = re.findall(
        rf"\b{variable}\b(?:\s*\|\s*\w+)?\s*(not in|in|==|!=)\s*(\[[^\]]*\]|'[^']*'|\"[^\"]*\")",
        template,
    )
    found = {word: None for _, text in compared for word in re.findall(r"['\"](\w+)['\"]", text)}
    known = [word for word in found if word in _AMOUNTS]
    has_all = any(how == "not in" for how, _ in compared) or {"on", "enabled"} & found.keys()
    return known if has_all and known else [*known, *_USUAL]


def _word(effort: str, words: Collection[str]) -> str:
    """The word nearest to ``effort``; of two equally near, the one for more reasoning."""
    asked = _EFFORTS[effort]
    if asked <= _EFFORTS["minimal"]:
        return min(words, key=lambda word: _AMOUNTS[word])
    reasoning = [word for word in words if _AMOUNTS[word] > _EFFORTS["minimal"]] or words
    return min(reasoning, key=lambda word: (abs(_AMOUNTS[word] - asked), -_AMOUNTS[word]))


FALLBACK_REASONING = ReasoningFormat("<think>\n", "</think>")
"""Format for templates without reasoning, if a request asks for reasoning anyway."""

INSTRUCTION = (
    "Think before you answer: write your thoughts between <think> and </think>. "
    "Behind </think> write the answer, and nothing but the answer."
)
"""Instruction for such models. Constant, so that its prefix is cached."""

SHARES = {"low": 0.2, "medium": 0.5}
"""Share of ``max_tokens`` for an effort, if the template has no variable for it."""


@dataclass(frozen=True, slots=True)
class ReasoningUse:
    """The reasoning that a request asks for, and whether to show it."""

    wanted: bool | None = None
    """True: the answer begins with reasoning. False: it has none. None: the model decides."""
    max_tokens: int | None = None
    """Maximum tokens of the reasoning; None: not set."""
    share: float | None = None
    """The maximum as a share of the answer's ``max_tokens``."""
    shown: bool = True

    def limit(self, max_tokens: int) -> int | None:
        """The most tokens for reasoning in an answer of ``max_tokens``; None: no limit was sent."""
        if self.max_tokens is None and self.share is not None:
            return int(self.share * max_tokens)
        return self.max_tokens

    @property
    def is_limited(self) -> bool:
        return self.max_tokens is not None or self.share is not None


DEFAULT_REASONING = ReasoningUse()
"""The request does not set the reasoning."""
