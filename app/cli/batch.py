"""``leapjson batch``: answer every line of a file, once, through kills and refusals."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import secrets
import signal
import sys
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import astuple, dataclass, field
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from app.cli.batch_files import (
    Input,
    Journal,
    Kind,
    Line,
    Template,
    check_output,
    content_of,
    write_output,
)
from app.cli.batch_targets import Target, Unreachable, backoff, in_process, servers
from app.cli.specification import UnusableInput, read_bytes
from app.core.errors import LeapjsonError
from app.core.progress import Stage
from app.server.settings import Settings
from app.telemetry.logs import configure_logging
from app.terminal.screen import Screen, is_watched, open_screen

FAILED, STOPPED = 1, 130
"""Exit statuses: some lines have no valid answer; the run was stopped and can go on."""
_SYNC_SECONDS = 0.5
_SPOKEN_SECONDS = 10.0
"""Between two lines of progress where there is no terminal."""
_DRAWN_SECONDS = 0.25
_SCHEMAS = 64
"""Schemas of lines whose validators are kept."""


def run(options: argparse.Namespace) -> int:
    """The exit status. Raises ``UnusableInput``."""
    settings = _settings(options)
    screen = open_screen(sys.stderr)
    level = settings.log_level if "log_level" in vars(options) else "warning"
    configure_logging(screen.log, level=level, log_format="text", content=0)
    try:
        return asyncio.run(_run(options, settings, screen))
    except LeapjsonError as error:
        raise UnusableInput(str(error)) from None
    except KeyboardInterrupt:  # before the first line was asked
        print("leapjson: stopped before it asked anything", file=sys.stderr)
        return STOPPED


def _settings(options: argparse.Namespace) -> Settings:
    given = {key: value for key, value in vars(options).items() if key in Settings.model_fields}
    unused = [key for key in given if key not in ("model", "log_level")]
    if options.url and unused:
        flag = unused[0].replace("_", "-")
        raise UnusableInput(f"--{flag} is of the engine in this process; leave it or --url out")
    try:
        return Settings(**({} if options.url else given))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"])
        raise UnusableInput(f"{place}: {first['msg']}") from None


async def _run(options: argparse.Namespace, settings: Settings, screen: Screen) -> int:
    check_output(options.output)
    if options.overwrite and options.retry_failed:
        raise UnusableInput("--overwrite begins anew, so there is nothing for --retry-failed")
    schema = None if options.schema is None else _read_schema(options.schema)
    template = _template(options, schema)
    fields = dict(map(_field, options.set))
    if options.confidence:
        fields["confidence"] = True
    read = Input(options.input, template)
    told = [read.identity, template and astuple(template), fields]
    fingerprint = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]
    journal_name, errors = f"{options.output}.journal", f"{options.output}.errors.jsonl"
    _check_present(options, journal_name, errors)
    journal = Journal(journal_name, fingerprint, read.count, ask_failed_again=options.retry_failed)
    board = Board(journal, read.count)
    stopped = False
    try:
        if board.done < read.count:
            async with _target(options, settings, screen) as target:
                driver = Driver(target, journal, board, fields, schema, options.retries)
                stopped = await driver.drive(read, screen)
        if stopped:
            left = read.count - board.done
            print(
                f"Stopped; {board.done:,} of {read.count:,} lines are kept in {journal_name}. Run "
                f"the same command again for the other {left:,}.",
                file=sys.stderr,
            )
            return STOPPED
        await asyncio.to_thread(
            write_output,
            options.output,
            errors,
            journal,
            ordered=options.ordered,
            schema=schema,
            confidence=options.confidence,
        )
    finally:
        complete = not stopped and board.done == read.count and sys.exc_info()[0] is None
        journal.close(delete=complete and not journal.counts["error"])
    print(board.summary(options.output, errors), file=sys.stderr)
    return FAILED if journal.counts["error"] or journal.counts["invalid"] else 0


def _target(
    options: argparse.Namespace, settings: Settings, screen: Screen
) -> AbstractAsyncContextManager[Target]:
    if not options.url:
        return in_process(settings, screen, options.concurrency)
    key = options.api_key or os.environ.get("LEAPJSON_API_KEY") or os.environ.get("OPENAI_API_KEY")
    return servers(
        options.url,
        key,
        options.concurrency,
        options.patience,
        getattr(options, "model", None),
        settings.request_seconds,
    )


def _check_present(options: argparse.Namespace, journal: str, errors: str) -> None:
    """What an earlier run has left: gone on with, or refused, or deleted with ``--overwrite``."""
    if os.path.realpath(options.output) == os.path.realpath(options.input):
        raise UnusableInput(f"{options.output} is the input; name another output")
    if options.overwrite:
        for name in (journal, options.output, errors):
            with suppress(FileNotFoundError):
                os.unlink(name)
    elif os.path.exists(options.output) and not os.path.exists(journal):
        raise UnusableInput(f"{options.output} is there already; name another or add --overwrite")
    elif options.retry_failed and not os.path.exists(journal):
        raise UnusableInput(
            f"--retry-failed: there is no {journal}, which a run with errors leaves"
        )


def _template(options: argparse.Namespace, schema: Any) -> Template | None:
    """None: the input has OpenAI's lines."""
    if options.prompt is None:
        for name in ("schema", "column", "id_column"):
            if getattr(options, name) is not None:
                flag = name.replace("_", "-")
                raise UnusableInput(f"--{flag} is for rows of a table: add --prompt")
        return None
    asked = None
    if schema is not None:
        named = {"name": "answer", "schema": schema, "strict": True}
        asked = {"type": "json_schema", "json_schema": named}
    return Template(options.prompt, options.column, options.id_column, asked)


