"""What serving needs from the layers below, as Protocols: its fakes in tests end here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from app.core.events import TokenChunk
from app.core.request import EngineRequest


class Engine(Protocol):
    """The synchronous loop. Only the engine's thread calls ``add``, ``abort`` and ``step``."""

    def add(self, request: EngineRequest, /) -> None:
        """Queue a request, or raise a ``RequestError`` and leave the engine as it was."""

    def abort(self, request_id: str, /) -> object:
        """Forget a live request."""

    def step(self, tell: Callable[[list[TokenChunk]], None], /) -> Sequence[TokenChunk]:
        """Run one step; what it added to each answer.

        ``tell`` is called at most once, with what can be said before the step has computed
        anything.
        """

    @property
    def has_work(self) -> bool:
        """Whether another step would do anything."""

    @property
    def taken_up(self) -> Sequence[str]:
        """Ids of the requests that the step took up for the first time; known to ``tell``."""

    @property
    def num_running(self) -> int:
        """Sequences that hold cache blocks. Any thread may read it."""

    @property
    def num_waiting(self) -> int:
        """Sequences queued for their first or next blocks. Any thread may read it."""

    @property
    def kv_usage(self) -> float:
        """Share of cache blocks that live sequences hold, 0 to 1. Any thread may read it."""


class RenderedPrompt(Protocol):
    """A conversation as the model reads it."""

    @property
    def tokens(self) -> Sequence[int]: ...

    @property
    def tail(self) -> str:
        """The end of the text: whether it opens the reasoning."""


class Tokenizer(Protocol):
    """The model's tokenizer and chat template. Any thread may call it."""

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> RenderedPrompt:
        """Raises ``InvalidRequest`` where the template refuses."""

    def encode_prompt(self, text: str, *, add_special_tokens: bool = False) -> Sequence[int]:
        """Tokens of a text; names of special tokens in it become those tokens."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones included."""
