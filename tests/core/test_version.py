from __future__ import annotations

from importlib.metadata import version

from app.core.version import version_of


def test_a_package_that_is_not_installed_has_no_version() -> None:
    assert version_of("torch") == version("torch")
    assert version_of("a-package-that-nobody-has-installed") == "none"
