"""The built page matches its sources, is small, and has nothing that its policy forbids."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path

from app.page import STATIC_PATH
from tests.page.toolchain import PAGE, need_packages, node

LIMIT = 400_000
"""Maximum compressed bytes of all files that the page can load; /docs is a separate page."""
OUTER = ("package.json", "package-lock.json", "tsconfig.json", "build.mjs")
SOURCES = sorted(path for path in (PAGE / "src").rglob("*") if path.is_file())


def _hashes(folder: Path, paths: list[Path]) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_the_built_files_are_those_of_these_sources() -> None:
    manifest = json.loads((STATIC_PATH / "manifest.json").read_text())
    built = [path for path in _files(STATIC_PATH) if path.name != "manifest.json"]
    assert manifest["sources"] == _hashes(PAGE, [PAGE / name for name in OUTER] + SOURCES), (
        "the sources have changed: make page"
    )
    assert manifest["built"] == _hashes(STATIC_PATH, built)


def test_a_build_gives_the_committed_files_byte_for_byte(tmp_path: Path) -> None:
    need_packages()
    node("build.mjs", tmp_path / "static")
    again = _hashes(tmp_path / "static", _files(tmp_path / "static"))
    assert again == _hashes(STATIC_PATH, _files(STATIC_PATH))


def test_the_sources_pass_the_strict_type_check() -> None:
    need_packages()
    node("node_modules/typescript/bin/tsc", "--noEmit")


def test_the_whole_page_is_small() -> None:
    loaded = [STATIC_PATH / "index.html", STATIC_PATH / "icon.svg", *_files(STATIC_PATH / "assets")]
    size = sum(len(gzip.compress(path.read_bytes(), mtime=0)) for path in loaded)
    assert size < LIMIT, f"{size} bytes"


def test_every_style_sheet_is_linked() -> None:
    """The bundler writes separate style sheets for lazily loaded parts, and does not load them."""
    sheets = {path.name for path in (STATIC_PATH / "assets").glob("*.css")}
    page = (STATIC_PATH / "index.html").read_text()
    assert set(re.findall(r'href="page/assets/([^"]+\.css)"', page)) == sheets


def test_no_page_has_a_script_or_style_inside_or_loads_one_from_elsewhere() -> None:
    for path in STATIC_PATH.rglob("*.html"):
        text = path.read_text()
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text), path
        for tag in re.findall(r"<(?:script|link|img)[^>]*>", text):
            address = re.search(r'(?:src|href)="([^"]+)"', tag)
            assert address is not None, f"{path}: {tag}"
            assert not re.match(r"[a-z]+:|//", address[1]), f"{path}: {tag}"


def test_no_source_makes_html_or_code_of_text() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write"
        r"|createContextualFragment|parseFromString|setHTMLUnsafe|srcdoc|\beval\(|new Function\b"
    )
    storage = re.compile(r"localStorage|sessionStorage|indexedDB|document\.cookie")
    for path in SOURCES:
        text = path.read_text()
        for number, line in enumerate(text.splitlines(), 1):
            assert not forbidden.search(line), f"{path}:{number} turns text into HTML or code"
            assert not storage.search(line), f"{path}:{number} uses storage of the browser"


def test_the_licences_of_all_libraries_are_there() -> None:
    licenses = (STATIC_PATH / "licenses.txt").read_text()
    imported = {
        name
        for path in SOURCES
        for name in re.findall(r"""(?:from|import) "((?:@[\w-]+/)?[a-z][\w-]*)""", path.read_text())
    }
    shipped = imported & set(json.loads((PAGE / "package.json").read_text())["dependencies"])
    assert "preact" in shipped
    for name in shipped:
        assert re.search(rf"^{re.escape(name)} [0-9.]+ \(", licenses, re.MULTILINE), name
    assert "Permission is hereby granted" in licenses
    assert "swagger-ui-dist" in licenses
