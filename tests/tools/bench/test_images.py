"""Parts of ``tools.bench.images``, and a short run of it with the demo vision model."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from tools.bench.images import QUICK_SIZES, SIZES, first_cells, main
from tools.bench.pictures import Size, picture, question
from tools.bench.streams import Measurement, gaps_table

SIDE = 24
"""Smallest side, in pixels, to which a model scales pictures."""
MOMENTS = [f"streams, {rounds} of 2 rounds of images" for rounds in range(3)]


@pytest.mark.parametrize("size", SIZES[:2], ids=lambda size: size.name)
def test_a_picture_is_what_its_size_says_and_the_same_every_time(size: Size) -> None:
    file = picture(size, 7)
    image = Image.open(io.BytesIO(file))
    assert (image.width, image.height, image.format) == (size.width, size.height, size.format)
    assert picture(size, 7) == file


def test_pictures_differ_even_where_they_are_scaled_down() -> None:
    seen = {
        np.asarray(Image.open(io.BytesIO(picture(size, number))).resize((SIDE, SIDE))).tobytes()
        for size in QUICK_SIZES
        for number in range(4)
    }
    assert len(seen) == 4 * len(QUICK_SIZES)


def test_words_before_a_picture_stand_before_it() -> None:
    size = QUICK_SIZES[0]
    kinds = [
        [part["type"] for part in question(b"", size, 4, before)["messages"][0]["content"]]
        for before in ("", "Look:")
    ]
    assert kinds == [["image_url", "text"], ["text", "image_url", "text"]]


def test_the_towers_share_is_of_the_time_to_the_first_token() -> None:
    counts = {
        "leapjson_image_prepare_seconds_sum{result=ok}": 0.4,
        "leapjson_image_tower_seconds_total": 0.2,
        "leapjson_images_seen_total": 2.0,
    }
    cells = first_cells([0.3, 0.7], counts)
    assert cells == ("500.0", "700.0", "200.0", "100.0", "20%", "2 of 2", "0", "0")


def test_gaps_are_compared_with_those_of_streams_alone() -> None:
    quiet = [0.010] * 98 + [0.020] * 2
    disturbed = [0.015] * 98 + [0.050] * 2
    last = gaps_table(Measurement(quiet, disturbed, 1.0, []), "disturbed").splitlines()[-1]
    assert [cell.strip() for cell in last.strip("|").split("|")] == [
        "ratio", "", "1.50", "2.50", "",
    ]  # fmt: skip


def test_a_short_run_counts_what_was_seen_and_found(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    by_name = {(row[0], row[2]): row for row in rows if len(row) == 11}
    for size in QUICK_SIZES:
        first, again, behind = (
            by_name[size.name, sent] for sent in ("first", "again", "behind other words")
        )
        assert first[8] == "2 of 2"
        assert float(first[6]) > 0, "encoding takes time"
        assert [again[8], behind[8]] == ["0 of 2"] * 2, "an encoded image is not encoded again"
        assert int(behind[9]) > 0, "its features are found after another prefix"
        assert int(again[10]) > int(first[10]), "with the same prefix, the prompt is cached too"
    assert ["200 stop", "4"] in [row[:2] for row in rows]
    assert ["images seen by the tower", "4"] in rows
    memory = rows[next(at for at, row in enumerate(rows) if row[-1] == "image workers MiB") + 2 :]
    assert [row[0] for row in memory] == ["started", "after these", *MOMENTS]
    for _, server, workers in memory:
        assert int(server) > 50
        assert all(int(each) > 50 for each in workers.split())
        assert len(workers.split()) == 2
