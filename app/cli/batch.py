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
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import astuple, dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any

from pydantic_core import from_json

from app.cli.batch_files import (
    Input,
    Journal,
    Kind,
    Line,
    Template,
    check_output,
    content_of,
    parsed_object,
    write_output,
)
from app.cli.batch_targets import Target, in_process, servers
from app.cli.specification import UnusableInput, read_json
from app.core.errors import LeapjsonError
from app.core.progress import Stage
from app.http.edge import InsideAnswer
from app.server.settings import Settings
from app.telemetry.logs import configure_logging
from app.terminal.screen import Screen, is_watched, open_screen

FAILED, STOPPED = 1, 130
"""Exit statuses: some lines have no valid answer; the run was stopped and can go on."""
_LOGGED_SECONDS = 10.0
"""Interval between lines of progress without a terminal."""
_DRAWN_SECONDS = 0.25
_SCHEMAS = 64
"""Number of schemas whose validators are cached."""


def run(options: argparse.Namespace) -> int:
    """The exit status. Raises ``UnusableInput``."""
    given = {key: value for key, value in vars(options).items() if key in Settings.model_fields}
    unused = [key for key in given if key not in ("model", "log_level")]
    if options.url and unused:
        flag = unused[0].replace("_", "-")
        raise UnusableInput(f"--{flag} is for the engine in this process; leave it or --url out")
    try:
        settings = Settings.read(**({} if options.url else given))
        screen = open_screen(sys.stderr)
        level = settings.log_level if "log_level" in vars(options) else "warning"
        configure_logging(screen.log, level=level, log_format="text", content=0)
        return asyncio.run(_run(options, settings, screen))
    except LeapjsonError as error:
        raise UnusableInput(str(error)) from None
    except KeyboardInterrupt:  # while no line is asked: before the first or after the last one
        print("leapjson: stopped; run the same command again to continue", file=sys.stderr)
        return STOPPED


async def _run(options: argparse.Namespace, settings: Settings, screen: Screen) -> int:
    output = options.output
    journal_name, errors = f"{output}.journal", f"{output}.errors.jsonl"
    is_written = check_output(output, journal_name)
    template = _template(options)
    fields = dict(map(_field, options.set))
    if options.confidence:
        fields["confidence"] = True
    read = Input(options.input, template)
    model = getattr(options, "model", None) if options.url else settings.model
    asked = [read.digest, template and astuple(template), fields, model]
    fingerprint = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]
    journal = Journal(journal_name, fingerprint)
    complete = False
    try:
        if is_written and journal.done == read.count:
            journal.forget_errors()
        batch = Run(journal, read, fields, before=journal.done)
        if journal.done < read.count:
            if options.url:
                key = os.environ.get("LEAPJSON_API_KEY") or os.environ.get("OPENAI_API_KEY")
                opened: AbstractAsyncContextManager[Target] = servers(
                    options.url, key, options.concurrency, model, settings.request_seconds
                )
            else:
                opened = in_process(settings, screen, options.concurrency)
            async with opened as target:
                if await batch.drive(target, screen):
                    print(
                        f"Stopped: {journal.done:,} of {read.count:,} lines are saved in "
                        f"{journal_name}. Run the same command again for the other "
                        f"{read.count - journal.done:,}.",
                        file=sys.stderr,
                    )
                    return STOPPED
        await asyncio.to_thread(
            write_output,
            output,
            errors,
            journal,
            ordered=options.ordered,
            schema=template and template.schema,
            confidence=options.confidence,
        )
        complete = not journal.counts["error"]
    finally:
        journal.close(delete=complete)
    print(f"{batch.summary()} Answers: {output}.", file=sys.stderr)
    if journal.counts["error"]:
        print(f"Errors: {errors}. Run the same command to retry those lines.", file=sys.stderr)
    return FAILED if journal.counts["error"] or journal.counts["invalid"] else 0


def _template(options: argparse.Namespace) -> Template | None:
    """The template; None: the input is an OpenAI batch file."""
    if options.prompt is None:
        for name in ("schema", "column"):
            if getattr(options, name) is not None:
                raise UnusableInput(f"--{name} is for rows of a table: add --prompt")
        return None
    schema = None if options.schema is None else read_json(options.schema)
    return Template(options.prompt, options.column, schema)


def _field(given: str) -> tuple[str, Any]:
    name, equals, value = given.partition("=")
    if not name or not equals:
        raise UnusableInput(f"--set {given}: write it as field=value")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


