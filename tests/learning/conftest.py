"""The same home and wrapper as in the tests of wrapping."""

from tests.wrapping.conftest import _no_settings_from_outside, home, wrap

__all__ = ["_no_settings_from_outside", "home", "wrap"]
