"""OpenAI's chat endpoint, as small as can be, around an engine that has no server of its own.

An engine's thread calls ``emit`` with the pieces of each answer. Streams and whole answers,
``response_format`` of type ``json_schema``, ``regex``, ``max_tokens``, ``temperature``, ``top_p``,
``seed``, ``ignore_eos``; anything that would change the answer and is not among these is refused.
"""

import argparse
import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, StreamingResponse

HARMLESS = {"model", "messages", "stream", "stream_options", "response_format", "user", "n"}
READ = {
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "seed",
    "ignore_eos",
    "regex",
}


@dataclass
class Piece:
    """More of an answer; the last one has a finish reason, or an error instead."""

    text: str = ""
    tokens: int = 0
    finish_reason: str | None = None
    error: str | None = None


@dataclass
class Job:
    """One request. ``emit`` may be called from any thread."""

    messages: list[dict[str, Any]]
    schema: str | None
    """As JSON; None for any text."""
    pattern: str | None
    """A regular expression for the whole answer."""
    max_tokens: int
    temperature: float
    top_p: float
    seed: int | None
    ignore_eos: bool
    emit: Callable[[Piece], None] = field(default=lambda piece: None)
    prompt: str = ""
    prompt_tokens: int = 0
    constraint: Any = None
    """The engine's own, from ``prepare``."""
    cancelled: bool = False


class Engine(Protocol):
    def prepare(self, job: Job) -> None:
        """Compile the constraint, count the prompt; on a thread of its own. ValueError is a 400."""

    def submit(self, job: Job) -> None:
        """Hand the job to the engine's thread."""


def parser() -> argparse.ArgumentParser:
    """The options of every such server."""
    options = argparse.ArgumentParser()
    options.add_argument("--model", required=True)
    for name in ("--port", "--threads", "--together"):
        options.add_argument(name, type=int, required=True)
    return options


def serve(engine: Engine, port: int) -> None:
    uvicorn.run(application(engine), host="127.0.0.1", port=port, access_log=False)


def application(engine: Engine) -> FastAPI:
    app = FastAPI()

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": "peer", "object": "model", "owned_by": "peer"}]}

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Any:
        body = await request.json()
        job = read(body)
        pieces = _pieces_of(job)
        try:
            await asyncio.to_thread(engine.prepare, job)
        except ValueError as error:
            raise HTTPException(400, str(error)) from error
        engine.submit(job)
        if body.get("stream"):
            with_usage = (body.get("stream_options") or {}).get("include_usage", False)
            events = _events(job, pieces, with_usage)
            return StreamingResponse(events, media_type="text/event-stream")
        return await _whole(job, pieces)

    return app


def read(body: dict[str, Any]) -> Job:
    unknown = set(body) - HARMLESS - READ
    if unknown:
        raise HTTPException(400, f"not known here: {', '.join(sorted(unknown))}")
    if body.get("n", 1) != 1:
        raise HTTPException(400, "n must be 1")
    kind = body.get("response_format") or {"type": "text"}
    if kind["type"] not in ("text", "json_schema"):
        raise HTTPException(400, f"response_format of type {kind['type']} is not known here")
    schema = json.dumps(kind["json_schema"]["schema"]) if kind["type"] == "json_schema" else None
    return Job(
        messages=body["messages"],
        schema=schema,
        pattern=body.get("regex"),
        max_tokens=body.get("max_completion_tokens") or body.get("max_tokens") or 256,
        temperature=float(body.get("temperature", 1.0)),
        top_p=float(body.get("top_p", 1.0)),
        seed=body.get("seed"),
        ignore_eos=bool(body.get("ignore_eos", False)),
    )


def _pieces_of(job: Job) -> "asyncio.Queue[Piece]":
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[Piece] = asyncio.Queue()

    def emit(piece: Piece) -> None:
        loop.call_soon_threadsafe(pieces.put_nowait, piece)

    job.emit = emit
    return pieces


async def _answer(job: Job, pieces: "asyncio.Queue[Piece]") -> AsyncIterator[Piece]:
    try:
        while True:
            piece = await pieces.get()
            yield piece
            if piece.finish_reason or piece.error:
                return
    finally:
        job.cancelled = True


async def _whole(job: Job, pieces: "asyncio.Queue[Piece]") -> Any:
    text, tokens, reason = "", 0, None
    async for piece in _answer(job, pieces):
        if piece.error:
            return JSONResponse({"error": {"message": piece.error}}, 500)
        text, tokens, reason = text + piece.text, tokens + piece.tokens, piece.finish_reason
    message = {"role": "assistant", "content": text}
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": "peer",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": _usage(job, tokens),
    }


async def _events(job: Job, pieces: "asyncio.Queue[Piece]", with_usage: bool) -> AsyncIterator[str]:
    head = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": "peer",
    }
    tokens, delta = 0, {"role": "assistant"}
    async for piece in _answer(job, pieces):
        if piece.error:
            yield f"data: {json.dumps({'error': {'message': piece.error}})}\n\n"
            return
        tokens += piece.tokens
        delta = {**delta, "content": piece.text}
        choice = {"index": 0, "delta": delta, "finish_reason": piece.finish_reason}
        yield f"data: {json.dumps({**head, 'choices': [choice]})}\n\n"
        delta = {}
    if with_usage:
        yield f"data: {json.dumps({**head, 'choices': [], 'usage': _usage(job, tokens)})}\n\n"
    yield "data: [DONE]\n\n"


def _usage(job: Job, tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": job.prompt_tokens,
        "completion_tokens": tokens,
        "total_tokens": job.prompt_tokens + tokens,
    }
