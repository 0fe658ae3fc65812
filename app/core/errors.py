"""Every error Leapjson raises on purpose, as one tree.

    LeapjsonError
    ├── RequestError                 the caller's fault; HTTP 400 unless noted
    │   ├── InvalidRequest           a field is missing, malformed or out of range
    │   │   ├── UnknownModel         HTTP 404
    │   │   ├── UnknownSchema        no schema has this id; HTTP 404 where the path names it
    │   │   ├── InvalidAdapter       files of an adapter that cannot be used, or no room for it
    │   │   ├── InvalidImage         a file that is no image, or more of one than is taken
    │   │   ├── QuotaExceeded        an API key has as many files or batches as it may have
    │   │   ├── PromptTooLong        the prompt leaves no room in the context
    │   │   └── BudgetTooSmall       no valid answer fits in max_tokens
    │   └── ConstraintError          the schema, pattern or grammar cannot be used
    │       ├── InvalidSchema        it is not a schema (or regex, or grammar)
    │       ├── UnsupportedSchema    a keyword that cannot be enforced, by name and place
    │       ├── UnsatisfiableSchema  nothing satisfies it
    │       └── ConstraintTooComplex a limit on bytes, nodes, states or time was passed
    ├── Unavailable                  not the caller's fault, and worth a retry
    │   ├── QueueFull                HTTP 429 with Retry-After
    │   ├── Draining                 HTTP 503; the server shuts down and takes nothing new
    │   ├── ShutDown                 HTTP 503; the server shut down amid the answer
    │   ├── EngineDied               HTTP 503; the engine's thread ended, and the process follows
    │   ├── CompilerStuck            HTTP 503; no compile worker could do its work
    │   ├── ReaderStuck              HTTP 503; no image worker could do its work
    │   ├── HostUnreachable          HTTP 503; an image could not be fetched from its host
    │   └── StoreUnavailable         HTTP 503; the store is away, or has no room
    ├── DeadlineExceeded             HTTP 504, not to be retried as it is
    ├── DeviceFailed                 the device failed amid a step: the engine dies of it
    ├── UnsupportedModel             at start-up: this model cannot be served exactly
    ├── RejectedToken                a token outside the mask was pushed into a constraint
    └── WorkPending                  work takes more than one call may do; call again

The status codes themselves are assigned in one place, ``app.http.errors``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Literal, Self

Overload = Literal["queue_full", "queue_tokens_full", "wait_too_long", "bodies_full", "images_full"]
"""Reason to refuse a request: too many answers or tokens are waiting, it would start too late, too
many bytes are being read, or images take too much memory."""


Role = Literal["prompt", "max_tokens", "constraint"]
"""Purpose of a field that has a different name in each API."""


class LeapjsonError(Exception):
    """Root of all errors raised on purpose. ``str(error)`` says what to change."""


class RequestError(LeapjsonError):
    """The caller can fix this by sending something else.

    Errors from below HTTP have the ``role`` of the field at fault, which each API names
    differently; ``named`` sets that name. ``param`` is that name, or None when no single
    field is at fault.
    """

    code: str = "invalid_request"

    def __init__(self, message: str, *, param: str | None = None, role: Role | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.role = role
        self.param = role if param is None else param

    def named(self, names: Mapping[Role, str]) -> Self:
        """A copy with the field's name from ``names``; without a role an unchanged copy.

        A copy, as one error may be raised to several requests that wait for one schema.
        """
        named = copy.copy(self)
        if self.role is not None:
            named.param = names.get(self.role, self.role)
            named.message = self._message(named.param)
        named.args = (named.message,)
        return named

    def _message(self, field: str) -> str:
        """The message where the field at fault is called ``field``."""
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        """For copies and pickles: subclasses take arguments of their own."""
        return type(self).__new__, (type(self), *self.args), self.__dict__


class InvalidRequest(RequestError):
    """A field is missing, malformed or out of range."""


class UnknownModel(InvalidRequest):
    code = "model_not_found"


class UnknownSchema(InvalidRequest):
    """No schema is kept under this id."""

    code = "schema_not_found"

    def __init__(self, message: str, schema_id: str = "") -> None:
        """``schema_id``: an id that the store may know."""
        super().__init__(message)
        self.schema_id = schema_id


class InvalidAdapter(InvalidRequest):
    code = "invalid_adapter"


class InvalidImage(InvalidRequest):
    """An image cannot be read, or exceeds a limit.

    Its place in the request is unknown where it is read; ``at`` adds it.
    """

    code = "invalid_image"

    def at(self, param: str) -> InvalidImage:
        """This error for the image in the field ``param``."""
        return InvalidImage(f"{param}: {self.message}", param=param)


class QuotaExceeded(InvalidRequest):
    code = "quota_exceeded"


class PromptTooLong(InvalidRequest):
    """The prompt alone, or the prompt and the tokens asked for, exceed the context."""

    code = "context_length_exceeded"

    def __init__(
        self,
        *,
        prompt_tokens: int,
        room: int,
        max_tokens: int | None = None,
        needed: int | None = None,
        image_tokens: int = 0,
    ) -> None:
        """Numbers of tokens. ``room`` is the limit for the prompt and ``max_tokens``, or for the
        prompt and the ``needed`` tokens of the shortest valid answer; without both, for any answer.

        ``image_tokens``: tokens of the prompt that stand for images.
        """
        self.prompt_tokens = prompt_tokens
        self.image_tokens = image_tokens
        self.room = room
        self.max_tokens = max_tokens
        self.needed = needed
        role: Role = "prompt" if max_tokens is None else "max_tokens"
        super().__init__(self._message(role), role=role)

    def _message(self, field: str) -> str:
        """The message in OpenAI's words, by which clients see that the prompt must be shortened.

        Some search for Anthropic's "prompt is too long" in it, too (langchain-openai 1.7).
        """
        prompt, room = self.prompt_tokens, self.room
        message = f"This model's maximum context length is {room} tokens. However, you requested "
        shorten = f"shorten it{self._of_images(', or send fewer or smaller images')}"
        if self.needed is not None:
            answer, of_answer, too_long = self.needed, "in the shortest valid answer", shorten
        elif self.max_tokens is not None:
            answer, of_answer = self.max_tokens, f"in {field}"
            too_long = f"{shorten}, or lower {field} to at most {room - prompt}"
        else:
            return (
                f"{message}{prompt} tokens in the prompt{self._of_images()}, which leave no room "
                f"for an answer. The prompt is too long; {shorten}."
            )
        return (
            f"{message}{prompt + answer} tokens ({prompt} in the prompt{self._of_images()}, "
            f"{answer} {of_answer}). The prompt is too long for that; {too_long}."
        )

    @property
    def anthropics(self) -> str:
        """The message in Anthropic's words, for the same reason."""
        prompt, images = self.prompt_tokens, self._of_images()
        answer = self.max_tokens if self.needed is None else self.needed
        if answer is None:
            return f"prompt is too long: {prompt} tokens > {self.room - 1} maximum{images}"
        return (
            f"input length and `max_tokens` exceed context limit: {prompt} + {answer} > "
            f"{self.room}, decrease input length or `max_tokens` and try again{images}"
        )

    def _of_images(self, text: str | None = None) -> str:
        """``text`` where the prompt has images; by default, how many tokens these are."""
        if not self.image_tokens:
            return ""
        return f", {self.image_tokens} of them its images'" if text is None else text


