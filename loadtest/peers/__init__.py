"""Other servers to compare with ours, each installed from the registry in its own environment.

    from loadtest.peers import PEERS
    with PEERS["vllm"].running(model, log=Path("vllm.log")) as url: ...

``python -m loadtest.peers install all`` makes the environments in the ignored folder ``.peers``,
``python -m loadtest.peers train`` makes the model that all of them serve.
"""

from loadtest.installing import NotInstalled
from loadtest.peers.catalogue import PEERS
from loadtest.peers.peer import MODEL_NAME, Peer

__all__ = ["MODEL_NAME", "PEERS", "NotInstalled", "Peer"]
