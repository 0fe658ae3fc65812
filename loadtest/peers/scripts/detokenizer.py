"""Tokens to text, piece by piece."""

from collections.abc import Callable, Sequence


class Detokenizer:
    """Holds back bytes that are not yet a whole character. Cost grows with the answer's length."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._tokens: list[int] = []
        self._said = 0

    def push(self, tokens: Sequence[int], last: bool = False) -> str:
        self._tokens += tokens
        text = self._decode(self._tokens)
        if text.endswith("�") and not last:
            return ""
        new, self._said = text[self._said :], len(text)
        return new
