"""Generated requests as bytes, malformed at every level from the connection to a field's value.

A case is determined by its number, so that a finding can be reproduced.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from loadtest.faults.client import CHAT, MODEL

BODIES: dict[str, dict[str, Any]] = {
    CHAT: {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Hello!"}],
        "temperature": 0.5,
        "n": 1,
        "stop": ["x"],
        "seed": 1,
        "logprobs": True,
        "top_logprobs": 2,
        "stream": False,
        "stream_options": None,
        "tools": [
            {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        ],
        "tool_choice": "auto",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"a": {}}}},
        },
        "logit_bias": {"5": 1},
    },
    "/v1/completions": {"model": MODEL, "prompt": ["Ada", "Eve"], "echo": True, "logprobs": 1},
    "/v1/responses": {"model": MODEL, "input": "Hello!", "text": {"format": {"type": "text"}}},
    "/v1/schemas": {"schema": {"type": "array", "items": {"enum": [1, "a"]}, "maxItems": 3}},
    "/tokenize": {"model": MODEL, "prompt": "Ada"},
    "/detokenize": {"model": MODEL, "tokens": [65, 66]},
}
VALUES: Sequence[Any] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 1e308, -0.0, 0.5, "", "x", "\x00",
    "💥" * 50, "a" * 5000, [], [[]], {}, {"": None}, {"type": "json_object"}, [None] * 300,
    {"type": "regex", "regex": "(a*)*b"}, {"type": "json_schema"}, {"$ref": "#"}, "auto", [1, "a"],
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """The bytes to send, in pieces with a pause between them."""

    kind: str
    pieces: Sequence[bytes]
    complete: bool = True
    """Whether the server must answer; the client of an incomplete request disconnects soon."""


def case(number: int) -> Case:
    """The ``number``-th case; kinds alternate."""
    rng = random.Random(number)
    kind, make = KINDS[number % len(KINDS)]
    made = make(rng)
    return Case(kind, made.pieces, made.complete) if isinstance(made, Case) else Case(kind, [made])


def whole(rng: random.Random, content: bytes | None = None, *lines: bytes) -> bytes:
    """A valid request, except for the given body and header lines."""
    path = rng.choice(list(BODIES))
    content = json.dumps(BODIES[path]).encode() if content is None else content
    return head(path, *lines, b"content-length: %d" % len(content)) + content


def head(path: str, *lines: bytes) -> bytes:
    start = b"POST %s HTTP/1.1" % path.encode()
    return b"\r\n".join([start, b"host: 127.0.0.1", b"connection: close", *lines, b"", b""])


def _some(rng: random.Random, count: int) -> bytes:
    return rng.randbytes(rng.randrange(1, count))


def field_values(rng: random.Random) -> bytes:
    """A request whose body has some values replaced or removed."""
    path = rng.choice(list(BODIES))
    body = json.loads(json.dumps(BODIES[path]))
    for _ in range(rng.randrange(1, 4)):
        _replace(rng, body)
    content = json.dumps(body).encode()
    return head(path, b"content-length: %d" % len(content)) + content


def _replace(rng: random.Random, container: Any) -> None:
    keys = list(container) if isinstance(container, dict) else list(range(len(container)))
    if not keys:
        return
    key = rng.choice(keys)
    if isinstance(container[key], dict | list) and container[key] and rng.random() < 0.6:
        _replace(rng, container[key])
    elif isinstance(container, dict) and rng.random() < 0.2:
        del container[key]
    else:
        container[key] = copy.deepcopy(rng.choice(VALUES))


def flipped_body(rng: random.Random) -> bytes:
    content = bytearray(json.dumps(rng.choice(list(BODIES.values()))).encode())
    for _ in range(rng.randrange(1, 6)):
        content[rng.randrange(len(content))] = rng.randrange(256)
    return whole(rng, bytes(content))


def cut_body(rng: random.Random) -> bytes:
    content = json.dumps(rng.choice(list(BODIES.values()))).encode()
    return whole(rng, content[: rng.randrange(len(content))])


def odd_body(rng: random.Random) -> bytes:
    text = json.dumps(BODIES[CHAT])
    depth = rng.choice([10, 100, 200, 5000, 100_000])
    return whole(
        rng,
        rng.choice(
            [
                b"",
                b"null",
                b"[]",
                b'"text"',
                b"\xef\xbb\xbf" + text.encode(),
                text.encode("utf-16"),
                text.replace("Hello", "\udcff").encode("utf-8", "surrogateescape"),
                text.replace("Hello", "\\ud800").encode(),
                b"[" * depth,
                b'{"a":' * depth + b"1" + b"}" * depth,
                b'{"messages":' + b"[" * depth + b"]" * depth + b"}",
                b'{"seed": 1' + b"0" * 5000 + b"}",
                b'{"seed": 1e999999}',
                b'{"model": 1, "model": 2}',
                _some(rng, 3000),
                text.encode() + b" " * 100_000,
                text.encode() + text.encode(),
            ]
        ),
    )


def coded_body(rng: random.Random) -> bytes:
    content = gzip.compress(json.dumps(BODIES[CHAT]).encode())
    coding = rng.choice([b"gzip", b"br", b"identity", b"deflate, gzip", b"x" * 100])
    return whole(rng, content, b"content-encoding: " + coding)


def flipped_head(rng: random.Random) -> Case:
    data = bytearray(whole(rng))
    end = data.index(b"\r\n\r\n") + 4
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(end)] = rng.randrange(256)
    return Case("", [bytes(data)], complete=False)


def lying_length(rng: random.Random) -> Case:
    content = json.dumps(BODIES[CHAT]).encode()
    length = rng.choice(
        [b"-1", b"+5", b"0x10", b"1e3", b"", b"5, 5", b"9" * 40, b"99999999", b"0", b"7", b"\xb2"]
    )
    lines = [b"content-length: " + length]
    if rng.random() < 0.3:
        lines.append(b"content-length: %d" % len(content))
    return Case("", [head(CHAT, *lines) + content], complete=False)


def chunks(rng: random.Random) -> Case:
    content = json.dumps(BODIES[CHAT]).encode()
    parts = []
    while content:
        size = rng.randrange(1, 200)
        part, content = content[:size], content[size:]
        parts.append(b"%x%b\r\n%b\r\n" % (len(part), rng.choice([b"", b";x=y"]), part))
    end = rng.choice([b"0\r\n\r\n", b"0\r\nx: y\r\n\r\n"])
    data = head(CHAT, b"transfer-encoding: chunked") + b"".join(parts) + end
    return Case("", _split(rng, data))


def odd_chunks(rng: random.Random) -> Case:
    coding = rng.choice(
        [b"chunked", b"chunked, gzip", b"gzip, chunked", b"xchunked", b"chunked, chunked"]
    )
    lines = [b"transfer-encoding: " + coding]
    if rng.random() < 0.3:
        lines.append(b"content-length: 5")
    tail = rng.choice(
        [
            b"ffffffffffffffff\r\nab",
            b"-5\r\nabcde\r\n0\r\n\r\n",
            b"5\nabcde\n0\n\n",
            b"5\r\nabcdefgh\r\n0\r\n\r\n",
            b"g\r\n",
            b"5;" + b"e" * 70_000 + b"\r\nabcde\r\n",
            b"0\r\n" + b"x: y\r\n" * 20_000 + b"\r\n",
            b"\r\n",
            b"2\r\n{}\r\n0\r\n\r\n",
        ]
    )
    return Case("", [head(CHAT, *lines) + tail], complete=False)


def headers(rng: random.Random) -> Case:
    lines = rng.choice(
        [
            [b"x: " + b"a" * rng.choice([8_000, 60_000, 400_000])],
            [b"x%d: y" % number for number in range(rng.choice([100, 5_000, 60_000]))],
            [b"no colon"],
            [b": empty name"],
            [b"a b: c"],
            [b"x: \x00"],
            [b"x: \xff\xfe"],
            [b"x: a", b" folded"],
            [b"host: second"],
            [b"authorization: Bearer " + _some(rng, 200).replace(b"\r", b"").replace(b"\n", b"")],
            [b"content-type: " + rng.choice([b"text/plain", b"application/xml", b"\xff", b";;;"])],
            [b"origin: http://evil.example", b"content-type: text/plain"],
            [b"expect: 100-continue"],
            [b"expect: something"],
            [b"upgrade: h2c", b"connection: upgrade, http2-settings", b"http2-settings: AAMAAABk"],
            [b"upgrade: websocket", b"connection: upgrade"],
            [b"accept: " + b"*/*," * 500],
        ]
    )
    return Case("", [whole(rng, None, *lines)], complete=False)


def request_line(rng: random.Random) -> Case:
    target = rng.choice(
        [
            b"/", b"*", b"", b"//", b"/%00", b"/%ff%fe", b"/%", b"/../../etc/passwd", b"/ /",
            b"http://other.example/v1/models", b"\xc3\xa9", b"/?" + b"a=b&" * 5_000,
            b"/" + b"a" * 70_000, b"/v1/models/" + b"%20" * 1_000, b"/v1/schemas/nothing",
            b"other.example:443", b"/v1/models/x",
        ]
    )  # fmt: skip
    method = rng.choice(
        [b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT", b"get", b"", b"PRI",
         b"A" * 1_000, b"M-SEARCH", b"\x16\x03\x01\x02\x00\x01"]
    )  # fmt: skip
    version = rng.choice(
        [b"HTTP/1.1"] * 4 + [b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/9", b""]
    )
    start = b" ".join([method, target, version])
    lines = [b"host: 127.0.0.1", b"connection: close"][rng.randrange(3) :]
    return Case("", [b"\r\n".join([start, *lines, b"", b""])], complete=False)


def pipelined(rng: random.Random) -> Case:
    kept = [
        whole(rng).replace(b"connection: close", b"connection: keep-alive")
        for _ in range(rng.randrange(1, 12))
    ]
    if rng.random() < 0.3:
        kept.insert(rng.randrange(len(kept)), _some(rng, 50))
        return Case("", _split(rng, b"".join(kept)), complete=False)
    return Case("", _split(rng, b"".join([*kept, whole(rng)])))


def noise(rng: random.Random) -> Case:
    return Case("", _split(rng, _some(rng, 5000)), complete=False)


def cut_anywhere(rng: random.Random) -> Case:
    data = whole(rng)
    return Case("", [data[: rng.randrange(len(data))]], complete=False)


def in_pieces(rng: random.Random) -> Case:
    return Case("", _split(rng, whole(rng)))


def _split(rng: random.Random, data: bytes) -> list[bytes]:
    cuts = sorted(rng.randrange(len(data)) for _ in range(rng.randrange(6)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]


KINDS: Sequence[tuple[str, Callable[[random.Random], bytes | Case]]] = [
    ("values of fields", field_values),
    ("flipped bytes in the body", flipped_body),
    ("truncated body", cut_body),
    ("unusual body", odd_body),
    ("encoded body", coded_body),
    ("values of fields", field_values),
    ("flipped bytes in the head", flipped_head),
    ("wrong content-length", lying_length),
    ("chunks", chunks),
    ("odd chunks", odd_chunks),
    ("odd headers", headers),
    ("odd request lines", request_line),
    ("pipelined requests", pipelined),
    ("noise", noise),
    ("truncated anywhere", cut_anywhere),
    ("sent in pieces", in_pieces),
]
