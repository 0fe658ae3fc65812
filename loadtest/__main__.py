"""Load tests of servers that speak OpenAI's API.

    python -m loadtest run --url http://127.0.0.1:8000 --workload character --clients 1 8 32
    python -m loadtest compare --server leapjson --server vllm --model-folder MODEL --baseline vllm
    python -m loadtest bfcl --url http://127.0.0.1:8000
    python -m loadtest workloads

``run`` measures one server. ``compare`` measures several in turn and prints the ratio of each to
the baseline. ``bfcl`` sends all questions of the Berkeley Function-Calling Leaderboard's parts
once, at temperature 0, to one server or several. Every answer is checked. Tables are printed to the
terminal; ``--out`` names a folder for two CSV files and one JSON file.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Container, Sequence
from datetime import UTC, datetime
from pathlib import Path

from loadtest.dialects import DIALECTS
from loadtest.drive import Closed, Load, Open
from loadtest.measure import MOST_REQUESTS, Plan, measure
from loadtest.peers import NotInstalled
from loadtest.report import Report, report, write
from loadtest.tables import ratio_table, summary_table, wrong_answers
from loadtest.targets import Arm, arm, target
from loadtest.workloads import DESCRIPTIONS, Workload, workload
from loadtest.workloads.bfcl import PARTS


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 1 if nothing was measured."""
    options = _parser().parse_args(arguments)
    if options.command == "workloads":
        print("\n".join(f"{name:16} {text}" for name, text in DESCRIPTIONS.items()))
        return 0
    started = datetime.now(UTC)
    try:
        arms = _arms(options)
        plan = _plan(options, arms, started)
        baseline = _baseline(options, arms)
        with tempfile.TemporaryDirectory() as folder:
            logs = options.out / "logs" if options.out else Path(folder)
            results = measure(
                plan,
                model=options.model_folder,
                logs=logs,
                one_at_a_time=options.one_at_a_time,
            )
    except (ValueError, NotInstalled, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    finished = report(results, _about(plan, arguments, started), baseline)
    print(text(finished))
    if options.out:
        write(finished, options.out)
        print(f"\nwritten: {options.out / 'report.json'}", file=sys.stderr)
    return 0 if results.rounds else 1


def text(finished: Report) -> str:
    """Output for the terminal: Markdown tables, then errors and notes."""
    parts = [summary_table(finished.summaries)]
    if finished.comparisons:
        parts.append(ratio_table(finished.comparisons))
    if wrong := [*wrong_answers(finished.summaries), *finished.results.notes]:
        parts.append("\n".join(wrong))
    return "\n\n".join(parts)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("workloads", help="list the workloads")
    run = commands.add_parser("run", help="measure one server")
    run.add_argument("--url", help="URL of the server (default: start one of this project)")
    run.add_argument("--dialect", choices=DIALECTS, help="request format for constraints")
    run.add_argument("--body", type=json.loads, default={}, help="JSON: fields added to requests")
    compare = commands.add_parser("compare", help="measure several servers in turn")
    bfcl = commands.add_parser("bfcl", help="measure the share of correct function calls")
    bfcl.add_argument("--url", help="URL of the server, without --server (default: start one)")
    for each in (compare, bfcl):
        _add_servers(each)
    for each in (run, compare, bfcl):
        _add_common(each)
    bfcl.set_defaults(
        workload=[f"bfcl:{part}" for part in PARTS],
        clients=[1],
        requests=MOST_REQUESTS,
        repeats=1,
        temperature=0.0,
    )
    return parser


def _add_servers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server", action="append", default=[], metavar="NAME[=TARGET]",
        help="target: a URL, 'leapjson', or a peer to start; NAME alone is also the target",
    )  # fmt: skip
    parser.add_argument("--baseline", help="server to compare with (default: the last one)")
    for option, metavar, text in (
        ("--dialect", "NAME=DIALECT", "a server's request format for constraints"),
        ("--body", "NAME=JSON", "additional fields of every request to a server"),
        ("--setting", "NAME=KEY=VALUE", "a LEAPJSON_ variable of a server started here"),
        ("--instead", "NAME=WORKLOAD", "workload for one server in place of --workload"),
    ):
        parser.add_argument(option, action="append", default=[], metavar=metavar, help=text)


