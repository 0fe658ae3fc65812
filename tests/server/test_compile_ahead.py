"""The loops that an image gets while it is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.core.kernels import PROCESSORS, runs_here
from app.server import compile_ahead


@pytest.mark.wide
@pytest.mark.skipif(not runs_here("avx2"), reason="needs a processor with AVX2")
def test_a_build_compiles_all_loops_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = next(each for each in PROCESSORS if runs_here(each))
    monkeypatch.setattr(compile_ahead, "PROCESSORS", {kind: PROCESSORS[kind]})
    monkeypatch.setattr(compile_ahead, "SHIPPED", tmp_path)

    def loops() -> set[Path]:
        return {*tmp_path.rglob("*.nbc")}

    compile_ahead.main("demo")
    built = loops()
    assert any("quantized_products" in str(each) for each in built)
    compile_ahead.main("demo")
    assert loops() == built
