"""The page that the server shows at ``/``: files as they are served, built from ``page/``.

Their sources and how they are built: docs/page.md.
"""

from pathlib import Path
from typing import Final

STATIC_PATH: Final = Path(__file__).parent / "static"
"""Folder of ``index.html`` (at ``/``) and of all that it loads (under ``/page/``)."""
