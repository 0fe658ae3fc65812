"""Opening a store, and its errors if it cannot be used."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import SecretStr
from sqlalchemy import update

from app.core.errors import LeapjsonError, StoreUnavailable
from app.server.settings import Settings
from app.store import store as module
from app.store.store import open_store
from app.store.tables import _version
from tests.store.lines import jsonl, make_batch, open_folder


async def test_a_folder_is_for_one_server(tmp_path: Path) -> None:
    store = open_folder(tmp_path)
    with pytest.raises(LeapjsonError, match=r"another server uses the folder .*LEAPJSON_STORE"):
        open_folder(tmp_path)
    await store.close()
    await open_folder(tmp_path).close()


async def test_what_was_leased_is_free_at_the_next_start(tmp_path: Path) -> None:
    store = open_folder(tmp_path)
    batch_id = await make_batch(store, jsonl(1))
    assert store.state.take("one", [""], 60) is not None
    assert store.state.take("two", [""], 60) is None
    await store.close()
    store = open_folder(tmp_path)
    piece = store.state.take("two", [""], 60)
    assert piece is not None
    assert (piece.batch_id, piece.tries) == (batch_id, 1)
    await store.close()


async def test_tables_of_another_version_are_refused(tmp_path: Path) -> None:
    store = open_folder(tmp_path)
    with store.state._engine.begin() as connection:
        connection.execute(update(_version).values(version=99))
    await store.close()
    with pytest.raises(LeapjsonError, match="version 99, and this server needs version 2"):
        open_folder(tmp_path)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LeapjsonError, match="LEAPJSON_DATA"):
        open_folder(tmp_path / "file")


def test_a_bucket_needs_a_database() -> None:
    with pytest.raises(LeapjsonError, match="LEAPJSON_STORE"):
        open_store("s3://bucket", None)


@pytest.mark.parametrize("url", ["mysql://host/name", "nonsense"])
def test_other_databases_are_refused_without_their_password(tmp_path: Path, url: str) -> None:
    with pytest.raises(LeapjsonError, match="postgresql://user:password@host/name"):
        open_store(str(tmp_path), url)


def test_a_database_that_is_away_is_said_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(LeapjsonError, match="cannot use the database in LEAPJSON_STORE") as caught:
        open_store(str(tmp_path), "postgresql://me:secret@127.0.0.1:1/name")
    assert "secret" not in str(caught.value)


def test_a_database_alone_holds_no_files() -> None:
    with pytest.raises(ValueError, match="set data for the files"):
        Settings(store=SecretStr("postgresql://me@host/name"))


async def test_calls_that_fail_slowly_make_others_fail_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests must not pile up behind a database that hangs."""
    store, now, calls = open_folder(tmp_path), 100.0, 0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))

    def fails() -> None:
        nonlocal now, calls
        now += 10
        calls += 1
        raise OSError("it hangs")

    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await store.run(fails)
    assert calls == 1
    now += 2.1
    with pytest.raises(StoreUnavailable):
        await store.run(fails)
    assert calls == 2
    await store.close()


async def test_calls_that_wait_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_folder(tmp_path)
    monkeypatch.setattr(module, "_MOST_WAITING", 0)
    with pytest.raises(StoreUnavailable, match="the limit"):
        await store.run(lambda: None)
    await store.close()
