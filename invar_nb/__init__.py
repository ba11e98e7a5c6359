"""Did an edit change my language model, by how much, and how sure can we be?

The names of the package stand in `__init__.pyi`, each beside its module. A module is imported when one of its names is first
used, so `import invar_nb` loads neither torch nor scipy."""
import re as _re
from pathlib import Path as _Path

__version__ = "0.1.0"

_names = _Path(__file__).with_name("__init__.pyi").read_text(encoding="utf-8")
_module_of = {name: module for module, names in _re.findall(r"from \.(\S+) import (\([^)]*\)|.*)", _names)
              for name in _re.findall(r"\w+(?= as )", names)}
__all__ = sorted(_module_of)

def __getattr__(name):
    if name in _module_of:
        from importlib import import_module
        from .foundations.docstrings import complete_docstrings
        module = import_module("." + _module_of[name], __name__)
        complete_docstrings(module.__name__)
        return globals().setdefault(name, getattr(module, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

def __dir__():
    return sorted([*globals(), *__all__])

class _Signatures:
    """What nbdev's documentation needs before it processes a page (settings.ini names it): signatures
    are drawn without running the page's checks, and what follows the lead in the first cell stays."""

    def __init__(self, nb):
        import re
        from execnb.nbio import mk_cell
        shown = {"export", "exports", "exporti", "default_exp"}
        for cell in nb.cells:
            if cell.cell_type == "code" and not shown & cell.directives_.keys() and "show_doc" not in cell.source:
                cell.directives_["eval:"] = ["false"]
        lead = re.match(r"(# [^\n]+\n+(?:> [^\n]+\n?)+)(.*)", nb.cells[0].source, re.S)
        if lead and lead[2].strip():
            nb.cells[0].source = lead[1].strip()
            nb.cells.insert(1, mk_cell(lead[2].strip(), "markdown"))
