"""The command line: ``leapjson serve``, ``batch``, ``check`` and ``explain``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from app.core.version import version_of

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from app.server.settings import Settings


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    # Read by OpenMP when torch loads it. Its threads otherwise spin between steps, and take the
    # cores from the event loop and from whoever shares the machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from app.core.errors import LeapjsonError
    from app.server.interpreter import importing

    with importing():
        parser = build_parser()
    options = parser.parse_args(arguments)
    if options.command != "serve":
        from app.cli.specification import reporting_errors

        # Import only this command: it need not wait for the imports of the others.
        return reporting_errors(import_module(f"app.cli.{options.command}").run, options)
    if options.help_markdown:
        print(settings_page())
        return 0
    settings = _settings(parser, options)
    with importing():
        from app.server.serve import serve

    try:
        return serve(settings)
    except LeapjsonError as error:
        print(f"leapjson: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before it serves; from then on signals are the server's
        print("leapjson: stopped before it was ready", file=sys.stderr)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
        raise


def build_parser() -> argparse.ArgumentParser:
    """Every setting is a flag of ``serve``; a flag goes before its environment variable."""
    parser = argparse.ArgumentParser(
        prog="leapjson",
        description="An LLM server with OpenAI's API whose JSON always fits the schema.",
    )
    parser.add_argument("--version", action="version", version=f"leapjson {version_of()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser(
        "serve", help="serve a model over HTTP", argument_default=argparse.SUPPRESS
    )
    _add_settings(serve)
    serve.add_argument(
        "--help-markdown", action="store_true", default=False, help="print docs/settings.md"
    )
    _add_settings(_add_batch(commands), without=_OF_SERVERS)
    _add_check(commands)
    _add_explain(commands)
    return parser


_CHECK = """Check texts against a constraint, in the exact form of answers: keys in the schema's
order, one kind of white space. A newline at the end of a text is ignored. Exit status: 0 if all are
valid, 1 if some are not, 2 if the constraint cannot be used or a file cannot be read. Limits on
numbers are those of the server's settings (LEAPJSON_MAX_INTEGER_DIGITS, ..._FRACTION_DIGITS)."""

_EXPLAIN = """Show the automaton of a constraint: branch points, the choices at each, and the leaps
(forced bytes) after each choice. The inside of a string, a number or a rule is shown as one
choice. Exit status: 0, or 2 if the constraint cannot be used."""


_BATCH = """Answer every line of a file exactly once: OpenAI batch requests (JSONL), or with
--prompt the rows of a table (CSV, Parquet, JSONL). The engine runs in this process, with the
options of leapjson serve, or servers answer (--url, with the API key in LEAPJSON_API_KEY). Answers
are saved in OUTPUT.journal until the end: after a kill, the same command continues. Lines without
an answer are in OUTPUT.errors.jsonl; the same command retries them. Exit status: 0 if every line
has a valid answer, 1 if some have not, 2 if the run cannot go on, 130 if it was stopped."""