class BudgetTooSmall(InvalidRequest):
    code = "budget_too_small"

    def __init__(self, *, max_tokens: int, needed: int) -> None:
        self.max_tokens = max_tokens
        self.needed = needed
        super().__init__(self._message("max_tokens"), role="max_tokens")

    def _message(self, field: str) -> str:
        return (
            f"{field} is {self.max_tokens}, but the shortest answer this constraint allows "
            f"needs {self.needed} tokens; raise {field} to at least {self.needed}"
        )


class ConstraintError(RequestError):
    code = "invalid_schema"

    subject = ""
    """The schema at fault, if there are several; else ""."""
    line: int | None = None
    column: int | None = None
    """Line and column of the error in a grammar, from 1, if known."""
    position: int | None = None
    """Offset of the error in a pattern, in characters, if known."""

    def __init__(self, message: str) -> None:
        super().__init__(message, role="constraint")

    def at(
        self, *, line: int | None = None, column: int | None = None, position: int | None = None
    ) -> Self:
        """This error, with the place in a grammar's or a pattern's text that it is about."""
        self.line, self.column, self.position = line, column, position
        return self

    def about(self, subject: str) -> Self:
        """This error with ``subject`` before the message. Call once."""
        if subject:
            self.subject = subject
            self.message = f"{subject}: {self.message}"
            self.args = (self.message,)
        return self


