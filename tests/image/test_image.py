"""Checks of the image without a container engine; docker/README.md describes further ones."""

from __future__ import annotations

import http.server
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import pytest

from app.server.settings import Settings
from tests.image.context import is_in_context, read_patterns
from tests.image.dockerfile import read_dockerfile

REPOSITORY = Path(__file__).resolve().parents[2]
STAGES = read_dockerfile(REPOSITORY / "Dockerfile")
FINAL = STAGES[-1]
IGNORE = read_patterns(REPOSITORY / ".dockerignore")
CC = REPOSITORY / "docker" / "triton" / "cc"


def copied_from_context() -> list[str]:
    copies = [copy for stage in STAGES for copy in stage.all("COPY") if "from" not in copy.flags]
    return [source for copy in copies for source in copy.words[:-1]]


@pytest.mark.parametrize("source", copied_from_context())
def test_what_the_dockerfile_copies_exists_and_is_not_ignored(source: str) -> None:
    assert (REPOSITORY / source).exists()
    assert is_in_context(PurePosixPath(source), IGNORE)


def test_the_build_sees_the_package_and_neither_tests_nor_caches() -> None:
    def seen(path: str) -> bool:
        return is_in_context(PurePosixPath(path), IGNORE)

    package = (REPOSITORY / "app").rglob("*")
    for path in package:
        relative = path.relative_to(REPOSITORY)
        made = {"__pycache__", "node_modules"}
        assert seen(str(relative)) == made.isdisjoint(relative.parts), relative
    sources = ("tests/fakes.py", "loadtest/drive.py", "tools/demo_model/train.py")
    for unwanted in (".git", ".venv", *sources, "docs", "k8s", ".env"):
        assert not seen(unwanted)


@pytest.mark.parametrize("model", ["demo", "smollm2", "other"])
def test_a_build_puts_smollm2_where_the_server_looks_for_it(model: str, tmp_path: Path) -> None:
    (script,) = (run.text for run in STAGES[1].all("RUN") if "app.demo.smollm2" in run.text)
    for name in ("pip", "python"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "MODEL": model}
    ran = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True)
    if model == "other":
        assert ran.returncode == 1
        assert ran.stderr == "MODEL is demo or smollm2, not 'other'\n"
        return
    fetched = [line for line in ran.stdout.splitlines() if line.startswith("python")]
    prefix = FINAL.environment["PATH"].partition("/bin:")[0]  # the server's sys.prefix
    command = f"python -m app.demo.smollm2 {prefix}/share/leapjson"
    assert fetched == ([command] if model == "smollm2" else [])
    assert FINAL.environment["LEAPJSON_MODEL"] == "$MODEL"
    assert {stage.last("ARG").pairs["MODEL"] for stage in (STAGES[1], FINAL)} == {"demo"}


def test_the_server_takes_the_settings_of_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {name: v for name, v in FINAL.environment.items() if name.startswith("LEAPJSON_")}
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    named = {name.removeprefix("LEAPJSON_").lower() for name in ours}
    assert named
    assert named <= Settings().model_fields_set


@contextmanager
def answering(status: int) -> Iterator[int]:
    """Yields the port of a server that answers every GET with ``status``."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Suppress the log on stderr."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
    assert asked == ["/health"]


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_the_health_check_asks_the_port_of_the_settings(status: int, healthy: bool) -> None:
    check = FINAL.last("HEALTHCHECK")
    form, _, command = check.text.partition(" ")
    assert form == "CMD"
    python, *arguments = type(check)("CMD", command).words
    assert python == "python"
    with answering(status) as port:
        environment = {**os.environ, "LEAPJSON_PORT": str(port)}
        ran = subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, timeout=300
        )
    assert (ran.returncode == 0) == healthy, ran.stderr


def test_the_stand_in_compiler_hands_out_the_module_for_its_own_source_alone(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "image"
    folder.mkdir()
    stand_in = folder / "cc"
    stand_in.write_bytes(CC.read_bytes())
    (folder / "cuda_utils.c").write_text("int driver;")
    (folder / "cuda_utils.so").write_bytes(b"built ahead")

    def compile(source: str, output: str) -> subprocess.CompletedProcess[bytes]:
        (tmp_path / "main.c").write_text(source)
        # Triton's command line has options before and after the output.
        command = ["sh", str(stand_in), *f"main.c -O3 -shared -o {output} -lcuda".split()]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=300)

    assert compile("int driver;", "a.so").returncode == 0
    assert (tmp_path / "a.so").read_bytes() == b"built ahead"
    refused = compile("int other;", "b.so")
    assert refused.returncode == 1
    assert b"no C compiler" in refused.stderr
    assert not (tmp_path / "b.so").exists()


def with_triton(folder: Path, driver: str) -> dict[str, str]:
    """The environment of a build, with a fake Triton whose ``driver.py`` has this text."""
    package = folder / "triton" / "backends" / "nvidia"
    package.mkdir(parents=True)
    (folder / "triton" / "__init__.py").touch()
    (package / "driver.py").write_text(driver)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(folder)}


def test_a_triton_that_compiles_a_launcher_for_each_kernel_ends_the_build(tmp_path: Path) -> None:
    driver = "mod = compile_module_from_src(src)\nlauncher = compile_module_from_src(other)\n"
    ran = subprocess.run(
        ["sh", str(CC.with_name("build.sh")), str(tmp_path)],
        env=with_triton(tmp_path, driver),
        capture_output=True,
        timeout=300,
    )
    assert ran.returncode == 1
    assert b"it takes 3.7 or later" in ran.stderr


@pytest.mark.needs("triton")
def test_the_pinned_triton_compiles_its_driver_module_alone() -> None:
    constraints = (REPOSITORY / "constraints.txt").read_text().splitlines()
    installed = importlib.metadata.version("triton")
    if f"triton=={installed}" not in constraints:
        pytest.skip("another version than the image's is installed")
    triton = importlib.util.find_spec("triton")
    assert triton is not None
    assert triton.origin is not None
    driver = Path(triton.origin).parent / "backends" / "nvidia" / "driver.py"
    assert driver.read_text().count("compile_module_from_src(") == 1
