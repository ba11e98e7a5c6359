"The commands of the guide which_quant, on small files of the names that it uses."

import json
import re
import shlex
import shutil
from pathlib import Path

import pages
import pytest
from commands import main
from test_guides import commands

DATA = Path(__file__).parent / "data" / "llama_cpp"
GUIDE = pages.read(pages.nbs / "guides" / "which_quant.ipynb")
PROSE = "\n".join(cell.source for cell in GUIDE.cells if cell.cell_type == "markdown")
COMMANDS = commands(PROSE)
KINDS = {"F16": "F16", "Q8_0": "Q8_0", "Q6_K": "Q8_0", "Q4_K_M": "Q4_0"}
SENTENCE = "Sentence {} of the text is read, and then number {}."


def write_files():
    "A log, a file of logits and a GGUF of each name, and a text."
    for name in ("F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q4_0", "Q2_K"):
        of = "base" if name == "F16" else "tuned"
        shutil.copy(DATA / f"{of}.default.log", f"{name}.log")
        shutil.copy(DATA / f"{of}.kld", f"{name}.kld")
        Path(name).mkdir()
        log = Path(f"{name}.log").read_text(encoding="utf-8")
        Path(name, "wiki.log").write_text(log, encoding="utf-8")
        other = re.sub(r"\[1\]\d", "[1]3", log)  # another first chunk: another text
        Path(name, "code.log").write_text(other, encoding="utf-8")
        rows = [f"{k},good,{'good' if k % 3 else 'bad'},kind{k // 4}" for k in range(80)]
        Path(f"{name}.csv").write_text("\n".join(["id,label,prediction,cluster", *rows]))
    lines = [json.dumps({"text": SENTENCE.format(i, i * i)}) for i in range(380)]
    Path("wiki.jsonl").write_text("\n".join(lines) + "\n")


def write_models():
    from small_models import llama, merged_tokenizer, save, write_gguf

    words = merged_tokenizer()
    save(llama(len(words), tied=True), Path("m"), words)
    tokenizer = json.loads(Path("m", "tokenizer.json").read_text())
    merges = [" ".join(pair) for pair in tokenizer["model"]["merges"]]
    for name, kind in KINDS.items():
        write_gguf(Path("m"), Path(f"{name}.gguf"), kind, merges)


def test_the_guide_has_a_command_for_each_kind_of_file():
    assert {Path(shlex.split(command)[2]).suffix for command in COMMANDS} == {
        ".log",
        "",  # a folder with a log for each text
        ".gguf",
        ".kld",
        ".csv",
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs_as_it_stands(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_files()
    if ".gguf" in command:
        pytest.importorskip("torch")
        pytest.importorskip("gguf")
        write_models()
    words = [  # as a shell writes out `Q*.gguf`
        name
        for word in shlex.split(command)[1:]
        for name in (sorted(map(str, Path().glob(word))) if "*" in word else [word])
    ]
    code = main(words)
    output = capsys.readouterr()
    assert code in (0, 1), output.err
    assert output.out.strip()


def test_texts_in_folders_are_pooled_and_one_text_is_not(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_files()
    assert main(["compare", "F16", "Q8_0", "--set", "pooling=equal"]) in (0, 1)
    assert "pooled" in capsys.readouterr().out
    assert main(["compare", "F16.log", "Q8_0.log", "--set", "pooling=equal"]) == 2
    assert "pooling needs at least 2 texts; got 1." in capsys.readouterr().err
