"""What requests call a model: the base model by its name, an adapter as ``base:adapter``."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from app.core.errors import UnknownModel
from app.core.request import Adapter
from app.http.config import ApiConfig
from app.serving.adapters import Adapters


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A name that requests may give, and what is behind it."""

    id: str
    fingerprint: str
    """``system_fingerprint``: of an adapter it follows from its weights, too."""
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
        """The base model first."""
        return [self.base, *map(self.of, self._adapters.loaded)]

    def find(self, asked: str | None) -> ServedModel:
        """Raises ``UnknownModel``, which names those that there are; None asks for the base."""
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
        base = self.base
        both = f"{base.fingerprint} {adapter.identity}".encode()
        return ServedModel(
            id=f"{base.id}:{adapter.name}",
            fingerprint="fp_" + hashlib.blake2b(both, digest_size=5).hexdigest(),
            created=adapter.created,
            root=adapter.root,
            parent=base.id,
            adapter=adapter,
        )