def _read_schema(name: str) -> Any:
    try:
        return json.loads(read_bytes(name))
    except (ValueError, RecursionError) as error:
        raise UnusableInput(f"{name}: not JSON: {error}") from None


def _field(given: str) -> tuple[str, Any]:
    name, equals, value = given.partition("=")
    if not name or not equals:
        raise UnusableInput(f"--set {given}: write it as field=value")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


@dataclass(slots=True)
class Board:
    """How far the run is."""

    journal: Journal
    count: int
    started: float = field(default_factory=time.monotonic)
    answered: int = 0
    """In this run."""
    tokens: int = 0
    leapt: int = 0
    retries: int = 0
    before: int = field(init=False)

    def __post_init__(self) -> None:
        self.before = self.done

    @property
    def done(self) -> int:
        return sum(self.journal.counts.values())

    def count_tokens(self, usage: Mapping[str, Any]) -> None:
        """OpenAI's usage of either API, or Anthropic's."""
        self.tokens += usage.get("completion_tokens") or usage.get("output_tokens") or 0
        details = usage.get("completion_tokens_details") or usage.get("output_tokens_details") or {}
        self.leapt += details.get("leapt_tokens") or 0

    def now(self) -> str:
        seconds = max(time.monotonic() - self.started, 1e-9)
        done = self.done - self.before
        rate = done / seconds
        left = f"{_clock((self.count - self.done) / rate)} left" if done else "starting"
        return ", ".join([f"{rate:.1f} lines/s", *self._shares(seconds), left])

    def _shares(self, seconds: float) -> list[str]:
        counts = self.journal.counts
        shares = [f"{self.tokens / seconds:,.0f} tokens/s"]
        if self.tokens:
            shares.append(f"{self.leapt / self.tokens:.0%} skipped")
        if counts["valid"] or counts["invalid"]:
            shares.append(f"{counts['valid']:,} valid")
        if counts["invalid"]:
            shares.append(f"{counts['invalid']:,} not valid")
        return [*shares, f"{counts['error']:,} failed"]

    def summary(self, output: str, errors: str) -> str:
        seconds = max(time.monotonic() - self.started, 1e-9)
        counts, done = self.journal.counts, self.done - self.before
        earlier = f" ({self.before:,} in earlier runs)" if self.before else ""
        rate = [f"{done / seconds:.1f} lines/s", f"{self.tokens:,} tokens", *self._shares(seconds)]
        lines = [
            f"{self.count:,} lines{earlier} in {_clock(seconds)}: {', '.join(rate)}.",
            f"Answers: {output}.",
        ]
        if counts["error"]:
            lines.append(f"Errors: {errors}. Add --retry-failed to ask those lines again.")
        return " ".join(lines)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@dataclass(slots=True)
