from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.trace import SpanKind, StatusCode

import app.server.composition
from app.core.errors import LeapjsonError
from app.server.composition import assemble
from app.server.settings import Settings
from app.telemetry import collector
from app.telemetry.collector import open_traces
from app.telemetry.exchange import Exchange
from app.telemetry.logs import JsonFormatter
from app.telemetry.metrics import Metrics
from app.telemetry.traces import Traces
from tests.http.harness import listening
from tests.server.backend import backend, started
from tests.servers import Forked
from tests.serving.fakes import FakeEngine

ROOT = Path(__file__).parents[2]
CHAT = "/v1/chat/completions"
BODY = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT", "TRACES_ENDPOINT", "PROTOCOL", "TRACES_PROTOCOL"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)
    for name in ("OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_TRACES_SAMPLER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """The exporter that receives the spans of servers assembled in the test."""
    exporter = InMemorySpanExporter()

    def in_memory(endpoint: str | None, *, model: str) -> Traces:
        return Traces(SimpleSpanProcessor(exporter), model=model)

    monkeypatch.setattr(app.server.composition, "open_traces", in_memory)
    return exporter


def client_of(engine: FakeEngine) -> AbstractAsyncContextManager[httpx.AsyncClient]:
    settings = Settings(compile_workers=1, served_model_name="demo")
    return started(assemble(settings, backend(engine), Metrics()))


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    assert span.attributes is not None
    return span.attributes


async def test_a_request_is_a_server_span_under_the_clients_with_its_phases_as_children(
    exporter: InMemorySpanExporter,
) -> None:
    body = BODY | {"response_format": {"type": "regex", "pattern": "x+"}, "stream": True}
    async with client_of(FakeEngine(lambda request: [b"x"] * 3)) as client:
        await client.post(CHAT, json=body, headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
    spans = by_name(exporter)
    server = spans[f"POST {CHAT}"]
    assert set(spans) == {server.name, "compile", "queue", "prefill", "decode"}
    assert server.kind is SpanKind.SERVER
    assert server.parent is not None
    assert f"{server.parent.span_id:016x}" == PARENT
    assert {f"{span.context.trace_id:032x}" for span in spans.values()} == {TRACE}
    for name in ("compile", "queue", "prefill", "decode"):
        parent = spans[name].parent
        assert parent is not None
        assert parent.span_id == server.context.span_id
    times = [(span.start_time or 0, span.end_time or 0) for span in spans.values()]
    assert all(start <= end for start, end in times)
    order = [spans[name] for name in ("compile", "queue", "prefill", "decode")]
    assert all((a.end_time or 0) <= (b.start_time or 0) for a, b in pairwise(order))
    assert (order[-1].end_time or 0) <= (server.end_time or 0) + 5_000_000


async def test_what_was_generated_is_told_in_the_names_of_the_conventions(
    exporter: InMemorySpanExporter,
) -> None:
    async with client_of(FakeEngine(lambda request: [b"x"] * 3)) as client:
        response = await client.post(CHAT, json=BODY | {"stream": True})
    (server,) = (span for span in exporter.get_finished_spans() if span.kind is SpanKind.SERVER)
    said = attributes(server)
    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI")}
    assert {name for name in said if name.startswith("gen_ai.")} <= known
    assert said["gen_ai.response.time_to_first_chunk"] > 0
    request_id = response.headers["x-request-id"].removeprefix("req_")
    expected = {
        "http.request.method": "POST",
        "http.route": CHAT,
        "http.response.status_code": 200,
        "leapjson.request.id": request_id,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "leapjson",
        "gen_ai.request.model": "demo",
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 2,
        "gen_ai.usage.output_tokens": 3,
        "leapjson.usage.leapt_tokens": 2,
        "leapjson.usage.drafted_tokens": 0,
        "leapjson.forward_passes": 3,
    }
    assert {name: said[name] for name in expected} == expected


async def test_refusals_have_a_span_that_names_the_code_and_the_field_and_quotes_nothing(
    exporter: InMemorySpanExporter,
) -> None:
    async with client_of(FakeEngine()) as client:
        await client.post(CHAT, json=BODY | {"response_format": {"type": "sEcReT"}})
        await client.get("/sEcReT")
        await client.get("/health")
    refused, unknown = exporter.get_finished_spans()
    said = attributes(refused)
    assert (said["http.response.status_code"], said["error.type"]) == (400, "invalid_request")
    assert said["leapjson.param"] == "response_format"
    assert refused.status.status_code is StatusCode.UNSET  # the client's fault, not the server's
    assert unknown.name == "GET other"
    assert "sEcReT" not in refused.to_json() + unknown.to_json()


async def test_an_error_of_the_server_marks_its_span(exporter: InMemorySpanExporter) -> None:
    engine = FakeEngine()
    engine.crash = RuntimeError("why")
    async with client_of(engine) as client:
        assert (await client.post(CHAT, json=BODY)).status_code == 503
    server = by_name(exporter)[f"POST {CHAT}"]
    assert server.status.status_code is StatusCode.ERROR
    assert attributes(server)["error.type"] == "engine_died"


async def test_a_client_that_does_not_sample_is_obeyed(exporter: InMemorySpanExporter) -> None:
    async with client_of(FakeEngine()) as client:
        await client.post(CHAT, json=BODY, headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
    assert exporter.get_finished_spans() == ()


async def test_log_lines_carry_the_trace(
    exporter: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.setFormatter(JsonFormatter())
    engine = FakeEngine()
    engine.refusal = lambda request: RuntimeError("why")
    with caplog.at_level("INFO"):
        async with client_of(engine) as client:
            await client.post(CHAT, json=BODY, headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
    entries = [json.loads(line) for line in caplog.text.splitlines()]
    (line,) = (each for each in entries if each["message"] == "request")
    (span,) = (each for each in exporter.get_finished_spans() if each.kind is SpanKind.SERVER)
    assert (line["trace_id"], line["span_id"]) == (TRACE, f"{span.context.span_id:016x}")


class _Collector(BaseHTTPRequestHandler):
    """An OTLP/HTTP collector that keeps the requests to ``/v1/traces``."""

    received: ClassVar[list[ExportTraceServiceRequest]]
    release: ClassVar[threading.Event]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.release.wait(300)
        if self.path == "/v1/traces":
            self.received.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def stub() -> Iterator[tuple[str, type[_Collector]]]:
    """The base URL of a collector that answers once ``release`` is set, and its handler."""

    class Stub(_Collector):
        received: ClassVar[list[ExportTraceServiceRequest]] = []
        release: ClassVar[threading.Event] = threading.Event()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", Stub
    Stub.release.set()
    server.shutdown()
    thread.join()
    server.server_close()


async def test_spans_get_to_a_collector_which_no_request_waits_for(
    stub: tuple[str, type[_Collector]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, handler = stub
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    settings = Settings(compile_workers=1, otlp_endpoint=url, served_model_name="demo")
    assembly = assemble(settings, backend(FakeEngine()), Metrics())
    async with (
        listening(assembly.app) as server,
        httpx.AsyncClient(base_url=server, timeout=300) as client,
    ):
        for _ in range(3):  # the collector does not answer yet
            assert (await client.post(CHAT, json=BODY, timeout=300)).status_code == 200
        assert handler.received == []
        handler.release.set()
    # The server has shut down, and has sent the remaining spans.
    resources = [each for request in handler.received for each in request.resource_spans]
    said = {each.key: each.value.string_value for each in resources[0].resource.attributes}
    assert said["service.name"] == "leapjson"
    assert said["deployment.environment.name"] == "test"
    names = [s.name for each in resources for scope in each.scope_spans for s in scope.spans]
    assert names.count(f"POST {CHAT}") == 3
    assert names.count("decode") == 3


async def test_a_server_ends_though_its_collector_never_answers(
    stub: tuple[str, type[_Collector]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = stub
    monkeypatch.setattr("app.telemetry.traces.CLOSE_SECONDS", 0.05)
    traces = open_traces(url, model="demo")
    assert traces is not None
    left_over = Exchange({"headers": []}, "GET", "other", sent_status=404)
    traces.finish(traces.start(left_over), left_over)
    async with asyncio.timeout(300):
        await traces.close()


@pytest.mark.parametrize(
    ("variables", "on"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9/x"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h", "OTEL_TRACES_EXPORTER": "zipkin"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, False),
    ],
)
async def test_traces_are_on_where_the_standard_variables_say_so(
    variables: Mapping[str, str], on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    traces = open_traces(None, model="demo")
    assert (traces is not None) == on
    if traces is not None:
        await traces.close()


def test_without_the_packages_an_endpoint_of_the_settings_is_refused_and_variables_are_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    with pytest.raises(LeapjsonError, match=r"leapjson\[otel\]"):
        open_traces("http://127.0.0.1:9", model="demo")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    with caplog.at_level("WARNING", collector.__name__):
        assert open_traces(None, model="demo") is None
    assert "leapjson[otel]" in caplog.text


def test_without_an_endpoint_the_sdk_is_not_even_imported() -> None:
    program = (
        "import sys\n"
        "from app.server.settings import Settings\nfrom app.server.composition import assemble\n"
        "from app.telemetry.metrics import Metrics\n"
        "from tests.server.backend import backend\nfrom tests.serving.fakes import FakeEngine\n"
        "assemble(Settings(), backend(FakeEngine()), Metrics())\n"
        "loaded = [name for name in sys.modules if name.startswith('opentelemetry.sdk')]\n"
        "sys.exit(repr(loaded) if loaded else 0)\n"
    )
    assert Forked(exec, program, {}).wait() == 0
