"The guides: a command within a screen, every command run, and what an agent is given to read."

import ast
import json
import re
import shlex
from pathlib import Path

import pages
import pytest
import typer

import invar_nb
from invar_nb.shell.cli import app

ROOT = Path(__file__).parents[1]
GUIDES = sorted((pages.nbs / "guides").glob("*.ipynb"))
ELSEWHERE = {"--engine ray": "on_ray.py"}  # a command of a guide that another test runs
RUN_BY = {
    "guides/gate_a_pull_request": "test_gate.py",
    "guides/which_quant": "test_which_quant.py",
}  # a guide whose commands a test runs in their order, in a clone
SKILL = ROOT / "skills" / "invar-nb" / "SKILL.md"
COMMANDS = typer.main.get_command(app).commands


def commands(text):
    "Lines of shell blocks that call invar-nb, as one line each, without comments."
    blocks = "\n".join(re.findall(r"^```shell\n(.*?)^```", text, re.M | re.S)).replace(
        "\\\n", " "
    )
    return [
        " ".join(line.partition("#")[0].split())
        for line in blocks.splitlines()
        if line.startswith("invar-nb ")
    ]


def unrun(nb):
    "Commands of the prose that no code cell of the page runs."
    words = [
        n.value
        for c in nb.cells
        if c.cell_type == "code"
        for n in ast.walk(ast.parse(c.source))
        if isinstance(n, ast.Constant) and isinstance(n.value, str)
    ]
    ran = {" ".join(word.replace("\\\n", " ").split()) for word in words}
    prose = "\n".join(c.source for c in nb.cells if c.cell_type == "markdown")
    return [
        line
        for line in commands(prose)
        if line not in ran and not any(part in line for part in ELSEWHERE)
    ]


def before_a_command(nb):
    "Words of prose before the first block of the shell, or the first cell that shows a command and its answer."
    prose = ""
    for c in nb.cells:
        if c.cell_type == "markdown":
            prose += c.source + "\n"
        if (
            "```" in prose
            or c.cell_type == "code"
            and re.search(r"^run\(", c.source, re.M)
            and "hide" not in pages.directives(c)
        ):
            break
    return len(re.findall(r"\w[\w.'-]*", prose.partition("```")[0]))


CHAPTERS = {"guides/how_many_windows"}  # of the book: they ask and derive before they do


@pytest.mark.parametrize("path", GUIDES, ids=pages.page_id)
def test_a_guide_comes_to_its_command(path):
    "At most a screen of prose before it; each command is run on the page."
    if pages.page_id(path) not in CHAPTERS:
        assert before_a_command(pages.read(path)) <= 150
    if test := RUN_BY.get(pages.page_id(path)):
        assert path.stem in (ROOT / "tests" / test).read_text()
    else:
        assert not unrun(pages.read(path))


def test_a_command_that_is_not_run_is_found():
    import nbformat

    cell = nbformat.v4.new_markdown_cell(
        "```shell\ninvar-nb compare a \\\n    b   # two\ninvar-nb plan a b\n```"
    )
    assert unrun(
        nbformat.v4.new_notebook(
            cells=[cell, nbformat.v4.new_code_cell("typed('invar-nb compare a b')")]
        )
    ) == ["invar-nb plan a b"]


def test_commands_elsewhere_are_run_there():
    for part, test in ELSEWHERE.items():
        assert all(word in (ROOT / "tests" / test).read_text() for word in part.split())


def test_the_skill_names_what_there_is():
    "Its commands, options, exit codes and fields are those of the package."
    text = SKILL.read_text()
    assert (
        re.match(r"---\nname: invar-nb\ndescription: .{50,1000}\n---\n", text)
        and len(text.splitlines()) <= 70
    )
    for line in re.findall(r"`(invar-nb [^`]+)`", text):
        words = shlex.split(line)[1:]
        known = {name for p in COMMANDS[words[0]].params for name in getattr(p, "opts", ())}
        assert {word for word in words if word.startswith("--")} <= known, line
    assert {
        int(code)
        for cell in re.findall(r"^\| ([\d, ]+) \|", text, re.M)
        for code in cell.split(",")
    } == {0, 1, 2, 3, 4, 5, 130}
    assert all(
        claim in text for claim in ("equivalent", "improved", "regressed", "inconclusive")
    )


