"""The source of each token of an answer, in its current tokenization.

A leap may replace tokens at the end of an answer by others that spell the same text and more. Each
token has one source:

sampled  drawn
drafted  drawn as drafted, in a pass that also drew other tokens
held     drawn although its bytes were forced: a leap had held them back, as the next character
         could still merge with them, or because the budget left no room
leapt    appended by a leap, with forced bytes

A token that a leap places inside the old text has the source, among those of the tokens it
replaces, that comes first in this list.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.core.events import AnswerToken, Origins, OriginToken, TokenSource

SAMPLED, DRAFTED, HELD, LEAPT = range(4)
_NAMES: tuple[TokenSource, ...] = ("sampled", "drafted", "held", "leapt")


class TokenSources:
    """The source of every token of one answer, and how many there are of each.

    If the client asks for origins, it also keeps the tokens.
    """

    __slots__ = ("_changed", "_codes", "_last_size", "_reported", "_spelling", "counts")

    def __init__(self, spelling: Sequence[bytes] | None = None) -> None:
        """``spelling``: the bytes of every token id; None: origins are not reported."""
        self._codes = bytearray()
        self.counts = [0, 0, 0, 0]
        """Tokens by source, without a token that only ends the answer."""
        self._spelling = spelling
        self._reported: list[AnswerToken | int] = []
        """Tokens to report: drawn ones with their log-probabilities, of others the id."""
        self._changed = 0
        """Index of the first token that changed since the last report."""
        self._last_size = 0
        """Number of tokens in the last report."""

    def append(self, source: int, token: AnswerToken | int) -> None:
        self._codes.append(source)
        self.counts[source] += 1
        if self._spelling is not None:
            self._reported.append(token)

    def extend(self, source: int, tokens: Sequence[int]) -> None:
        self._codes += bytes((source,)) * len(tokens)
        self.counts[source] += len(tokens)
        if self._spelling is not None:
            self._reported += tokens

    def end(self, token: AnswerToken) -> None:
        """Report ``token``, which ends the answer but does not belong to it."""
        if self._spelling is not None:
            self._reported.append(token)

    def drop(self, count: int) -> int:
        """Remove the last ``count`` tokens; returns the source for tokens that replace them."""
        gone = self._codes[-count:]
        del self._codes[-count:]
        for each in range(4):
            self.counts[each] -= gone.count(each)
        if self._spelling is not None:
            del self._reported[-count:]
            self._changed = min(self._changed, len(self._reported))
        return min(gone)

    def confirm(self, index: int, source: int) -> None:
        """Set a more specific source for a token that was recorded as sampled."""
        if self._codes[index] == SAMPLED:
            self._codes[index] = source
            self.counts[SAMPLED] -= 1
            self.counts[source] += 1

    def take(self) -> Origins | None:
        """The changes since the last call; None if there are none, or origins are not reported."""
        first, size = self._changed, len(self._reported)
        if self._spelling is None or first == size == self._last_size:
            return None
        found = [self._token(index, self._spelling) for index in range(first, size)]
        self._changed = self._last_size = size
        return Origins(first, found)

    def _token(self, index: int, spelling: Sequence[bytes]) -> OriginToken:
        source = _NAMES[self._codes[index]] if index < len(self._codes) else "sampled"
        token = self._reported[index]
        if isinstance(token, int):
            return OriginToken(token, spelling[token], source, 0.0 if source == "leapt" else None)
        spelled = spelling[token.token_id]
        return OriginToken(token.token_id, spelled, source, token.logprob, token.top)
