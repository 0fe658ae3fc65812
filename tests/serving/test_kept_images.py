"""The cache of prepared images: eviction and keys."""

from __future__ import annotations

import random

import numpy as np

from app.core.images import PreparedImage
from app.serving.images.intake import ImageKey, image_key, kept_images


def image(size: int) -> PreparedImage:
    return PreparedImage(b"", (), {"pixel_values": np.zeros(size, dtype=np.uint8)})


def name(number: int) -> ImageKey:
    return image_key(bytes([number]), "auto", "")


def test_the_last_used_images_are_kept_within_the_limit() -> None:
    dice, kept = random.Random(0), kept_images(10 << 10)
    used: list[tuple[int, PreparedImage]] = []
    for _ in range(3000):
        number = dice.randrange(12)
        found = kept.get(name(number))
        expected = dict(used).get(number)
        assert found is expected
        used = [each for each in used if each[0] != number]
        one = found or image(dice.choice([0, 1000, 4000, 20_000]))
        kept.keep(name(number), one)
        if one.nbytes <= 9 << 10:
            used.append((number, one))
        while sum(each.nbytes + 1024 for _, each in used) > 10 << 10:
            used.pop(0)
        assert kept.nbytes == sum(each.nbytes + 1024 for _, each in used)


def test_the_key_of_an_image_has_its_file_detail_and_scope() -> None:
    names = {
        image_key(data, detail, scope)
        for data in (b"file", "file", b"other", "\ud800")
        for detail in ("auto", "low")
        for scope in ("", "key")
    }
    assert len(names) == 16
    assert image_key(b"file", "auto", "key") in names
