"""Files and batches, from the upload to the results."""

from __future__ import annotations

import json
import time

from features import MODEL, REVIEW_TEXT, Review
from shared import check, client

LIVE = ("validating", "in_progress", "finalizing")


@check("batches", "files.create, batches.create and retrieve, files.content")
def _() -> None:
    schema = {**Review.model_json_schema(), "additionalProperties": False}
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": REVIEW_TEXT}],
        "temperature": 0,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "review", "schema": schema, "strict": True},
        },
    }
    url = "/v1/chat/completions"
    lines = [{"custom_id": f"r{i}", "method": "POST", "url": url, "body": body} for i in range(3)]
    data = "\n".join(map(json.dumps, lines)).encode()
    file = client.files.create(file=("in.jsonl", data), purpose="batch")
    batch = client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    while batch.status in LIVE:
        time.sleep(0.1)
        batch = client.batches.retrieve(batch.id)
    assert batch.status == "completed", batch
    assert batch.output_file_id is not None
    answers = client.files.content(batch.output_file_id).text.splitlines()
    assert [json.loads(each)["custom_id"] for each in answers] == ["r0", "r1", "r2"]
    for each in answers:
        message = json.loads(each)["response"]["body"]["choices"][0]["message"]
        Review.model_validate_json(message["content"])
    assert batch.id in [each.id for each in client.batches.list()]
    assert client.files.delete(file.id).deleted
