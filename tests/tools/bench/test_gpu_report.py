"""The GPU report, as far as it can be tested without a GPU."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.text import HfTokenizer
from tools import datasets
from tools.bench.gpu_report import supervisor, text
from tools.bench.gpu_report.__main__ import main
from tools.bench.gpu_report.device import timing
from tools.bench.gpu_report.engine_bench import Steps
from tools.bench.gpu_report.model import Pass
from tools.bench.gpu_report.options import Options, parse
from tools.bench.gpu_report.parts import PARTS, Part
from tools.bench.gpu_report.record import Record, read
from tools.bench.gpu_report.shapes import LLAMA_1B, LLAMA_8B
from tools.bench.gpu_report.supervisor import Supervisor
from tools.bench.model_folder import write_llama

OPTIONS = Options("cpu", True, 60.0, Path("report.json"), ("first",), None)


def test_every_part_runs_on_tiny_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.json"
    well = main(["--device", "cpu", "--tiny", "--seconds", "1200", "--out", str(out)])
    printed = capsys.readouterr().out
    assert well, printed
    report = json.loads(out.read_text())
    assert [part["part"] for part in report["parts"]] == [part.name for part in PARTS]
    assert all(part["status"] == "ok" and part["findings"] for part in report["parts"])
    assert f"ALL {len(PARTS)} PARTS WENT WELL" in printed


def test_the_floor_counts_the_weights_that_llama_has_but_for_the_embedding() -> None:
    tied, embedding = 1_235_814_400, 128_256 * 4096
    assert LLAMA_1B.weight_bytes == 2 * tied
    assert LLAMA_8B.weight_bytes == 2 * (8_030_261_248 - embedding)
    assert LLAMA_8B.token_kv_bytes == 131_072
    assert LLAMA_8B.step_bytes(32, 512) == LLAMA_8B.weight_bytes + (2 << 30)


def test_the_parts_that_say_most_have_time_even_if_all_before_them_use_theirs_up() -> None:
    names = [part.name for part in PARTS]
    until_engine = PARTS[: names.index("engine") + 1]
    assert [part.timed for part in until_engine] == [False] * 5 + [True] * 4
    # Parts without timings run in parallel.
    beside = max(part.seconds for part in until_engine if not part.timed)
    alone = sum(part.seconds for part in until_engine if part.timed)
    assert beside + alone <= parse([], "").seconds <= 570


def test_the_cpu_is_for_trying_it_out(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--device", "cpu"], "")
    assert "--tiny" in capsys.readouterr().err


def test_options_reach_the_parts_as_they_are() -> None:
    options = parse(["--tokenizer", "somewhere", "--part", "engine", "versions"], "")
    assert options.parts == ("versions", "engine")
    assert Options.from_json(options.to_json()) == options


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that runs a report whose parts have the given bodies and time limits."""

    def run(
        bodies: dict[str, tuple[str, float]], seconds: float = 60.0, again: bool = False
    ) -> Supervisor:
        folder = tmp_path / "loadtest_parts"
        folder.mkdir()
        for name, (body, _) in bodies.items():
            lines = (
                f"import os, signal, time\ndef run(record, options):\n{textwrap.indent(body, ' ')}"
            )
            (folder / f"{name}.py").write_text(lines)
        # Child processes find the parts there, as modules of the package of parts.
        site = tmp_path / "sitecustomize.py"
        site.write_text(
            "import tools.bench.gpu_report.parts as parts\n"
            f"parts.__path__.append({str(folder)!r})\n"
        )
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{supervisor.ROOT}")
        made = tuple(Part(name, name, limit, again=again) for name, (_, limit) in bodies.items())
        monkeypatch.setattr(supervisor, "PARTS", made)
        options = Options("cpu", True, seconds, tmp_path / "out.json", tuple(bodies), None)
        found = Supervisor(options)
        found.run()
        return found

    return run


