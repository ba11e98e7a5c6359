"""A page that has left its repository: downloaded from the site, or opened in Colab.

The first cell installs what it uses; links lead to the site, since nothing lies beside it."""

import copy
import posixpath
import re
from typing import NamedTuple

INSTALL = """\
# Only in copies of this page: installs what it uses, where that is missing.
import importlib.util

if importlib.util.find_spec("invar_nb") is None:
    %pip install -q "invar_nb[{extras}] @ git+{repository}@{branch}"
"""
# What scores models; a page that does none of it needs no PyTorch.
SCORES_MODELS = re.compile(
    r"\b(torch|transformers|demo_model|load_model|quantised_copy|score_texts)\b"
    r"|invar-nb (score|answer|demo)\b"
)
PICTURES = (".svg", ".png", ".jpg")
RELATIVE_LINK = re.compile(r"\]\((?!https?:|#|/)([\w./-]+)(#[^)]*)?\)")


class Home(NamedTuple):
    "Where the links of a page lead once it is copied out of the repository."

    site: str  # with a slash at its end
    repository: str
    branch: str


def standalone(notebook, page, address, home):
    """A copy of a notebook that runs in an empty folder.

    Its first cell installs what the page needs. `page` is its path below nbs/; `address(page)`
    is its place on the site, without suffix.
    """
    alone = copy.deepcopy(notebook)
    code = "\n".join(
        "".join(cell["source"]) for cell in alone["cells"] if cell["cell_type"] == "code"
    )
    extras = "pages,hf,gguf" if SCORES_MODELS.search(code) else "pages"
    folder = posixpath.dirname(page)

    def absolute(match):
        "A relative link as one to the site, or to the repository for files that are no pages."
        target = posixpath.normpath(posixpath.join(folder, match[1]))
        if target.endswith(".ipynb"):
            return f"]({home.site}{address(target)}.html{match[2] or ''})"
        in_repository = posixpath.normpath(posixpath.join("nbs", target))
        # A picture is shown from its bytes; of other files the repository's page is read.
        form = "raw" if target.endswith(PICTURES) else "blob"
        return f"]({home.repository}/{form}/{home.branch}/{in_repository}{match[2] or ''})"

    for cell in alone["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = RELATIVE_LINK.sub(absolute, "".join(cell["source"]))
    install = INSTALL.format(extras=extras, repository=home.repository, branch=home.branch)
    alone["cells"].insert(
        0,
        {
            "cell_type": "code",
            "id": "install",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": install,
        },
    )
    return alone
