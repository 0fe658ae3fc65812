"""A character sheet from an image: the served vision demo, with leaps and without."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from app.server.backend import load_backend
from app.server.composition import assemble
from app.server.settings import Settings
from app.telemetry.metrics import Metrics
from tests.server.backend import started

_PICTURE = Path(__file__).resolve().parents[2] / "docs/images/card.png"
_TEXT = {"type": "string", "maxLength": 20}


def _of(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_SHEET = _of(name=_TEXT, house=_TEXT, level={"type": "integer"}, wand=_of(wood=_TEXT, core=_TEXT))


_SHOWN = {
    "name": "George Skouyea",
    "house": "Queajei",
    "level": 40,
    "wand": {"wood": "beech", "core": "wolf"},
}


@pytest.mark.parametrize("leap", [True, False], ids=["leap", "no leap"])
async def test_a_character_sheet_is_read_from_a_picture(leap: bool) -> None:
    settings = Settings(
        model="demo-vision", leap=leap, dtype="float32", image_workers=1, compile_workers=1
    )
    metrics = Metrics()
    backend = load_backend(settings, metrics)
    url = f"data:image/png;base64,{base64.b64encode(_PICTURE.read_bytes()).decode()}"
    body = {
        "model": "leapjson-demo-vision",
        "temperature": 0,
        "messages": [{"role": "user", "content": [
            {"type": "text", "text": "Read this card."},
            {"type": "image_url", "image_url": {"url": url}},
        ]}],
        "response_format": {
            "type": "json_schema", "json_schema": {"name": "sheet", "schema": _SHEET}
        },
    }  # fmt: skip
    try:
        assembly = assemble(settings, backend, metrics)
        async with started(assembly) as client:
            response = await client.post("/v1/chat/completions", json=body)
    finally:
        backend.close()
    assert response.status_code == 200, response.text
    answer = response.json()
    assert json.loads(answer["choices"][0]["message"]["content"]) == _SHOWN
    details = answer["usage"]["completion_tokens_details"]
    assert (details["leapt_tokens"] > 0) is leap
