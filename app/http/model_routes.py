"""``/v1/models``: the model and its adapters, and the routes that load and unload adapters.

Loading is vLLM's route (``POST /v1/load_lora_adapter``), unloading vLLM's or OpenAI's for
fine-tuned models (``DELETE /v1/models/{model}``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter, Request
from pydantic import Field

from app.core.errors import InvalidRequest
from app.http.endpoint import Api, api_of, endpoint, reading
from app.http.errors import ANTHROPIC_VERSION
from app.http.models import ServedModel
from app.http.openapi import Deleted, Shape, describe
from app.http.requests.unsupported import refused
from app.http.requests.wire import Body, Ignored, Unsupported
from app.serving.adapters import NAME
from app.serving.admission import Ticket

LOAD = "/v1/load_lora_adapter"
UNLOAD = "/v1/unload_lora_adapter"

_ERRORS = (400, 404, 413, 429, 503, 504)

AdapterName = Annotated[str, Field(pattern=NAME)]


class LoadAdapter(Body):
    unsupported: ClassVar[Mapping[str, Unsupported]] = {
        "load_inplace": refused("unload the adapter first", False)
    }

    lora_name: AdapterName
    """Name of the adapter, ``base:lora_name`` in requests."""
    lora_path: Annotated[str, Field(min_length=1, max_length=1024)]
    """A folder inside the one that adapters are loaded from."""


class UnloadAdapter(Body):
    unsupported: ClassVar[Mapping[str, Unsupported]] = {
        "lora_int_id": refused("give lora_name alone")
    }

    lora_name: AdapterName


class ModelObject(Shape):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    """The base model, or where an adapter was loaded from."""
    parent: str | None
    """The base model of an adapter."""
    max_model_len: int
    input_modalities: list[Literal["text", "image"]]
    """Kinds of content that prompts may have."""


class ModelList(Shape):
    object: Literal["list"]
    data: list[ModelObject]


class MessagesModel(Shape):
    """A model in Anthropic's format, for clients that send its header."""

    type: Literal["model"]
    id: str
    display_name: str
    created_at: str
    lifecycle: Literal["active"]
    max_input_tokens: int
    max_tokens: int


class MessagesModels(Shape):
    data: list[MessagesModel]
    first_id: str
    last_id: str
    has_more: Literal[False]


def _described(model: ServedModel, api: Api, headers: Collection[str] = ()) -> dict[str, Any]:
    """The model in the format for a client that sent ``headers``."""
    if ANTHROPIC_VERSION in headers:
        created = datetime.fromtimestamp(model.created, UTC)
        return {
            "type": "model",
            "id": model.id,
            "display_name": model.id,
            "created_at": created.isoformat().replace("+00:00", "Z"),
            "lifecycle": "active",
            "max_input_tokens": api.config.max_model_len,
            "max_tokens": api.config.max_model_len,
        }
    return {
        "id": model.id,
        "object": "model",
        "created": model.created,
        "owned_by": "leapjson",
        "root": model.root,
        "parent": model.parent,
        "max_model_len": api.config.max_model_len,
        "input_modalities": ["text", "image"] if api.config.images else ["text"],
    }


router = APIRouter()


@router.get("/v1/models", openapi_extra=describe("List the models", ModelList, MessagesModels))
async def list_models(request: Request) -> dict[str, Any]:
    api = api_of(request)
    found = [_described(model, api, request.headers) for model in api.models.all()]
    if ANTHROPIC_VERSION not in request.headers:
        return {"object": "list", "data": found}
    ends = {"first_id": found[0]["id"], "last_id": found[-1]["id"]}
    return {"data": found, **ends, "has_more": False}


@router.get(
    "/v1/models/{model:path}",
    openapi_extra=describe("Get a model", ModelObject, MessagesModel, errors=[404]),
)
async def retrieve_model(model: str, request: Request) -> dict[str, Any]:
    api = api_of(request)
    return _described(api.models.find(model), api, request.headers)


@router.delete(
    "/v1/models/{model:path}",
    openapi_extra=describe("Unload an adapter", Deleted, errors=[400, 404]),
)
async def delete_model(model: str, request: Request) -> dict[str, Any]:
    api = api_of(request)
    return await _unload(api.models.find(model), api)


async def _load(call: LoadAdapter, _: Ticket, api: Api) -> dict[str, Any]:
    loaded = await api.service.adapters.load(call.lora_name, call.lora_path)
    return _described(api.models.of(loaded), api)


def _parse_unload(body: Mapping[str, Any], ignored: Ignored, api: Api) -> ServedModel:
    return api.models.find(f"{api.models.base.id}:{UnloadAdapter.read(body, ignored).lora_name}")


async def _unload(model: ServedModel, api: Api) -> dict[str, Any]:
    """Returns when the last answer that uses it has ended."""
    if model.adapter is None:
        raise InvalidRequest(
            f"{model.id!r} is the base model; only adapters can be unloaded", param="model"
        )
    await api.service.adapters.unload(model.adapter)
    return {"id": model.id, "object": "model", "deleted": True}


router.post(
    LOAD,
    openapi_extra=describe("Load an adapter", ModelObject, bodies=[LoadAdapter], errors=_ERRORS),
)(endpoint(LOAD, reading(LoadAdapter), _load))
router.post(
    UNLOAD,
    openapi_extra=describe("Unload an adapter", Deleted, bodies=[UnloadAdapter], errors=_ERRORS),
)(endpoint(UNLOAD, _parse_unload, lambda model, _, api: _unload(model, api)))