def test_a_part_that_crashes_hangs_or_raises_takes_nothing_of_the_others(
    made_up: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = made_up(
        {
            "crash": ("record.value('before', 1)\nos.kill(os.getpid(), signal.SIGSEGV)", 300.0),
            "hang": ("record.row('t', a=1)\ntime.sleep(600)", 30.0),
            "wrong": ("record.failed('a thing', ValueError('so'))", 300.0),
            "raise_": ("raise RuntimeError('CUDA error: an illegal memory access')", 300.0),
            "well": ("record.value('fine', 2.0)", 300.0),
        }
    )
    assert [each.status for each in report.outcomes] == [
        "failed",
        "timed out",
        "ok",
        "failed",
        "ok",
    ]
    assert report.outcomes[0].exit_status == -signal.SIGSEGV
    assert report.outcomes[0].findings == [{"value": "before", "is": 1}]
    assert report.outcomes[1].findings == [{"table": "t", "row": {"a": 1}}]
    assert "sleep" in report.outcomes[1].log or "run" in report.outcomes[1].log
    kept = json.loads((tmp_path / "out.json").read_text())
    assert [part["status"] for part in kept["parts"]] == [each.status for each in report.outcomes]
    last = capsys.readouterr().out.split("\n4 OF 5 PARTS DID NOT GO WELL: ")[1].splitlines()[0]
    assert last == "crash (failed), hang (timed out), wrong (1 failures inside), raise_ (failed)"


def test_a_part_that_finds_nothing_with_graphs_is_tried_without(made_up: Any) -> None:
    body = "if options.graphs:\n raise RuntimeError('a graph')\nrecord.row('t', a=1)"
    report = made_up({"steps": (body, 300.0), "other": ("pass", 300.0)}, again=True)
    assert [(each.part, each.status) for each in report.outcomes] == [
        ("steps", "failed"), ("steps, no graphs", "ok"), ("other", "ok"),
    ]  # fmt: skip
    assert report.outcomes[1].findings == [{"table": "t", "row": {"a": 1}}]


def test_parts_that_no_time_is_left_for_are_named(made_up: Any) -> None:
    report = made_up({"slow": ("time.sleep(60)", 0.7), "late": ("pass", 20.0)}, seconds=5.0)
    assert [each.status for each in report.outcomes] == ["timed out", "skipped"]
    assert text.verdict([each.to_json() for each in report.outcomes]) == (
        "2 OF 2 PARTS DID NOT GO WELL: slow (timed out), late (skipped)"
    )


def test_findings_are_whole_though_the_process_died_while_writing(tmp_path: Path) -> None:
    path = tmp_path / "findings"
    Record(path, 1.0).value("whole", 1)
    with path.open("a") as file:
        file.write('{"value": "ha')
    assert read(path) == [{"value": "whole", "is": 1}]


def test_a_table_is_as_narrow_as_its_figures() -> None:
    rows: list[dict[str, Any]] = [
        {"answers": 1, "ms": 4.12345, "way": "graph"},
        {"answers": 256, "ms": 12345.6},
    ]
    assert text.table(rows) == ["answers|ms|way", "1|4.12|graph", "256|12346|"]


def test_a_report_with_everything_in_it_is_short_enough_to_be_seen_whole() -> None:
    cells = {f"column {i}": 1234.5 for i in range(11)}
    full: dict[str, Any] = {
        "title": "A part with much to say",
        "part": "part",
        "status": "ok",
        "seconds": 100.0,
        "log": "",
        "findings": [
            *({"value": f"fact {i}", "is": 0.123} for i in range(10)),
            *({"table": f"table {i % 3}", "row": cells} for i in range(60)),
            *({"failed": f"thing {i}", "why": "w" * 400} for i in range(3)),
        ],
    }
    written = text.report_text([full] * len(PARTS))
    assert len(written) <= text.MOST_CHARACTERS < 10_000
    assert "more rows, in the file" in written
    assert written.endswith("and more, in the file\n")


@dataclass(frozen=True)
class At:
    """A device event at ``ms`` milliseconds."""

    ms: float

    def elapsed_time(self, other: At) -> float:
        return other.ms - self.ms


def test_a_device_is_idle_between_passes_and_draws_that_come_late() -> None:
    # Forward 0 to 6, draws 7 to 8 (late mask), forward 10 to 16 (late plan), draws 16 to 17.
    passes = [Pass("graph", At(0), At(6)), Pass("eager", At(10), At(16))]
    drawn = [(At(7), At(8)), (At(16), At(17))]
    steps = Steps(
        count=2, seconds=0.02, tokens=2, gained=2, passes=passes, drawn=drawn, launching=0.0,
        kernels=[],
    )  # fmt: skip
    assert steps.idle == pytest.approx(3 / 17)
    assert steps.in_graphs == 0.5
    assert steps.forward == pytest.approx(0.012)
    assert steps.drawing == pytest.approx(0.002)


def test_a_time_is_a_median_and_its_spread_leaves_the_fifths_at_both_ends_out() -> None:
    found = timing([1.0, 5.0, 2.0, 3.0, 100.0])
    assert (found.median, found.low, found.high) == (3.0, 2.0, 5.0)
    assert found.spread == pytest.approx(1.0)


@pytest.mark.parametrize("folder", [datasets.GPT2, datasets.QWEN2_5, Path("app/demo/weights")])
def test_any_tokenizer_of_the_repository_will_do(folder: Path, tmp_path: Path) -> None:
    known = write_llama(tmp_path, folder, vocabulary=60_000)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["vocab_size"] == max(known, 60_000)
    assert HfTokenizer.load(str(tmp_path)).hf.eos_token_id == config["eos_token_id"]


def test_a_tokenizer_cut_off_spells_everything_with_the_tokens_that_are_left(
    tmp_path: Path,
) -> None:
    assert write_llama(tmp_path, None, vocabulary=1000) == 1000
    tokenizer = HfTokenizer.load(str(tmp_path))
    text = '{"name": "Ærøskøbing", "age": 31}'
    ids = tokenizer.hf.encode(text)
    assert max(ids) < 999
    assert tokenizer.hf.decode(ids) == text


def test_the_report_has_its_name() -> None:
    command = [sys.executable, "-m", "loadtest.gpu_report", "--help"]
    ran = subprocess.run(
        command, cwd=supervisor.ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "usage: python3 -m loadtest.gpu_report " in ran


def test_the_code_of_the_parts_needs_no_library_of_http_or_files() -> None:
    code = (
        "import importlib, sys\n"
        "for name in ('accelerate', 'fastapi', 'gguf', 'outlines', 'pydantic', 'sqlalchemy'):\n"
        "    sys.modules[name] = None\n"
        "from tools.bench.gpu_report.parts.versions import NEEDED\n"
        "for name in NEEDED: importlib.import_module(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
