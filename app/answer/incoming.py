"""Text that comes in chunks of any size, read from its beginning."""

from __future__ import annotations


def begun_at_end(text: str, mark: str) -> int:
    """How many characters at the end of ``text``, which lacks ``mark``, may begin it."""
    lengths = range(min(len(mark) - 1, len(text)), 0, -1)
    return next((n for n in lengths if text.endswith(mark[:n])), 0)


class Incoming:
    """What has come and was not taken."""

    def __init__(self, position: int) -> None:
        self.text = ""
        self.position = position
        """Where the text begins in the answer."""

    def push(self, text: str) -> None:
        self.text += text

    def take(self, count: int) -> tuple[str, int]:
        """The first characters, and where they begin in the answer."""
        taken, start = self.text[:count], self.position
        self.text = self.text[count:]
        self.position += count
        return taken, start

    def take_all(self) -> tuple[str, int]:
        return self.take(len(self.text))

    def put_back(self, text: str) -> None:
        """``text``, which was taken last, is to be read by somebody else."""
        self.text = text + self.text
        self.position -= len(text)

    def begins(self, mark: str) -> bool | None:
        """Whether the text begins with ``mark``; None while that may still come."""
        if self.text.startswith(mark):
            return True
        return None if mark.startswith(self.text) else False

    def before(self, mark: str) -> tuple[int, bool]:
        """How many characters are before ``mark``, and whether it is there.

        Where it is not, those that may become it do not count.
        """
        at = self.text.find(mark)
        if at >= 0:
            return at, True
        return len(self.text) - begun_at_end(self.text, mark), False