def test_the_api_page_shows_every_public_name():
    cells = json.loads((pages.nbs / "reference" / "python_api.ipynb").read_text())["cells"]
    text = "\n".join("".join(c["source"]) for c in cells)
    shown = set(re.findall(r"show_doc\(invar_nb\.(\w+)", text)) | set(
        re.findall(r"`([A-Z]+)`", text)
    )
    assert shown == set(invar_nb.__all__)


def test_the_boxes_of_the_flow_chart_lead_to_pages():
    html = "".join(
        "".join(o["data"].get("text/html", ""))
        for c in json.loads((pages.nbs / "which-method.ipynb").read_text())["cells"]
        for o in c.get("outputs", ())
    )
    targets = re.findall(r'<a href="([^"]+)"', html)
    assert len(targets) == 17 and html.count("<a ") == html.count("</a>")
    assert not [t for t in targets if not (pages.nbs / t).exists()]


# --- what pages say, beside what is so ------------------------------------------------------
def page_text(name):
    "Sources and printed outputs of a page."
    nb = pages.read(pages.nbs / f"{name}.ipynb")
    said = [o["text"] for c in nb.cells for o in c.get("outputs", []) if "text" in o]
    return "\n".join([*(c.source for c in nb.cells), *said])


def test_a_suffix_of_a_file_is_code():
    "As prose the site would print `-2` with a minus, and no folder is called so."
    bare = re.compile(r"(?<![`\w.=-])-\d")
    for name, command in COMMANDS.items():
        with typer.Context(command, info_name=name) as context:
            rows = [row for rows in command.panels(context, True).values() for row in rows]
        found = [typed for typed, meaning in rows if bare.search(" ".join(meaning.split()))]
        assert not found, (name, found)


def test_the_question_about_seven_files_names_seven():
    blocks = page_text("guides/which_quant").split("```shell\n")[1:]
    files = blocks[0].splitlines()[0]
    (block,) = [text for text in blocks if "F16.log" in text]
    logs = block.splitlines()[0]
    types = set(json.loads(invar_nb.page_data("real_study.json").read_text())["models"])
    assert set(re.findall(r"(\w+)\.log", logs)) == types
    assert "F16.gguf Q*.gguf" in files and all(t == "F16" or t[0] == "Q" for t in types)


def test_the_example_row_has_the_fields_of_its_table():
    text = page_text("reference/files_and_exit_codes")
    table = text.partition("| field of a row |")[2].partition("\n\n")[0]
    fields = "\n".join(re.findall(r"^\| ([^|]*) \|", table, re.M))
    named = re.findall(r"`([\w.]+)`", fields)
    printed = re.findall(r"^([a-z][\w.]*)  +\S", text, re.M)
    assert len(named) > 10
    missing = [n for n in named if not any(p.split(".")[0] == n or p == n for p in printed)]
    assert not missing


def test_a_format_that_a_reader_names_is_that_of_its_command():
    from invar_nb.readers.recognise import READERS

    for example in (reader.example for reader in READERS if reader.example):
        if re.search(r"\bas Parquet$", example.you_have):
            assert ".parquet" in example.command, example.you_have


def test_the_demo_is_said_to_fetch_what_it_fetches():
    install, home = page_text("install"), page_text("index")
    for text in (install, home):
        (line,) = [line for line in text.splitlines() if re.search("downloads PyTorch", line)]
        assert line.index("downloads PyTorch") < line.index("offline")


def test_exit_code_0_is_not_called_an_answer():
    "An inconclusive comparison exits with 0, too."
    drawn = (pages.nbs / "images" / "dataflow.svg").read_text("utf-8")
    assert "0: no loss shown" in drawn and "with an answer" not in drawn


def test_what_makes_a_job_fail_is_in_the_column_of_jobs():
    table = page_text("guides/gate_a_pull_request").partition("| result | job |")[2]
    rows = [row.split("|")[1:4] for row in table.partition("\n\n")[0].splitlines()[2:]]
    assert len(rows) == 8
    assert not [row for row in rows if re.search("fail|pass", row[2])]


