"""Runs the collected tests in forks of one process: ``pytest --forks 3``.

Libraries are imported and tests collected once; each worker of pytest-xdist would do both again,
half a minute of a core in a fresh clone. Tests of one file run in one fork, one after another, and
so do those of files that share a server. A free fork takes the next group of tests.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, cast

import pytest

_FORKS = multiprocessing.get_context("fork")
_NUMBER = struct.Struct("i")


class _Sender:
    """Hooks of a fork: they send the events of its tests to the process that reports them."""

    def __init__(self, config: pytest.Config, to: Connection) -> None:
        self._config, self._to = config, to

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self._to.send(("pytest_runtest_logstart", {"nodeid": nodeid, "location": location}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._to.send(("pytest_runtest_logreport", data))

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        self._to.send(("pytest_runtest_logfinish", {"nodeid": nodeid, "location": location}))


def run(session: pytest.Session, forks: int, group_of: Callable[[str], str]) -> None:
    """Run ``session.items``, starting groups in the order of their first tests.

    Tests of files with the same ``group_of`` run in one fork. If a fork dies, the tests that it did
    not end fail.
    """
    groups: dict[str, list[pytest.Item]] = {}
    for item in session.items:
        groups.setdefault(group_of(item.nodeid.partition("::")[0]), []).append(item)
    in_order = list(groups.values())
    left = {item.nodeid: item for item in session.items}
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    if servers := sys.modules.get("tests.servers"):  # if a collected test imported it
        servers.share()
    gc.collect()
    gc.freeze()  # garbage collection in a fork would copy these pages
    numbers, more = os.pipe()  # every read takes the number of one group
    os.write(more, b"".join(map(_NUMBER.pack, range(len(in_order)))))
    os.close(more)
    processes, readers = [], list[Connection]()
    for number in range(forks):
        reader, writer = _FORKS.Pipe(duplex=False)
        readers.append(reader)
        given = (session, number, in_order, numbers, writer, readers)
        process = _FORKS.Process(target=_fork, args=given)
        process.start()
        writer.close()
        processes.append(process)
    os.close(numbers)
    try:
        while readers:
            for ready in wait(readers):
                reader = cast(Connection, ready)
                try:
                    hook, data = reader.recv()
                except EOFError:
                    readers.remove(reader)
                    continue
                _tell(session.config, hook, data)
                if hook == "pytest_runtest_logfinish":
                    del left[data["nodeid"]]
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
    finally:
        for process in processes:
            if readers:
                process.terminate()
            process.join()
    died = [f"{each.name} ended with {each.exitcode}" for each in processes if each.exitcode]
    for nodeid, item in left.items():
        text = f"not run to its end: {', '.join(died)}"
        report = pytest.TestReport(nodeid, item.location, {}, "failed", text, "call")
        session.config.hook.pytest_runtest_logreport(report=report)


def _tell(config: pytest.Config, hook: str, data: Mapping[str, Any]) -> None:
    if hook == "pytest_runtest_logreport":
        report = config.hook.pytest_report_from_serializable(config=config, data=data)
        config.hook.pytest_runtest_logreport(report=report)
    else:
        getattr(config.hook, hook)(**data)


def _fork(
    session: pytest.Session,
    number: int,
    groups: Sequence[Sequence[pytest.Item]],
    numbers: int,
    to: Connection,
    readers: Sequence[Connection],
) -> None:
    if sys.platform == "linux":  # ends with its parent; without a thread, as tests fork, too
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    for each in readers:  # elsewhere a fork without a reader ends at its next report
        each.close()
    config: Any = session.config
    config.pluginmanager.unregister(name="terminalreporter")
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()  # all forks would share its files
    capture.start_global_capturing()
    capture.suspend_global_capture()
    config._tmp_path_factory._basetemp = config._tmp_path_factory.mktemp(
        f"fork{number}", numbered=False
    )
    config.pluginmanager.register(_Sender(config, to))
    while taken := os.read(numbers, _NUMBER.size):
        items = groups[_NUMBER.unpack(taken)[0]]
        for item, following in zip(items, [*items[1:], None], strict=True):
            # After the last test of a group, pytest tears down what the group shares.
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