def _add_common(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--workload", nargs="+", default=["character"], help="see 'workloads'")
    add("--clients", type=int, nargs="+", default=[], help="closed loops (default: 1 8 32)")
    add("--rate", type=float, nargs="+", default=[], help="Poisson arrivals per second")
    add("--requests", type=int, default=16, help="requests a round; at least 2 for each client")
    add("--repeats", type=int, default=3, help="rounds of each workload and load")
    add("--warm-up", type=int, default=8, help="warm-up requests for each server and workload")
    add("--cache", choices=("warm", "cold"), default="warm", help="cold: every schema is new")
    add("--temperature", type=float, default=1.0)
    add("--seed", type=int, default=0)
    add("--model", help="model named in requests (default: the first one that a server lists)")
    add("--model-folder", type=Path, help="model folder or GGUF file for servers started here")
    add("--one-at-a-time", action="store_true", help="start a server for each turn, then stop it")
    add("--api-key", default=os.environ.get("OPENAI_API_KEY"), help="default: $OPENAI_API_KEY")
    add("--out", type=Path, help="folder for CSV and JSON files")


def _arms(options: argparse.Namespace) -> list[Arm]:
    """The servers to measure. Raises ValueError for invalid options."""
    if options.command == "run":
        where = target(options.url or "leapjson")
        return [arm("server", where, options.dialect, body=options.body)]
    given = options.server
    if options.command == "bfcl" and not given:
        given = [f"server={options.url or 'leapjson'}"]
    servers = dict(_split(each) for each in given)
    if not servers:
        raise ValueError("no servers to compare: use --server leapjson --server NAME=URL")
    if len(servers) < len(given):
        raise ValueError("two servers have one name; give them names: --server NAME=TARGET")
    dialects, bodies, instead, settings = (
        _by_name(given, servers, option)
        for option, given in (
            ("--dialect", options.dialect),
            ("--body", options.body),
            ("--instead", options.instead),
            ("--setting", options.setting),
        )
    )
    return [
        arm(
            name,
            target(where, tuple(_split(each) for each in settings.get(name, ()))),
            dialects.get(name, [None])[-1],
            body={key: value for text in bodies.get(name, ()) for key, value in _object(text)},
            instead=workload(instead[name][-1]) if name in instead else None,
        )
        for name, where in servers.items()
    ]


def _split(text: str) -> tuple[str, str]:
    """Split ``NAME=VALUE``; a URL or a name alone is both name and value."""
    name, equals, value = text.partition("=")
    return (name, value) if equals and "://" not in name else (text, text)


def _by_name(given: Sequence[str], servers: Container[str], option: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in given:
        name, _, value = each.partition("=")
        if name not in servers:
            raise ValueError(f"{option} {each}: there is no server of that name")
        found.setdefault(name, []).append(value)
    return found


def _object(text: str) -> list[tuple[str, object]]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"--body takes a JSON object; {text} is not one")
    return list(value.items())


def _plan(options: argparse.Namespace, arms: Sequence[Arm], started: datetime) -> Plan:
    loads: list[Load] = [Closed(count) for count in options.clients]
    loads += [Open(rate) for rate in options.rate]
    return Plan(
        arms=arms,
        workloads=_workloads(options.workload),
        loads=loads or [Closed(1), Closed(8), Closed(32)],
        repeats=options.repeats,
        requests=options.requests,
        warm_up=options.warm_up,
        run=started.isoformat(),
        cache=options.cache,
        temperature=options.temperature,
        seed=options.seed,
        model=options.model,
        api_key=options.api_key,
    )


def _workloads(names: Sequence[str]) -> list[Workload]:
    return [workload(name) for name in dict.fromkeys(names)]


def _baseline(options: argparse.Namespace, arms: Sequence[Arm]) -> str | None:
    if options.command == "run":
        return None
    names = [each.name for each in arms]
    name: str = options.baseline or names[-1]
    if name not in names:
        raise ValueError(f"--baseline {name}: there is no server of that name")
    return name


def _about(plan: Plan, arguments: Sequence[str] | None, started: datetime) -> dict[str, str]:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if plan.api_key:
        given = [each.replace(plan.api_key, "...") for each in given]
    return {
        "command": "python -m loadtest " + shlex.join(given),
        "started": started.isoformat(timespec="seconds"),
        "repetitions": str(plan.repeats),
        "temperature": f"{plan.temperature:g}",
        "schema cache": plan.cache,
    }


if __name__ == "__main__":
    sys.exit(main())
