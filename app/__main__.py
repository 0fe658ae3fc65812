"""The command line: ``leapjson serve``, ``batch``, ``check`` and ``explain``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.server.settings import Settings


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    # Read by OpenMP when torch loads it. Its threads otherwise spin between steps, and take the
    # cores from the event loop and from whoever shares the machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from app.core.errors import LeapjsonError

    parser = build_parser()
    options = parser.parse_args(arguments)
    if options.command != "serve":
        from app.cli.specification import reporting_errors

        # Of the commands alone: they need not wait for each other's imports.
        return reporting_errors(import_module(f"app.cli.{options.command}").run, options)
    if options.help_markdown:
        print(settings_page())
        return 0
    settings = _settings(parser, options)
    from app.server.serve import serve

    try:
        return serve(settings)
    except LeapjsonError as error:
        print(f"leapjson: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before it serves; from then on signals are the server's
        print("leapjson: stopped before it served", file=sys.stderr)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
        raise


def build_parser() -> argparse.ArgumentParser:
    """Every setting is a flag of ``serve``; a flag goes before its environment variable."""
    from app.cli.options import add_batch, add_check, add_explain

    parser = argparse.ArgumentParser(
        prog="leapjson",
        description="An LLM server that speaks JSON mode and leaps over forced text.",
    )
    parser.add_argument("--version", action="version", version=f"leapjson {version('leapjson')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser(
        "serve", help="serve a model over HTTP", argument_default=argparse.SUPPRESS
    )
    _add_settings(serve)
    serve.add_argument(
        "--help-markdown", action="store_true", default=False, help="print docs/settings.md"
    )
    _add_settings(add_batch(commands), without=_OF_SERVERS)
    add_check(commands)
    add_explain(commands)
    return parser


_OF_SERVERS = frozenset(
    [
        *("host", "port", "page", "cors_origins", "api_keys", "api_keys_file", "priority_keys"),
        *("share_between_keys", "metrics_public", "drain_seconds", "tenant_share", "max_queue"),
        *(
            "preload",
            "schema_store",
            "schema_store_bytes",
            "log_format",
            "log_content",
            "kept_responses_bytes",
        ),
        *("kept_responses_seconds", "data", "store", "batch_running", "batch_requests"),
        *("key_requests", "key_batches", "file_bytes", "key_bytes"),
    ]
)
"""Settings that mean nothing where no client asks."""


def _add_settings(parser: argparse.ArgumentParser, without: frozenset[str] = frozenset()) -> None:
    from app.server.settings import Settings

    for name, field in Settings.model_fields.items():
        if name in without:
            continue
        flag = "--" + name.replace("_", "-")
        meaning = " ".join((field.description or "").split())
        text = f"{meaning} (LEAPJSON_{name.upper()}; default: {field.default})"
        text = text.replace("%", "%%")
        if field.annotation is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
        else:
            action = "append" if field.annotation == tuple[str, ...] else "store"
            parser.add_argument(flag, action=action, metavar="VALUE", help=text)


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
            page += [
                "",
                f"## {SECTIONS[name]}",
                "",
                "| variable | default | meaning |",
                "|---|---|---|",
            ]
        default = "" if field.default in (None, ()) else f"`{str(field.default).lower()}`"
        if name == "model":
            default = "`demo`"
        meaning = " ".join(str(field.description).split())
        page.append(f"| `LEAPJSON_{name.upper()}` | {default} | {meaning} |")
    return "\n".join(page)


def _settings(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Settings:
    from app.core.errors import LeapjsonError
    from app.server.settings import Settings

    given = {
        key: value
        for key, value in vars(options).items()
        if key not in ("command", "help_markdown")
    }
    try:
        return Settings.read(**given)
    except LeapjsonError as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
