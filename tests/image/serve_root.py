"""Runs the result of ``tests.image.clean_root`` like a container engine, and checks it.

    sudo python -m tests.image.serve_root WORK

The image's command is process 1 of its own process namespace, with a read-only root and without
privileges; only the cache's folder and /tmp are writable. It runs as the image's user with an empty
cache, then with the full one, then as a user id without an entry in /etc/passwd and without a home,
and is stopped while it loads. Prints results with times; exits with status 1 if a check failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE = 300.0
"""Maximum seconds of a start, and of a stop."""

MOUNT = """
set -e
mount --bind "$ROOT" "$ROOT"
mount -t proc proc "$ROOT/proc"
mount --rbind /dev "$ROOT/dev"
mount -t tmpfs -o mode=1777 tmpfs "$ROOT/tmp"
mount --bind "$CACHE" "$ROOT/cache"
mount -o remount,bind,ro "$ROOT"
unset CACHE
cd /
exec chroot "$ROOT" env -u ROOT "$@"
"""

CONTACT = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "email": {"type": "string", "format": "email"}},
    "required": ["name", "email"],
}


@dataclass(frozen=True, slots=True)
class Image:
    """The root and the settings with which it is run."""

    root: Path
    environment: Mapping[str, str]
    user: str
    healthcheck: list[str]
    command: list[str]


@dataclass(frozen=True, slots=True)
class Container:
    """A running server; ``pid`` is its process 1, as numbered outside its namespace."""

    image: Image
    process: subprocess.Popen[bytes]
    pid: int
    user: str
    environment: Mapping[str, str]
    began: float

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.environment['LEAPJSON_PORT']}"

    def run(self, command: list[str]) -> int:
        """The exit status of a command in the container, as its user, as HEALTHCHECK runs it."""
        enter = ["nsenter", "-t", str(self.pid), "-m", "-p", "-r", "-w"]
        return subprocess.run(
            [*enter, *_as(self.user), *command], env=self.environment, stderr=subprocess.DEVNULL
        ).returncode

    def wait_until_ready(self) -> float:
        """Seconds since the start. Raises ``TimeoutError``, or ``RuntimeError`` if it ended."""
        while time.perf_counter() - self.began < PATIENCE:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}")
            try:
                urllib.request.urlopen(f"{self.url}/ready", timeout=2).close()
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.05)
            else:
                return time.perf_counter() - self.began
        raise TimeoutError("the server is not ready")

    def ask(self) -> tuple[float, dict[str, Any]]:
        """Seconds that a chat completion with a schema takes, and its parsed content."""
        body = {
            "messages": [{"role": "user", "content": "Extract: Ann Lee, ann@example.com"}],
            "temperature": 0,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "contact", "schema": CONTACT},
            },
            "model": "leapjson-demo",
        }
        headers = {"content-type": "application/json"}
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/v1/chat/completions", data, headers)
        began = time.perf_counter()
        with urllib.request.urlopen(request, timeout=300) as response:
            answer = json.load(response)
        content: dict[str, Any] = json.loads(answer["choices"][0]["message"]["content"])
        return time.perf_counter() - began, content

    def stop(self) -> tuple[float, int]:
        """Send SIGTERM to process 1. Returns the seconds until it ended, and its exit status."""
        began = time.perf_counter()
        os.kill(self.pid, signal.SIGTERM)
        status = self.process.wait(PATIENCE)
        return time.perf_counter() - began, status


def _as(user: str) -> list[str]:
    uid, gid = user.split(":")
    privileges = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
    return ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", *privileges]


@contextlib.contextmanager
def running(
    image: Image, cache: Path, log: Path, *, user: str, environment: Mapping[str, str]
) -> Iterator[Container]:
    """Runs the image's command in its own namespaces, and kills it at the end if it still runs."""
    inside = {key: value for key, value in {**image.environment, **environment}.items() if value}
    command = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", MOUNT, "sh"]
    command += [*_as(user), *image.command]
    outside = {"ROOT": str(image.root), "CACHE": str(cache)}
    began = time.perf_counter()
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=inside | outside, stdout=output, stderr=output)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not (found := children.read_text().split()):
        time.sleep(0.01)
    try:
        yield Container(image, process, int(found[0]), user, inside, began)
    finally:
        if process.poll() is None:  # the end of process 1 ends its whole namespace
            os.kill(int(found[0]), signal.SIGKILL)
            process.wait()


