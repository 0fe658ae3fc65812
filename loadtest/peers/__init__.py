"""Other servers, to be measured beside ours: each in an environment of its own, from the registry.

    from loadtest.peers import PEERS
    with PEERS["vllm"].running(model, log=Path("vllm.log")) as url: ...

``python -m loadtest.peers install all`` makes the environments below the ignored folder ``.peers``,
``python -m loadtest.peers train`` the model that all of them serve.
"""

from loadtest.installing import NotInstalled
from loadtest.peers.catalogue import PEERS
from loadtest.peers.peer import MODEL_NAME, Peer

__all__ = ["MODEL_NAME", "PEERS", "NotInstalled", "Peer"]
