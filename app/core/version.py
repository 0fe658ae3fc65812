"""Versions of installed packages, this one among them."""

from importlib.metadata import PackageNotFoundError, version


def version_of(package: str = "leapjson") -> str:
    """Version of ``package``; "none" if it is not installed, as this one in a plain checkout."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