class Report:
    """Prints results, and records whether all of them were right."""

    def __init__(self) -> None:
        self.right = True

    def note(self, text: str, right: bool) -> None:
        self.right = self.right and right
        print(f"{'ok  ' if right else 'FAIL'} {text}", flush=True)


def check_served(container: Container, name: str, report: Report) -> None:
    """Check a server from its start to its end, with two completions."""
    before = _processor_seconds()
    report.note(f"{name}: unhealthy at first", container.run(container.image.healthcheck) != 0)
    report.note(f"{name}: /ready after {container.wait_until_ready():.1f} s", True)
    report.note(f"{name}: HEALTHCHECK", container.run(container.image.healthcheck) == 0)
    report.note(f"{name}: the root is read-only", container.run(["touch", "/opt/file"]) != 0)
    for which in ("first", "second"):
        seconds, content = container.ask()
        right = content.keys() == CONTACT["properties"].keys()  # type: ignore[attr-defined]
        report.note(f"{name}: {which} completion in {seconds:.2f} s: {content}", right)
    seconds, status = container.stop()
    report.note(f"{name}: SIGTERM, exit {status} after {seconds:.1f} s", status == 0)
    report.note(f"{name}: processor time {_processor_seconds() - before:.1f} s in all", True)


def _processor_seconds() -> float:
    """CPU time of ended children; it depends less on other load than the wall clock."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def empty_cache(path: Path, owner: str, mode: int) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    os.chown(path, *map(int, owner.split(":")))
    path.chmod(mode)
    return path


def check(work: Path, port: int) -> bool:
    kept = json.loads((work / "image.json").read_text(encoding="utf-8"))
    image = Image(
        work / "final", kept["environment"], kept["user"], kept["healthcheck"], kept["command"]
    )
    here = {"LEAPJSON_HOST": "127.0.0.1", "LEAPJSON_PORT": str(port)}
    with socket.create_server(("127.0.0.1", port)):
        pass  # raises if another server uses the port
    report = Report()
    made = (image.root / "cache").stat()
    cache = empty_cache(work / "cache", f"{made.st_uid}:{made.st_gid}", made.st_mode)
    log = work / "serve.log"
    for name in ("empty cache", "full cache"):
        with running(image, cache, log, user=image.user, environment=here) as container:
            check_served(container, name, report)
    foreign = empty_cache(work / "foreign", "0:0", 0o777)  # like an emptyDir of Kubernetes
    homeless = {**here, "HOME": ""}
    with running(image, foreign, log, user="54321:54321", environment=homeless) as container:
        check_served(container, "foreign user, no HOME", report)
    with running(image, cache, log, user=image.user, environment=here) as container:
        time.sleep(1)
        seconds, status = container.stop()
        report.note(f"while loading: SIGTERM, exit {status} after {seconds:.1f} s", seconds < 5)
    compilers = [name for name in ("gcc", "cc", "clang", "tcc", "g++") if _has(image, name)]
    report.note(f"compilers in the image: {compilers or 'none'}", not compilers)
    files = sorted({str(path.relative_to(cache).parent) for path in cache.rglob("*")})
    print(f"the cache's folders: {files}")
    return report.right


def _has(image: Image, program: str) -> bool:
    command = ["chroot", str(image.root), "sh", "-c", f"command -v {program}"]
    return subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("work", type=Path, help="the folder WORK of clean_root")
    parser.add_argument("--port", type=int, default=18753)
    options = parser.parse_args()
    return 0 if check(options.work.resolve(), options.port) else 1


if __name__ == "__main__":
    raise SystemExit(main())