@dataclass(slots=True)
class Run:
    """Sends every line that is not in the journal, several at a time, and counts."""

    journal: Journal
    input: Input
    fields: Mapping[str, Any]
    """Fields that are set in every request."""
    before: int
    """Lines finished in earlier runs."""
    started: float = field(default_factory=time.monotonic)
    tokens: int = 0
    """Tokens of the answers of this run; ``leapt`` counts those in leaps."""
    leapt: int = 0

    def count_tokens(self, usage: Any) -> None:
        """Add the ``usage`` of an answer in OpenAI's or Anthropic's form."""
        self.tokens += _number(usage, "completion_tokens") or _number(usage, "output_tokens")
        for name in ("completion_tokens_details", "output_tokens_details"):
            details = usage.get(name) if isinstance(usage, dict) else None
            self.leapt += _number(details, "leapt_tokens")

    def _figures(self, seconds: float) -> str:
        counts, done = self.journal.counts, self.journal.done - self.before
        shares = [f"{done / seconds:.1f} lines/s", f"{self.tokens / seconds:,.0f} tokens/s"]
        if self.tokens:
            shares.append(f"{self.leapt / self.tokens:.0%} of them leapt")
        if counts["valid"] or counts["invalid"]:
            shares.append(f"{counts['valid']:,} valid")
        if counts["invalid"]:
            shares.append(f"{counts['invalid']:,} not valid")
        return ", ".join([*shares, f"{counts['error']:,} failed"])

    def now(self) -> str:
        seconds = max(time.monotonic() - self.started, 1e-9)
        done = self.journal.done
        if done == self.before:
            return "starting"
        left = seconds / (done - self.before) * (self.input.count - done)
        return f"{self._figures(seconds)}, {_clock(left)} left"

    def summary(self) -> str:
        seconds = max(time.monotonic() - self.started, 1e-9)
        earlier = f" ({self.before:,} in earlier runs)" if self.before else ""
        return (
            f"{self.input.count:,} lines{earlier} in {_clock(seconds)}, {self.tokens:,} tokens: "
            f"{self._figures(seconds)}."
        )

    async def drive(self, target: Target, screen: Screen) -> bool:
        """Run; returns whether a signal stopped it. Raises ``UnusableInput``."""
        loop, signals = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)
        self.started = time.monotonic()
        with screen.progress.stage("answering", self.input.count) as stage:
            work = asyncio.create_task(self._work(target))
            shown = asyncio.create_task(self._show(stage))
            for number in signals:
                loop.add_signal_handler(number, work.cancel)
            try:
                await work
            except asyncio.CancelledError:
                return True
            finally:
                for number in signals:
                    loop.remove_signal_handler(number)
                shown.cancel()
                stage.reach(self.journal.done, now=self.now())
        return False

    async def _work(self, target: Target) -> None:
        places = asyncio.Semaphore(target.places)
        try:
            async with asyncio.TaskGroup() as tasks:
                for line in self.input.lines():
                    if not self.journal.has(line.number):
                        await places.acquire()
                        task = tasks.create_task(self._one(target, line))
                        task.add_done_callback(lambda _: places.release())
        except* UnusableInput as group:
            raise group.exceptions[0] from None

    async def _one(self, target: Target, line: Line) -> None:
        number, response, error = line.number + 1, None, None
        kind: Kind = "error"
        if line.body is None:
            message = f"line {number}: {line.problem}"
            error = {"code": "invalid_line", "message": message, "line": number}
        else:
            body = {"model": target.model, **line.body, **self.fields}
            try:
                kind, response = self._judged(body, await target.ask(line.url, body))
            except ConnectionError as lost:
                error = {"code": "connection_lost", "message": str(lost)}
            except ValueError as wrong:
                error = {"code": "not_json", "message": str(wrong)}
        custom_id, answer_id = line.custom_id, f"batch_req_{secrets.token_hex(12)}"
        record = {"id": answer_id, "custom_id": custom_id, "response": response, "error": error}
        self.journal.add(line.number, kind, record)

    def _judged(self, body: Mapping[str, Any], reply: InsideAnswer) -> tuple[Kind, dict[str, Any]]:
        """Kind and record of an answer. Raises ``ValueError`` if it is not a JSON object."""
        answer = parsed_object(reply.body)
        if answer is None:
            text = reply.body[:200].decode(errors="replace")
            raise ValueError(f"status {reply.status}, not a JSON object: {text}")
        self.count_tokens(answer.get("usage"))
        return "error" if reply.status != 200 else _judge(body, answer), {
            "status_code": reply.status,
            "request_id": reply.headers.get("x-request-id"),
            "body": answer,
        }

    async def _show(self, stage: Stage) -> None:
        """Show progress: a bar in a terminal, else a line every few seconds."""
        watched = is_watched(sys.stderr)
        while True:
            await asyncio.sleep(_DRAWN_SECONDS if watched else _LOGGED_SECONDS)
            stage.reach(self.journal.done, now=self.now())
            if not watched:
                done = f"{self.journal.done:,} of {self.input.count:,} lines"
                print(f"{done}: {self.now()}", file=sys.stderr, flush=True)


def _number(fields: Any, name: str) -> int:
    """A field that a server of another kind may lack, or fill with anything."""
    value = fields.get(name) if isinstance(fields, dict) else None
    return value if isinstance(value, int) else 0


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _judge(body: Mapping[str, Any], answer: Mapping[str, Any]) -> Kind:
    """Whether an answer satisfies the schema in its request, checked with ``jsonschema``."""
    for place in (
        ("response_format", "json_schema", "schema"),
        ("text", "format", "schema"),
        ("output_config", "format", "schema"),
    ):
        schema: Any = body
        for name in place:
            schema = schema.get(name) if isinstance(schema, dict) else None
        if isinstance(schema, dict):
            break
    else:
        return "answer"
    try:
        value = from_json(content_of(answer))
        return "valid" if _validator(json.dumps(schema)).is_valid(value) else "invalid"
    except Exception:  # no JSON, or a schema that the library cannot follow
        return "invalid"


@lru_cache(_SCHEMAS)
def _validator(schema: str) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    parsed = json.loads(schema)
    kind = validator_for(parsed, default=Draft202012Validator)
    # Formats are asserted, as by the server; otherwise a "oneOf" of formats rejects all texts.
    return kind(parsed, format_checker=kind.FORMAT_CHECKER)
