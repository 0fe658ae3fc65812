"""Model names in requests: the base model's own name, ``base:adapter`` for an adapter."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from app.core.errors import UnknownModel
from app.core.request import Adapter
from app.http.config import ApiConfig
from app.serving.adapters import Adapters


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that requests may name: the base model or an adapter."""

    id: str
    fingerprint: str
    """``system_fingerprint``; for an adapter it also depends on the adapter's weights."""
    created: int
    root: str
    """The base model's name, or where the adapter was loaded from."""
    parent: str | None = None
    """The base model, of an adapter."""
    adapter: Adapter | None = None

    @staticmethod
    def base(config: ApiConfig) -> ServedModel:
        name = config.served_model
        return ServedModel(name, config.fingerprint, config.created, root=name)


class ServedModels:
    """The base model and the adapters that are loaded."""

    def __init__(self, config: ApiConfig, adapters: Adapters) -> None:
        self._adapters = adapters
        self.base = ServedModel.base(config)

    def all(self) -> list[ServedModel]:
        """All models, the base model first."""
        return [self.base, *map(self.of, self._adapters.loaded)]

    def find(self, asked: str | None) -> ServedModel:
        """The model ``asked``; None: the base. Raises ``UnknownModel``, which lists the names."""
        base = self.base
        if asked is None or asked == base.id:
            return base
        if asked.startswith(f"{base.id}:"):
            adapter = self._adapters.find(asked.removeprefix(f"{base.id}:"))
            if adapter is not None:
                return self.of(adapter)
        names = ", ".join(repr(each.id) for each in self.all())
        raise UnknownModel(
            f"the model {asked!r} does not exist; this server serves {names}", param="model"
        )

    def of(self, adapter: Adapter) -> ServedModel:
        both = f"{self.base.fingerprint} {adapter.identity}".encode()
        return ServedModel(
            id=f"{self.base.id}:{adapter.name}",
            fingerprint="fp_" + hashlib.blake2b(both, digest_size=5).hexdigest(),
            created=adapter.created,
            root=adapter.root,
            parent=self.base.id,
            adapter=adapter,
        )
