"""Executes the Dockerfile's steps in a clean root, for machines without a container engine.

    sudo python -m tests.image.clean_root WORK [--accelerator cuda] [--bind /etc/pip.conf] ...

Needs root, debootstrap, an apt registry and a pip registry; no engine. ``WORK/debian`` is Debian
bookworm with its Python 3.11. It replaces the python:3.11-slim-bookworm image, which is the same
Debian with another build of Python. A stage is a copy of the stage in its FROM, and each RUN is
executed there with chroot. The last stage stays in ``WORK/final``, and the image's configuration
in ``WORK/image.json``; ``tests.image.serve_root`` runs them.

``--bind`` makes a file or folder of this machine (pip.conf, certificates) visible to RUN, and
``--env`` sets a variable for it; both are for mirrors. A bound file leaves an empty file behind.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.image.dockerfile import Instruction, Stage, read_dockerfile, substitute

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = "ca-certificates,python3,python3-venv,python3-dev,python-is-python3"
"""Debian packages with the contents of the image: ``python``, ``venv``, Python's headers."""


MOUNT = """
set -e
root=$1; shift
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then mkdir -p "$root$1"; else mkdir -p "$root${1%/*}"; touch "$root$1"; fi
    mount --bind "$1" "$root$1"
    shift
done
shift
exec chroot "$root" "$@"
"""
"""Binds files of this machine into the root, in a mount namespace that ends with the command."""


@dataclass(frozen=True, slots=True)
class Host:
    """Files and variables of this machine that the steps may use."""

    binds: list[Path]
    environment: Mapping[str, str]

    def run(self, root: Path, command: list[str], environment: Mapping[str, str]) -> None:
        """Run ``command`` in ``root``. Raises ``CalledProcessError``."""
        shown = [root, Path("/etc/resolv.conf"), *self.binds]
        isolated = ["unshare", "--mount", "sh", "-c", MOUNT, "sh", *map(str, shown), "--", *command]
        subprocess.run(isolated, env={**environment, **self.environment}, check=True)


@dataclass(slots=True)
class Built:
    """The root of a stage, and the variables and folder that its instructions have set so far."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    folder: str = "/"

    @property
    def values(self) -> dict[str, str]:
        return self.arguments | self.environment

    def place(self, path: str) -> Path:
        return self.root / Path(self.folder, path).relative_to("/")


class Builder:
    """Builds stages in ``work``; COPY reads from the repository and from earlier stages."""

    def __init__(self, work: Path, host: Host, arguments: Mapping[str, str]) -> None:
        self._work = work
        self._host = host
        self._arguments = arguments
        self._stages: dict[str, Built] = {}

    def build(self, stage: Stage, name: str) -> Built:
        """Build one stage. Raises ``CalledProcessError`` if a step fails."""
        before = self._stages.get(stage.image, Built(self._work / "debian"))
        root = self._work / name
        if root.exists():
            shutil.rmtree(root)
        subprocess.run(["cp", "-a", "--reflink=auto", before.root, root], check=True)
        path = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        built = Built(root, path | before.environment, folder=before.folder)
        for instruction in stage.instructions:
            began = time.perf_counter()
            self._carry_out(instruction, built)
            if instruction.name in ("RUN", "COPY"):
                print(f"[{name}] {time.perf_counter() - began:6.1f} s  {_short(instruction)}")
        self._stages[stage.name] = built
        return built

    def _carry_out(self, instruction: Instruction, built: Built) -> None:
        match instruction.name:
            case "ARG":
                for name, default in instruction.pairs.items():
                    built.arguments[name] = self._arguments.get(name, default)
            case "ENV":
                for name, value in instruction.pairs.items():
                    built.environment[name] = substitute(value, built.values)
            case "WORKDIR":
                built.folder = str(Path(built.folder, instruction.text))
                built.place("").mkdir(parents=True, exist_ok=True)
            case "COPY":
                self._copy(instruction, built)
            case "RUN":
                self._run(instruction, built)

    def _copy(self, instruction: Instruction, built: Built) -> None:
        *sources, target = instruction.words
        stage = instruction.flags.get("from")
        place = built.place(target)
        for source in sources:
            origin = self._stages[stage].place(source) if stage else REPOSITORY / source
            if origin.is_dir():  # the contents, not the folder itself
                junk = None if stage else shutil.ignore_patterns("__pycache__")
                shutil.copytree(origin, place, symlinks=True, ignore=junk, dirs_exist_ok=True)
            else:
                into = place / origin.name if target.endswith("/") else place
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(origin, into)

    def _run(self, instruction: Instruction, built: Built) -> None:
        # Like a container engine: cd to the folder, and /bin/sh -c for the shell form.
        command = ["/bin/sh", "-c", f'cd "{built.folder}" && {instruction.text}']
        self._host.run(built.root, command, built.values)


def _short(instruction: Instruction) -> str:
    return f"{instruction.name} {' '.join(instruction.text.split())[:70]}"


def image_config(stage: Stage, built: Built) -> dict[str, object]:
    """The settings of the Dockerfile that an image keeps for running it."""
    return {
        "environment": built.environment,
        "user": stage.last("USER").text,
        "healthcheck": json.loads(stage.last("HEALTHCHECK").text.removeprefix("CMD ")),
        "command": stage.last("ENTRYPOINT").words + stage.last("CMD").words,
        "volumes": [each.text for each in stage.all("VOLUME")],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("work", type=Path, help="folder for the roots; needs several GB")
    parser.add_argument("--accelerator", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--suite", default="bookworm")
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--bind", action="append", default=[], type=Path, metavar="PATH")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("chroot and mount need root")
    work: Path = options.work.resolve()
    if not (work / "debian").exists():
        work.mkdir(parents=True, exist_ok=True)
        include = f"--include={PACKAGES}"
        bootstrap = ["debootstrap", "--variant=minbase", include, options.suite, work / "debian"]
        subprocess.run(bootstrap, check=True)
        subprocess.run(["chroot", work / "debian", "apt-get", "clean"], check=True)
    host = Host(options.bind, _pairs(options.env))
    arguments = {"ACCELERATOR": options.accelerator, **_pairs(options.build_arg)}
    builder = Builder(work, host, arguments)
    stages = read_dockerfile(REPOSITORY / "Dockerfile")
    built = [builder.build(each, each.name or "final") for each in stages]
    config = image_config(stages[-1], built[-1])
    (work / "image.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    subprocess.run(["du", "-sh", *(each.root for each in built)], check=True)


def _pairs(given: list[str]) -> dict[str, str]:
    return {name: value for name, _, value in (each.partition("=") for each in given)}


if __name__ == "__main__":
    main()
