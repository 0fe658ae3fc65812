"""The engines that MaskBench compares, behind one small interface.

Ours is ``app.constraint.Compiler``, with the open objects of the specification. llguidance and
xgrammar are configured to write as ``json.dumps`` does (no other white space, separators ``", "``
and ``": "``) and otherwise have their default strictness. Their compile caches are off.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from app.constraint import Compiler, JsonSchema
from app.core.constraint import Mask
from app.core.errors import ConstraintError, UnsatisfiableSchema, UnsupportedSchema
from tests.conformance.tokenizers import RealTokenizer


class Refused(Exception):
    """An engine refuses a schema; ``keyword`` is the one at fault, if the engine names it."""

    def __init__(self, reason: str, keyword: str = "", *, unsatisfiable: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.keyword = keyword
        self.unsatisfiable = unsatisfiable


class EngineFailed(Exception):
    """An engine failed in the middle of an answer, for example at a limit of its own."""


class Matcher(Protocol):
    """The state of one answer."""

    def mask(self) -> Mask:
        """Tokens allowed next, with the end of sequence if the answer may end."""

    def accept(self, token: int) -> None:
        """Advance by a token that the mask allows."""


class Engine(Protocol):
    """A compiler of JSON schemas."""

    def compile(self, schema: Any) -> Callable[[], Matcher]:
        """Compile a schema; calling the result starts an answer. Raises ``Refused``."""


class Leapjson:
    """This project's engine."""

    def __init__(self, tokenizer: RealTokenizer) -> None:
        self._compiler = Compiler(tokenizer.vocabulary)

    def compile(self, schema: Any) -> Callable[[], Matcher]:
        try:
            return self._compiler.compile(JsonSchema(schema)).start
        except UnsupportedSchema as error:
            raise Refused(str(error), error.keyword) from error
        except UnsatisfiableSchema as error:
            raise Refused(str(error), error.code, unsatisfiable=True) from error
        except ConstraintError as error:
            raise Refused(str(error), error.code) from error


class Llguidance:
    """llguidance, with its default strictness and its slices for JSON."""

    def __init__(self, tokenizer: RealTokenizer) -> None:
        self._library = import_module("llguidance")
        self._tokenizer = self._library.LLTokenizer(
            tokenizer.json,
            eos_token=tokenizer.end,
            slices=self._library.LLTokenizer.json_slices(),
        )
        self._words = (tokenizer.vocabulary.size + 31) // 32

    def compile(self, schema: Any) -> Callable[[], Matcher]:
        options = {
            "whitespace_flexible": False,
            "item_separator": ", ",
            "key_separator": ": ",
            "coerce_one_of": False,
        }
        library = self._library
        try:
            grammar = library.LLMatcher.grammar_from_json_schema(schema, overrides=options)
        except ValueError as error:
            raise Refused(str(error)) from error
        first = library.LLMatcher(self._tokenizer, grammar, log_level=0)
        if first.is_error():
            reason = str(first.get_error())
            raise Refused(reason, unsatisfiable="nsatisfiable" in reason)
        return lambda: _LlguidanceMatcher(first.deep_copy(), self._words)


class _LlguidanceMatcher:
    def __init__(self, matcher: Any, words: int) -> None:
        self._matcher = matcher
        self._mask = np.zeros(words, np.uint32)
        self._address = self._mask.ctypes.data

    def mask(self) -> Mask:
        self._matcher.unsafe_compute_mask_ptr(self._address, self._mask.nbytes)
        return self._mask

    def accept(self, token: int) -> None:
        if not self._matcher.consume_token(token):
            raise EngineFailed(self._matcher.get_error())


class Xgrammar:
    """xgrammar. ``strict`` (its default) closes objects and arrays unless a schema opens them.

    Raises ``ImportError`` if the library, which is no dependency of this project, is missing.
    """

    def __init__(self, tokenizer: RealTokenizer, *, strict: bool) -> None:
        self._library = import_module("xgrammar")
        self._strict = strict
        vocabulary = json.loads(tokenizer.json)
        spelled = [""] * tokenizer.vocabulary.size
        for text, token in vocabulary["model"]["vocab"].items():
            spelled[token] = text
        for added in vocabulary["added_tokens"]:
            spelled[added["id"]] = added["content"]
        information = self._library.TokenizerInfo(
            spelled, self._library.VocabType.BYTE_LEVEL, stop_token_ids=[tokenizer.end]
        )
        self._compiler = self._library.GrammarCompiler(
            information, max_threads=1, cache_enabled=False
        )
        self._words = (tokenizer.vocabulary.size + 31) // 32

    def compile(self, schema: Any) -> Callable[[], Matcher]:
        try:
            compiled = self._compiler.compile_json_schema(
                json.dumps(schema),
                any_whitespace=False,
                separators=(", ", ": "),
                strict_mode=self._strict,
            )
        except RuntimeError as error:
            raise Refused(str(error)) from error
        return lambda: _XgrammarMatcher(self._library.GrammarMatcher(compiled), self._words)


class _XgrammarMatcher:
    def __init__(self, matcher: Any, words: int) -> None:
        self._matcher = matcher
        self._mask = np.zeros((1, words), np.int32)

    def mask(self) -> Mask:
        if not self._matcher.fill_next_token_bitmask(self._mask):
            self._mask.fill(-1)
        mask: Mask = self._mask[0].view(np.uint32)
        return mask

    def accept(self, token: int) -> None:
        if not self._matcher.accept_token(token):
            raise EngineFailed("a token of the mask was not accepted")


ENGINES: dict[str, Callable[[RealTokenizer], Engine]] = {
    "leapjson": Leapjson,
    "llguidance": Llguidance,
    "xgrammar": lambda tokenizer: Xgrammar(tokenizer, strict=True),
    "xgrammar-open": lambda tokenizer: Xgrammar(tokenizer, strict=False),
}
