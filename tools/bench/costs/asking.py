"""Time to first token of a real server, with one client that sends one request at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from loadtest.answers import read_answer
from loadtest.connection import Connection
from loadtest.requests import Request
from loadtest.targets import served_model

TIMEOUT = 120.0
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


class RefusedError(Exception):
    """The server refused a request; the message is its reason."""


@dataclass(frozen=True, slots=True)
class Client:
    url: str
    model: str

    @classmethod
    def of(cls, url: str) -> Client:
        with httpx.Client(base_url=url, timeout=60) as client:
            return cls(url, served_model(client))

    def first_tokens(self, path: str, requests: Sequence[Mapping[str, Any]]) -> list[float]:
        """Seconds until the first text of each answer. Raises RefusedError, RuntimeError."""
        return asyncio.run(self._first_tokens(path, requests))

    async def _first_tokens(self, path: str, requests: Sequence[Mapping[str, Any]]) -> list[float]:
        bodies = [
            json.dumps({"model": self.model, "stream": True, **fields}).encode()
            for fields in requests
        ]
        connection = Connection(self.url)
        try:
            return [await _first_token(connection, path, body) for body in bodies]
        finally:
            connection.close()


async def _first_token(connection: Connection, path: str, body: bytes) -> float:
    exchange = await connection.post(path, body, TIMEOUT)
    answer = read_answer(Request("", (), None, 0), exchange.sent, exchange)
    if answer.outcome == "refused":
        raise RefusedError(answer.detail)
    if answer.first is None:
        raise RuntimeError(f"an answer without text: {answer}")
    return answer.first
