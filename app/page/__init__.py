"""The page that the server shows at ``/``: its sources, and the files they are built into.

`STATIC_PATH` is a folder of files as they are served. How they are made is in docs/page.md.
"""

from pathlib import Path
from typing import Final

STATIC_PATH: Final = Path(__file__).parent / "static"
"""Folder of ``index.html`` (at ``/``) and of all that it loads (under ``/page/``)."""

__all__ = ["STATIC_PATH"]
