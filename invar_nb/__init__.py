"""Did an edit change my language model? By how much, and how sure can I be?

The public names are listed in `__init__.pyi`, each with its module. A module is imported when
one of its names is first used, so `import invar_nb` loads neither torch nor scipy."""

import re as _re
from pathlib import Path as _Path

__version__ = "0.1.0"

# The lines read `from .arms.pair import (pair as pair, ...)`.
_names = _Path(__file__).with_name("__init__.pyi").read_text(encoding="utf-8")
_module_of = {
    name: module
    for module, names in _re.findall(r"from \.(\S+) import (\([^)]*\)|.*)", _names)
    for name in _re.findall(r"\w+(?= as )", names)
}
__all__ = sorted(_module_of)


def __getattr__(name):
    "Import a public name from its module when it is first used; Python calls this."
    if name in _module_of:
        from importlib import import_module

        module = import_module("." + _module_of[name], __name__)
        return globals().setdefault(name, getattr(module, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    "The names that `dir` and completion show, those not imported yet included."
    return sorted({*globals(), *__all__})


from .foundations.upward import provide as _provide  # noqa: E402 (it passes on __getattr__)

_provide(__getattr__)
