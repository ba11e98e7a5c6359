"The README: short, its commands run as they stand, its picture that of the study of a real model."

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from commands import main

import invar_nb
from invar_nb import page_data

ROOT, DATA = Path(__file__).parents[1], Path(__file__).parent / "data"
README = (ROOT / "README.md").read_text()
MODELS = Path(invar_nb.__file__).parent / "demo_models"
COMMANDS = [
    line.partition("#")[0].strip() for line in re.findall(r"^invar-nb .*$", README, re.M)
]


def test_it_is_short_and_comes_to_a_command_soon():
    text = re.sub(r"\]\([^)]*\)|<!--.*?-->|```\w*", " ", README)
    words = lambda part: len(re.findall(r"\w[\w.'-]*", part))
    assert words(text) <= 350 and words(text.partition("git clone")[0]) <= 60
    assert len(COMMANDS) == 5, COMMANDS
    assert (
        len(re.findall(r"^# .+\ninvar-nb .*$", README, re.M)) == 5
    )  # each says what it is for
    made = [line.split("#")[0].strip() for line in re.findall(r"^make .*$", README, re.M)]
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)[1].split()
    assert made == ["make demo", "make test"] and {"demo", "test"} <= {*targets}
    demo = re.search(r"^demo:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)[1]
    assert (
        "invar-nb is $(VENV)/bin/invar-nb" in demo.splitlines()[-1]
        and "downloads PyTorch once" in README
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs_as_it_stands(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if "lm_eval" in command:
        for name, there in (("base", "base"), ("tuned", "int4")):
            for file in (page_data("lm_eval") / name).iterdir():
                if file.name.startswith("results") or "choices" in file.name:
                    Path("lm_eval", there).mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, Path("lm_eval", there))
    else:
        pytest.importorskip("torch")
        Path("wiki.jsonl").write_text(
            "".join(
                json.dumps(
                    {"text": f"Sentence {i} of the text is read, and then number {i * i}."}
                )
                + "\n"
                for i in range(380)
            )
        )
        for there in ("base", "int4"):
            shutil.copytree(MODELS / ("base" if there == "base" else "tuned"), there)
    if ".gguf" in command:
        pytest.importorskip("gguf")
        from small_models import llama, merged_tokenizer, save, write_gguf

        words = merged_tokenizer()
        save(llama(len(words), tied=True), Path("m"), words)
        merges = [
            " ".join(m)
            for m in json.loads(Path("m", "tokenizer.json").read_text())["model"]["merges"]
        ]
        for name, kind in (("F16", "F16"), ("Q8_0", "Q8_0"), ("Q4_K_M", "Q4_0")):
            write_gguf(Path("m"), Path(f"{name}.gguf"), kind, merges)
    if "base.parquet" in command:
        assert main(["score", "base/", "--text", "wiki.jsonl", "--out", "base.parquet"]) == 0
    capsys.readouterr()
    code = main(shlex.split(command)[1:])
    said = capsys.readouterr()
    assert code in (0, 1), said.err
    assert said.out.strip() and "defect" not in said.err


def test_its_python_runs_as_pasted(capsys):
    code, printed = re.search(
        r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.S
    ).groups()
    exec(code, {})
    assert capsys.readouterr().out == printed


def test_the_picture_shows_what_the_evidence_says():
    picture = (ROOT / "nbs" / "images" / "verdicts.svg").read_text()
    for change in (
        "+0.32 (-0.01 to 0.64)",
        "+1.40 (0.43 to 2.37)",
        "+9.7 (5.8 to 14.5)",
        "+35.5 (29.6 to 41.7)",
    ):
        assert change in picture, change
    assert "prefers-color-scheme:dark" in picture


def test_the_book_is_one_click_from_the_readme_in_the_order_of_its_chapters():
    import json

    (link,) = re.findall(r"\[Teach with it\]\(nbs/([\w-]+\.ipynb)#teach-with-it\)", README)
    cells = json.loads((ROOT / "nbs" / link).read_text())["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    (section,) = [text for text in texts if text.startswith("## Teach with it\n")]
    listed = re.findall(r"^\d+\. \[[^\]]*\]\(([^)]*)\)", section, re.M)
    book = (ROOT / "_quarto.yml").read_text().partition('section: "The book"')[2]
    chapters = re.findall(r"^ +- (\S+\.ipynb)$", book.partition("- section:")[0], re.M)
    assert listed == chapters and len(chapters) == 10
    assert "(reference/known_answers.ipynb)" in section and "(images/sheet.svg)" in section