class Driver:
    """Asks about every line that the journal has not, some at a time."""

    _target: Target
    _journal: Journal
    _board: Board
    _fields: Mapping[str, Any]
    """Set in every request."""
    _schema: Any
    """Of all rows of a table."""
    _retries: int
    _validators: OrderedDict[str, Any] = field(default_factory=OrderedDict)

    async def drive(self, read: Input, screen: Screen) -> bool:
        """Whether it was stopped by a signal. Raises ``UnusableInput``."""
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        self._board.started = time.monotonic()
        try:
            with screen.progress.stage("answering", read.count) as stage:
                helpers = [
                    asyncio.create_task(self._sync()),
                    asyncio.create_task(self._show(stage)),
                ]
                work = asyncio.create_task(self._work(read))
                stopped = asyncio.create_task(stop.wait())
                try:
                    await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
                    if work.done():
                        work.result()
                    return not work.done()
                finally:
                    for task in (work, stopped, *helpers):
                        task.cancel()
                    await asyncio.gather(work, stopped, *helpers, return_exceptions=True)
                    stage.reach(self._board.done, now=self._board.now())
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def _work(self, read: Input) -> None:
        places = asyncio.Semaphore(self._target.places)
        try:
            async with asyncio.TaskGroup() as tasks:
                for line in read.lines():
                    if self._journal.has(line.number):
                        continue
                    await places.acquire()
                    task = tasks.create_task(self._one(line))
                    task.add_done_callback(lambda _: places.release())
        except* UnusableInput as group:
            raise group.exceptions[0] from None

    async def _one(self, line: Line) -> None:
        if line.body is None:
            message = f"line {line.number + 1}: {line.problem}"
            error = {"code": "invalid_line", "message": message, "line": line.number + 1}
            self._keep(line, "error", None, error)
            return
        body = {"model": self._target.model, **line.body, **self._fields}
        tries = 0
        while True:
            try:
                reply = await self._target.ask(line.url, body)
            except Unreachable:  # the target gives up, not the line
                self._board.retries += 1
                await asyncio.sleep(backoff(min(tries, 4)))
                continue
            if not reply.is_retried or tries >= self._retries:
                break
            await asyncio.sleep(reply.wait(tries))
            tries += 1
            self._board.retries += 1
        try:
            answer = from_json(reply.body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            text = reply.body[:200].decode(errors="replace")
            error = {"code": "not_json", "message": f"status {reply.status}, not JSON: {text}"}
            self._keep(line, "error", None, error)
            return
        response = {
            "status_code": reply.status,
            "request_id": reply.headers.get("x-request-id"),
            "body": answer,
        }
        kind: Kind = "error" if reply.status != 200 else self._judge(body, answer)
        self._board.count_tokens(answer.get("usage") or {})
        self._keep(line, kind, response, None)

    def _keep(
        self,
        line: Line,
        kind: Kind,
        response: Mapping[str, Any] | None,
        error: Mapping[str, Any] | None,
    ) -> None:
        record = {
            "id": f"batch_req_{secrets.token_hex(12)}",
            "custom_id": line.custom_id,
            "response": response,
            "error": error,
        }
        self._journal.add(line.number, kind, record)

    def _judge(self, body: Mapping[str, Any], answer: Mapping[str, Any]) -> Kind:
        """Whether an answer has the schema that was asked for, by a library of its own."""
        schema = _schema_of(body)
        if schema is None:
            return "answer"
        try:
            value = from_json(content_of(answer) or "")
            return "valid" if self._validator(schema).is_valid(value) else "invalid"
        except Exception:  # no JSON, or a schema that the library cannot follow
            return "invalid"

    def _validator(self, schema: Any) -> Any:
        from jsonschema import Draft202012Validator
        from jsonschema.validators import validator_for

        key = "" if schema is self._schema else json.dumps(schema)
        found = self._validators.get(key)
        if found is None:
            found = validator_for(schema, default=Draft202012Validator)(schema)
            self._validators[key] = found
            if len(self._validators) > _SCHEMAS:
                self._validators.popitem(last=False)
        return found

    async def _sync(self) -> None:
        while True:
            await asyncio.sleep(_SYNC_SECONDS)
            await asyncio.to_thread(self._journal.sync)

    async def _show(self, stage: Stage) -> None:
        """In a terminal a bar, else a line every few seconds."""
        watched = is_watched(sys.stderr)
        while True:
            await asyncio.sleep(_DRAWN_SECONDS if watched else _SPOKEN_SECONDS)
            stage.reach(self._board.done, now=self._board.now())
            if not watched:
                done = f"{self._board.done:,} of {self._board.count:,} lines"
                print(f"{done}: {self._board.now()}", file=sys.stderr, flush=True)


def _schema_of(body: Mapping[str, Any]) -> Any:
    """The JSON Schema that a request asks its answer to have, or None."""
    for place in (
        ("response_format", "json_schema", "schema"),
        ("text", "format", "schema"),
        ("output_config", "format", "schema"),
    ):
        found: Any = body
        for name in place:
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, dict):
            return found
    return None