class InvalidSchema(ConstraintError):
    """What was sent is not a JSON Schema, or not a regular expression or grammar.

    ``pointer`` is a JSON Pointer (RFC 6901) into a schema; in a grammar it reads
    ``line L, column C``, both counted from 1.
    """

    def __init__(self, message: str, *, pointer: str = "") -> None:
        super().__init__(f"{message} (at {pointer or 'the root'})")
        self.reason = message
        self.pointer = pointer


class UnsupportedSchema(ConstraintError):
    """``keyword`` at ``pointer`` cannot be enforced exactly; ``reason`` says why, or is "".

    ``pointer`` is that of ``InvalidSchema``; in a grammar ``keyword`` is the construct.
    """

    code = "unsupported_schema"

    def __init__(self, keyword: str, pointer: str, reason: str = "") -> None:
        why = f": {reason}" if reason else ""
        super().__init__(
            f"the keyword {keyword!r} at {pointer or 'the root'} cannot be enforced{why}"
        )
        self.keyword = keyword
        self.pointer = pointer
        self.reason = reason


class UnsatisfiableSchema(ConstraintError):
    """No JSON value satisfies the schema, so no answer could ever be given.

    ``pointer`` leads to the smallest subschema that nothing satisfies, where it is known.
    """

    code = "unsatisfiable_schema"

    def __init__(
        self, message: str = "no value satisfies this schema", *, pointer: str | None = None
    ) -> None:
        super().__init__(message)
        self.reason = message
        self.pointer = pointer


class ConstraintTooComplex(ConstraintError):
    """Compiling passed a limit. ``limit`` says which one and its value."""

    code = "schema_too_complex"

    pointer: str | None = None
    """JSON Pointer to the subschema that was compiled, if any."""

    def __init__(self, limit: str) -> None:
        self.reason = f"the constraint is too complex: {limit}"
        super().__init__(self.reason)

    def within(self, pointer: str) -> None:
        """Add the place ``pointer`` to the message, unless it has one."""
        if self.pointer is None:
            self.pointer = pointer
            self.message += f" (at {pointer or 'the root'})"
            self.args = (self.message,)


class Unavailable(LeapjsonError):
    """Try again later; ``retry_after`` is in whole seconds."""

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class QueueFull(Unavailable):
    """The bounded queue has no room for the request, or the request would start too late."""

    def __init__(self, message: str, *, retry_after: int, code: Overload = "queue_full") -> None:
        super().__init__(message, retry_after=retry_after)
        self.code = code


class Draining(Unavailable):
    code = "draining"


class ShutDown(Unavailable):
    code = "shut_down"


class CompilerStuck(Unavailable):
    code = "compiler_stuck"


class ReaderStuck(Unavailable):
    code = "image_reader_stuck"


class HostUnreachable(Unavailable):
    code = "image_host_unreachable"


class StoreUnavailable(Unavailable):
    code = "store_unavailable"


class EngineDied(Unavailable):
    code = "engine_died"


class DeadlineExceeded(LeapjsonError):
    """The time that a request may take has passed; nothing of it runs any more."""


class DeviceFailed(LeapjsonError):
    """The device failed amid a step. The message holds nothing of any request."""


class UnsupportedModel(LeapjsonError):
    """At start-up: this model's layers cannot be run exactly, so it is not served."""


class WorkPending(LeapjsonError):
    """The work exceeds the limit of one call. Progress is kept: the same call continues it."""

    def __init__(self) -> None:
        super().__init__("the work of one call exceeds its limit")


class RejectedToken(LeapjsonError):
    """A token (or bytes) outside the language was pushed into a ``ConstraintState``."""


class DrawAgain(RejectedToken):
    """A token that the mask allows is not possible: it would repeat an item or a name, or leave no
    answer within the budget. The next mask excludes it."""