def _add_batch(commands: Any) -> argparse.ArgumentParser:
    """Add ``batch``, without the settings of ``serve``, which the caller adds."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "batch",
        help="answer every line of a file",
        description=_BATCH,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("input", metavar="INPUT", help="a file of requests, or a table")
    parser.add_argument("output", metavar="OUTPUT", help="a .jsonl, .csv or .parquet file")
    add = parser.add_argument_group("batch").add_argument
    text: dict[str, Any] = {"default": None, "metavar": "TEXT"}
    several: dict[str, Any] = {"default": [], "metavar": "TEXT", "action": "append"}
    flag: dict[str, Any] = {"default": False, "action": "store_true"}
    add("--prompt", **text, help="prompt for each row of a table; {name} stands for a column")
    add("--column", **text, help="the column for {text} in --prompt")
    add("--schema", **text, help="file with the JSON Schema of the answers")
    add("--set", **several, help="set a field of every request, as in --set max_tokens=200")
    add("--confidence", **flag, help="also ask for the confidence of each value")
    add("--ordered", **flag, help="write answers in the order of the input, not as they finish")
    add("--url", **several, help="use this server, not an engine in this process; repeatable")
    add("--concurrency", **text, type=_positive, help="maximum lines at a time per server (64)")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _add_check(commands: Any) -> None:
    parser = commands.add_parser(
        "check", help="check texts against a constraint, without a model", description=_CHECK
    )
    _add_constraint(parser)
    parser.add_argument(
        "--instance", metavar="FILE", nargs="+", required=True, help="files; - reads standard input"
    )
    parser.add_argument(
        "--document",
        metavar="FILE",
        help="file with the prompt's text: strings with x-verbatim must quote it, whatever part of "
        "the prompt they name; without it they may be any text",
    )


def _add_explain(commands: Any) -> None:
    parser = commands.add_parser(
        "explain", help="show the automaton of a constraint", description=_EXPLAIN
    )
    _add_constraint(parser)
    parser.add_argument("--tokenizer", metavar="FILE", help="a tokenizer.json, to count in tokens")
    parser.add_argument(
        "--prompt",
        action="store_true",
        help="show the text that schema_in_prompt adds to the prompt",
    )
    parser.add_argument("--svg", metavar="FILE", help="write the graph as an SVG picture")
    parser.add_argument("--dot", metavar="FILE", help="write the graph as text for Graphviz")
    parser.add_argument(
        "--max-nodes",
        type=int,
        default=120,
        metavar="N",
        help="maximum branch points shown (default 120); values beyond that are folded",
    )
    parser.add_argument(
        "--unfold",
        metavar="POINTER",
        action="append",
        default=[],
        help="draw the inside of a folded value, given by its JSON Pointer in the schema",
    )


def _add_constraint(parser: argparse.ArgumentParser) -> None:
    """``--schema``, ``--regex`` or ``--grammar-file``, and the form of the answers."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--schema", metavar="FILE", help="a JSON Schema; - reads standard input")
    source.add_argument("--regex", metavar="PATTERN", help="a regular expression (ECMA-262)")
    source.add_argument("--grammar-file", metavar="FILE", help="a grammar (GBNF or Lark)")
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument(
        "--closed",
        action="store_true",
        default=True,
        help="forbid keys that the schema does not name, unless it allows them explicitly, as the "
        "server does (default)",
    )
    keys.add_argument(
        "--open",
        dest="closed",
        action="store_false",
        help="allow additional keys, as the JSON Schema specification does",
    )
    parser.add_argument(
        "--relax",
        action="store_true",
        help="ignore keywords that cannot be enforced, as the server does for functions that are "
        "not strict",
    )
    parser.add_argument(
        "--whitespace",
        default="spaced",
        metavar="FORM",
        help="spaced (default, as json.dumps writes), compact, indent:N or flexible",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


_OF_SERVERS = frozenset(
    [
        *("host", "port", "page", "cors_origins", "api_keys", "api_keys_file", "priority_keys"),
        *("share_between_keys", "metrics_public", "drain_seconds", "tenant_share", "max_queue"),
        *("preload", "schema_store", "schema_store_bytes", "log_format", "log_content"),
        *("kept_responses_bytes", "kept_responses_seconds", "data", "store", "batch_running"),
        *("batch_requests", "key_requests", "key_batches", "file_bytes", "key_bytes"),
    ]
)
"""Settings that have no effect without clients, as in ``batch``."""


def _add_settings(parser: argparse.ArgumentParser, without: frozenset[str] = frozenset()) -> None:
    from app.server.settings import Settings

    for name, field in Settings.model_fields.items():
        if name in without:
            continue
        flag = "--" + name.replace("_", "-")
        meaning, default = _told(name, field)
        text = f"{meaning} (LEAPJSON_{name.upper()}{default and f'; default: {default}'})"
        text = text.replace("%", "%%")
        if field.annotation is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
        else:
            action = "append" if field.annotation == tuple[str, ...] else "store"
            parser.add_argument(flag, action=action, metavar="VALUE", help=text)


def _told(name: str, field: FieldInfo) -> tuple[str, str]:
    """The meaning of a setting, and its default; "" if the meaning tells it."""
    default = "demo" if name == "model" else str(field.default).lower()
    return " ".join(str(field.description).split()), "" if field.default in (None, ()) else default


def settings_page() -> str:
    """The text of docs/settings.md: one table per section, made from the settings themselves."""
    from app.server.settings import SECTIONS, Settings

    page = [
        "# Settings",
        "",
        "Each setting is an environment variable and a flag of `leapjson serve`: `--max-running` "
        "for `LEAPJSON_MAX_RUNNING`. The flag wins.",
        "`leapjson serve --help-markdown` writes this page.",
    ]
    for name, field in Settings.model_fields.items():
        if name in SECTIONS:
            page += ["", f"## {SECTIONS[name]}", ""]
            page += ["| variable | default | meaning |", "|---|---|---|"]
        meaning, default = _told(name, field)
        page.append(f"| `LEAPJSON_{name.upper()}` | {default and f'`{default}`'} | {meaning} |")
    return "\n".join(page)


def _settings(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Settings:
    from app.core.errors import LeapjsonError
    from app.server.settings import Settings

    of_the_command = ("command", "help_markdown")
    given = {key: value for key, value in vars(options).items() if key not in of_the_command}
    try:
        return Settings.read(**given)
    except LeapjsonError as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