def test_a_line_that_a_guide_explains_is_printed():
    "The last line of a plan was cut off above the sentence about it."
    said = page_text("guides/how_many_windows")
    plans = re.findall(r"^\$ invar-nb plan (.*?)^\.\.\.$", said, re.M | re.S)
    first, (questions,) = plans[0], [plan for plan in plans if "old.csv" in plan]
    assert "**The last line** says how often" in said
    assert first.splitlines()[-1].startswith("80 of 100 pilots like this one")
    assert "pilot already decides" in first and "true change is the pilot's" not in first
    assert "true change is the pilot's" in questions


FEW_DOCUMENTS = (
    "comparison/00_units",
    "statistics/01_jackknife",
    "which-method",
    "coverage",
    "reference/promises",
)


@pytest.mark.parametrize("name", FEW_DOCUMENTS)
def test_few_documents_change_the_subject_of_a_claim(name):
    "Below ten effective documents there is a claim about other passages of these documents."
    texts = [c.source for c in pages.read(pages.nbs / f"{name}.ipynb").cells]
    said = [t for t in texts if re.search(r"(?i)(fewer than|below) (10|ten) effective doc", t)]
    assert said, "it does not say what happens below ten documents"
    for text in said:
        assert re.search(r"other\*? documents", text)
        assert "other passages of" in text


def chapter_facts(name):
    "Exercises of a chapter, and its minutes as *For teachers* estimates them."
    cells = pages.read(pages.nbs / name).cells
    text = "\n\n".join(c.source for c in cells if c.cell_type == "markdown")
    exercises = re.split(r"\n## ", text.partition("\n## Exercises")[2])[0]
    prose = re.split(r"\n## (?:Exercises|Limits|Implementation)", text)[0]
    words = re.findall(r"\w+", re.sub(r"\$\$.*?\$\$", "", prose, flags=re.S))
    count = len(re.findall(r"^### \d+\.", exercises, re.M))
    return count, 5 * round((len(words) / 100 + 6 * count) / 5)


def test_teachers_are_told_what_is_there():
    cells = pages.read(pages.nbs / "reference/for_teachers.ipynb").cells
    text = "\n\n".join(c.source for c in cells)
    rows = re.findall(
        r"^\| \d+ \| \[[^\]]+\]\(\.\./([^)#]+)\) .*\| \[(\d+)\]\(\.\./([^)#]+)#exercises\)"
        r" \| (\d+) \|$",
        text,
        re.M,
    )
    book = (ROOT / "_quarto.yml").read_text("utf-8").partition('section: "The book"')[2]
    chapters = re.findall(r"- (\S+\.ipynb)$", book.partition("- section:")[0], re.M)
    assert [row[0] for row in rows] == [row[2] for row in rows] == chapters
    for name, count, _, minutes in rows:
        exercises, estimate = chapter_facts(name)
        assert int(count) == exercises, name
        assert abs(int(minutes) - estimate) <= 5, f"{name}: about {estimate} minutes"
    exercises, minutes = sum(int(r[1]) for r in rows), sum(int(r[3]) for r in rows)
    assert f"That is {exercises} exercises and {minutes // 60} hours" in text
    tasks = pages.read(pages.nbs / "reference/known_answers.ipynb").cells[1].source
    assert f": {len(re.findall(r'^[|] [0-9]+ [|]', tasks, re.M))} tasks, each" in text
    headings = {
        re.sub(r"[^\w]+", "-", h.lower()).strip("-")
        for page in ("tutorials/touch", "reference/known_answers", "guides/report_a_change")
        for c in pages.read(pages.nbs / f"{page}.ipynb").cells
        if c.cell_type == "markdown"
        for h in re.findall(r"^##+ (.+)$", c.source, re.M)
    } | {"exercises", "by-hand"}
    nothing = [a for a in re.findall(r"ipynb#([\w-]+)", text) if a not in headings]
    assert not nothing, nothing
