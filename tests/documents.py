"""What a report shows, of a document as plain values: tests change one of these and look at what is said."""

import functools
from collections.abc import Callable

from invar_nb.report import answer, build, exit_code, page, pictures, tables, wording
from invar_nb.report.document import Document, as_document


def of_plain(function: Callable) -> Callable:
    "The function for a document as plain values, or as it is."

    @functools.wraps(function)
    def call(document: dict | Document, *values: object, **named: object) -> object:
        if isinstance(document, dict):
            document = as_document(document)
        return function(document, *values, **named)

    return call


summary = of_plain(answer.summary)
summary_markdown = of_plain(answer.summary_markdown)
badge = of_plain(answer.badge)
rule_line = of_plain(wording.rule_line)
own_metrics = of_plain(wording.own_metrics)
render_html = of_plain(page.render_html)
render_markdown = of_plain(page.render_markdown)
answer_table = of_plain(tables.compact_table)


def size_picture(d: dict, i: int) -> pictures.Picture | None:
    "Change against size, of one of the rankings."
    document = as_document(d)
    return pictures.size_picture(document, document.rankings[i])


def document_of(study: object) -> dict:
    "The document of a study as plain values."
    return build.document_of(study).to_dict()


def exit_of(study: object) -> dict:
    "Exit code, rule and reason of a study, as plain values."
    end = exit_code.exit_of(study)
    return {"code": end.code, "rule": end.rule, "because": end.because}
