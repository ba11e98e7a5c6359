"""A comparison as a test: assert_not_worse, and a fixture of pytest with a baseline that one option renews."""
from .gate import BaselineFile, assert_not_worse

__all__ = ["BaselineFile", "assert_not_worse"]
