"""The command line from outside: every exit code, every refusal in one line, nothing half-written, the same bytes again."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import invar_nb
from invar_nb import WindowLosses, read_losses, write_losses
from invar_nb.statement import cli

BUFFERED = {**os.environ, "PYTHONUNBUFFERED": ""}  # a write that fails only when it is flushed is the hard case
DRAWN = ("--replicates", "1500", "--seed", "0")  # where the engine is not what is tested, the fast one


def save(path, *, shift=0.0, noise=0.0, n=400, seed=3, name="model", **more):
    rng = np.random.default_rng(seed)
    base = rng.gamma(30, 0.1, n)
    ids = [f"0:{1 + 64 * i}-{65 + 64 * i}" for i in range(n)]
    more = {"data_id": "sha256:" + "c" * 64, **more}
    write_losses(WindowLosses.from_arrays(ids, np.full(n, 64), base + shift + noise * rng.normal(size=n), model=name, **more), path)
    return path


@pytest.fixture(scope="module")
def arms(tmp_path_factory):
    home = tmp_path_factory.mktemp("arms")
    for name, shift, noise in (("base", 0, 0), ("same", 0.001, 0.01), ("worse", 0.05, 0.05), ("awful", 0.2, 0.05), ("better", -0.05, 0.05), ("unclear", 0.015, 0.3)):
        save(home / f"{name}.jsonl", shift=shift, noise=noise, name=name)
    return home


@pytest.fixture
def run(capsys):
    "The console script in this process: code, stdout, stderr."
    handler = signal.getsignal(signal.SIGTERM)

    def call(*arguments):
        code = cli.main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return code, out, err
    yield call
    signal.signal(signal.SIGTERM, handler)


def shell(*arguments, **more):
    "The console script in a process of its own."
    return subprocess.run([sys.executable, "-c", "import sys; from invar_nb.statement.cli import main; sys.exit(main())", *map(str, arguments)],
                          capture_output=True, text=True, timeout=120, **more)


def one_line(err): return len(err.splitlines()) == 1 and err.startswith("invar-nb: ")


# --- codes ----------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name, more, code, word", [
    ("same", (), 0, "Equivalent"), ("better", (), 0, "Improved"), ("unclear", (), 0, "Undecided"), ("worse", (), 1, "Regressed"),
    ("unclear", ("--fail-inconclusive",), 4, "Undecided"), ("same", ("--fail-inconclusive",), 0, "Equivalent"), ("worse", ("--fail-inconclusive",), 1, "Regressed"),
    ("worse", ("--margin", "0.1"), 0, "Equivalent"), ("same", ("--profile", "ci"), 0, "Equivalent"),
    ("worse", ("--margin", "0.1", "--profile", "release", "--tier", "aggressive"), 0, "Equivalent"),
    ("awful", ("--margin", "0.5"), 0, "Equivalent"), ("awful", ("--margin", "0.5", "--profile", "ci"), 1, "Equivalent")])
def test_answers(run, arms, tmp_path, name, more, code, word):
    found, out, err = run("compare", arms / "base.jsonl", arms / f"{name}.jsonl", "--out", tmp_path / "out", *DRAWN, *more)
    assert (found, err) == (code, "") and out.startswith(word + ":")
    assert {p.name for p in (tmp_path / "out").iterdir()} >= {"report.json", "report.md", "report.html"}
    found, out, err = run("verify", tmp_path / "out" / "report.json")
    assert (found, err) == (0, "") and out.startswith("Verified") and word in out


def test_the_default_engine_is_exact(run, arms, tmp_path):
    code, out, err = run("compare", arms / "base.jsonl", arms / "same.jsonl", "--out", tmp_path / "out", "--json")
    document = json.loads(out)
    assert code == document["exit_code"] == 0 and not err
    assert document["dataset"]["windows"]["stats"]["bootstrap"]["replicates"] is None
    saved = json.loads((tmp_path / "out" / "report.json").read_text())
    assert {k: document[k] for k in saved} == saved and Path(document["report"]) == tmp_path / "out" / "report.json"


def test_exit_code_table():
    def document(verdict="noise", kind=None, profile="dev", passed=True):
        return {"verdict": {"verdict": verdict, "noise_kind": kind}, "inputs": {"profile": profile}, "gate": {"passed": passed}}
    for verdict, kind in (("improved", None), ("noise", "equivalent"), ("noise", "inconclusive"), ("regressed", None)):
        for profile in ("dev", "ci", "release"):
            for passed in (True, False):
                for asked in (True, False):
                    expected = 1 if verdict == "regressed" or (profile != "dev" and not passed) else 4 if kind == "inconclusive" and asked else 0
                    assert cli.exit_code(document(verdict, kind, profile, passed), fail_inconclusive=asked) == expected


@pytest.mark.parametrize("arguments, says", [
    ((), ""), (("nonsense",), "No such command"), (("compare",), "Missing argument"), (("compare", "{base}"), "Missing argument"),
    (("compare", "{base}", "{same}", "--nonsense"), "No such option"), (("compare", "{base}", "{same}", "--level", "x"), "--level"),
    (("compare", "{base}", "missing.jsonl"), "does not exist"), (("compare", "./missing", "{same}"), "does not exist"), (("compare", "a b", "{same}"), "does not exist"),
    (("compare", "a/b/c", "{same}"), "does not exist"), (("compare", "{readme}", "{same}"), "neither a model directory nor a losses file"),
    (("compare", "{base}", "{same}", "--level", "95"), "Did you mean 0.95?"), (("compare", "{base}", "{same}", "--method", "bac"), "Did you mean 'bca'?"),
    (("compare", "{base}", "{same}", "--resample", "blocks"), "this version resamples"), (("compare", "{base}", "{same}", "--resample", "documents"), "this version resamples"),
    (("compare", "{base}", "{same}", "--engine", "ray"), "one machine"), (("score", "{home}", "--engine", "ray", "--text", "{readme}", "--out", "x.jsonl"), "one machine"),
    (("compare", "{base}", "{same}", "--replicates", "1200"), "need a seed"), (("compare", "{base}", "{same}", "--seed", "1"), "seed needs replicates"),
    (("compare", "{base}", "{same}", "--replicates", "3", "--seed", "1"), "replicates must be"), (("compare", "{base}", "{same}", "--tier", "strict"), "--tier"),
    (("compare", "{base}", "{same}", "--profile", "prod"), "--profile"), (("compare", "{base}", "{same}", "--margin", "0"), "--margin"), (("compare", "{base}", "{same}", "--margin", "nan"), "--margin"),
    (("compare", "{base}", "{same}", "--margin=-0.1"), "--margin"), (("compare", "{base}", "{same}", "--text", "{readme}"), "saved losses already"), (("compare", "{base}", "{same}", "--windows", "3"), "saved losses already"),
    (("compare", "{base}", "{same}", "--revision", "main"), "hub ids"), (("compare", "{home}", "{same}"), "--text FILE"), (("compare", "{home}", "{home}"), "--text FILE"),
    (("compare", "{home}", "{home}", "--text", "missing.txt"), "is not a file"), (("compare", "{home}", "{home}", "--text", "{readme}", "--stride", "9", "--max-length", "8"), "--stride"),
    (("compare", "{home}", "{home}", "--text", "{readme}", "--windows", "0"), "--windows"), (("compare", "{home}", "{home}", "--text", "{readme}", "--batch-tokens", "0"), "--batch-tokens"),
    (("compare", "{home}", "{home}", "--text", "{readme}", "--dtype", "float8"), "--dtype"), (("compare", "{home}", "{home}", "--text", "{readme}", "--bos", "maybe"), "--bos"),
    (("compare", "{base}", "{same}", "--out", "{readme}"), "is a file"),
    (("score", "{home}"), "needs --text"), (("score", "{base}", "--text", "{readme}", "--out", "x.jsonl"), "losses file already"), (("score", "{home}", "--text", "{readme}", "--out", "x.csv"), "must end in"),
    (("score", "{home}", "--text", "{readme}", "--out", "{base}"), "exists"), (("score", "{home}", "--text", "{readme}", "--out", "x.jsonl", "--revision", "main"), "hub ids"),
    (("verify",), "Missing argument"), (("verify", "missing.json"), "is not a file"), (("verify", "{home}"), "is not a file"), (("demo", "--out", "{home}"), "not an empty folder")])
def test_usage_is_2_in_one_line_and_writes_nothing(run, arms, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    readme = tmp_path / "readme.txt"
    readme.write_text("some text to score")
    before = sorted(arms.iterdir())
    known = {"base": arms / "base.jsonl", "same": arms / "same.jsonl", "home": arms, "readme": readme}
    code, out, err = run(*(a.format(**known) if "{" in a else a for a in arguments))
    assert code == 2 and says in err
    assert not arguments or (one_line(err) and out == "")
    assert sorted(arms.iterdir()) == before and list(tmp_path.iterdir()) == [readme]


def damaged(path, data):
    path.write_bytes(data)
    return path


EVIDENCE = {
    "fewer windows": lambda home, p: save(p, n=399),
    "another text": lambda home, p: save(p, data_id="sha256:" + "d" * 64),
    "another tokenizer": lambda home, p: save(p, provenance={"tokenizer_digest": "sha256:other"}),
    "torn": lambda home, p: damaged(p, (home / "base.jsonl").read_bytes()[:-30]),
    "a flipped byte": lambda home, p: damaged(p, (home / "base.jsonl").read_bytes().replace(b"3", b"4", 40)),
    "empty": lambda home, p: damaged(p, b""),
    "not text": lambda home, p: damaged(p, b"\xff\xfe\x00\x01" * 20),
    "not losses": lambda home, p: damaged(p, b'{"a": 1}\n')}


@pytest.mark.parametrize("what", EVIDENCE)
@pytest.mark.parametrize("second", [False, True], ids=["as baseline", "as candidate"])
def test_refused_evidence_is_3_in_one_line_and_writes_nothing(run, arms, tmp_path, what, second):
    bad = EVIDENCE[what](arms, tmp_path / "bad.jsonl")
    good = arms / "base.jsonl" if what != "another tokenizer" else save(tmp_path / "good.jsonl", provenance={"tokenizer_digest": "sha256:one"})
    pair = (good, bad) if second else (bad, good)
    code, out, err = run("compare", *pair, "--out", tmp_path / "out")
    assert code == 3 and out == "" and one_line(err)
    assert not [p for p in tmp_path.iterdir() if p.name not in ("bad.jsonl", "good.jsonl")]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-1.0", "1e999", '"2"', "null", "true"])
def test_losses_that_are_no_losses_are_3(run, arms, tmp_path, value):
    lines = (arms / "base.jsonl").read_text().splitlines(keepends=True)
    lines[5] = re.sub(r'("log_loss":\s*)[^,}]+', lambda m: m[1] + value, lines[5])
    (tmp_path / "bad.jsonl").write_text("".join(lines))
    code, out, err = run("compare", arms / "base.jsonl", tmp_path / "bad.jsonl", "--out", tmp_path / "out")
    assert code == 3 and one_line(err) and "bad.jsonl:6" in err and not (tmp_path / "out").exists()


def test_profile_refuses_with_3_and_dev_warns(run, tmp_path):
    a, b = save(tmp_path / "a.jsonl", n=40), save(tmp_path / "b.jsonl", n=40, noise=0.01)
    code, out, err = run("compare", a, b, "--out", tmp_path / "out", "--profile", "release", *DRAWN)
    assert code == 3 and one_line(err) and "coverage_meets_the_floor" in err and not (tmp_path / "out").exists()
    code, out, err = run("compare", a, b, "--out", tmp_path / "out", *DRAWN)
    assert code == 0 and "coverage_meets_the_floor" in out


def test_tampering_is_3(run, arms, tmp_path):
    out = tmp_path / "out"
    assert run("compare", arms / "base.jsonl", arms / "worse.jsonl", "--out", out, *DRAWN)[0] == 1
    path = out / "report.json"
    good = path.read_text()
    numbers = [m for m in re.finditer(r"(?<![\w\"-])-?\d+(?:\.\d+)?(?:e-?\d+)?(?=,?\n)", good)]
    assert len(numbers) > 60
    for m in numbers[::6]:
        path.write_text(good[:m.start()] + str(float(m[0]) + 1) + good[m.end():])
        code, said, err = run("verify", out)
        assert code == 3 and said == "" and one_line(err), m[0]
    path.write_text(good)
    losses = next(p for p in out.iterdir() if p.name.startswith("candidate"))
    data = losses.read_bytes()
    for at in np.random.default_rng(0).integers(0, len(data), 40):
        losses.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
        code, said, err = run("verify", path)
        assert code == 3 and said == "" and one_line(err)
    losses.write_bytes(data)
    code, said, _ = run("verify", path, "--json")
    assert code == 0 and json.loads(said)["verified"] is True
    (out / "report.html").write_text("<p>All is well.</p>")
    code, said, err = run("verify", path, "--json")
    assert code == 3 and json.loads(said) == {"error": err.removeprefix("invar-nb: ").strip(), "exit_code": 3}


# --- work that fails ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("error", [MemoryError(), OSError(5, "Input/output error", "x"), PermissionError(13, "Permission denied", "x"), ZeroDivisionError("no"), RuntimeError("a\nb"),
                                   KeyboardInterrupt(), RecursionError("deep"), type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory"), ModuleNotFoundError("No module named 'torch'")])
def test_failed_work_is_5_in_one_line_and_writes_nothing(run, arms, tmp_path, monkeypatch, error):
    from invar_nb.statement import report

    def fail(*_, **__): raise error
    monkeypatch.setattr(report, "render_html", fail)
    for more in ((), ("--json",)):
        code, out, err = run("compare", arms / "base.jsonl", arms / "same.jsonl", "--out", tmp_path / "out", *DRAWN, *more)
        assert code == 5 and one_line(err) and list(tmp_path.iterdir()) == []
        assert out == "" if not more else json.loads(out)["exit_code"] == 5
    code, out, err = run("compare", arms / "base.jsonl", arms / "same.jsonl", "--out", tmp_path / "out", *DRAWN, "--debug")
    assert code == 5 and "Traceback" in err


@pytest.mark.skipif(os.name != "posix", reason="signals and pipes of POSIX")
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_5_and_leaves_nothing(arms, tmp_path, sign):
    code = ("import signal, sys, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background jobs ignore it
            "import invar_nb.statement.report as r\n"
            "def slow(*a, **k):\n    sys.stderr.write('working\\n'); sys.stderr.flush(); time.sleep(60)\n"
            "r.render_html = slow\nfrom invar_nb.statement.cli import main\nsys.exit(main())")
    process = subprocess.Popen([sys.executable, "-c", code, "compare", arms / "base.jsonl", arms / "same.jsonl", "--out", tmp_path / "out", *DRAWN],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr.readline() == "working\n"
    process.send_signal(sign)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 5 and out == "" and one_line(err) and "interrupted" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="signals and pipes of POSIX")
def test_a_broken_pipe_is_5_without_a_traceback(arms, tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", "import sys; from invar_nb.statement.cli import main; sys.exit(main())", "compare",
                           arms / "base.jsonl", arms / "same.jsonl", "--out", tmp_path / "out", *DRAWN], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120, env=BUFFERED)
    os.close(writer)
    assert done.returncode == 5 and one_line(done.stderr)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_under_stdout_is_5(arms, tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", "import sys; from invar_nb.statement.cli import main; sys.exit(main())", "compare",
                               arms / "base.jsonl", arms / "same.jsonl", "--out", tmp_path / "out", *DRAWN], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, env=BUFFERED)
    assert done.returncode == 5 and one_line(done.stderr) and "No space left" in done.stderr


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_is_5(arms, tmp_path):
    tmp_path.chmod(0o500)
    done = shell("compare", arms / "base.jsonl", arms / "same.jsonl", "--out", tmp_path / "out", *DRAWN)
    tmp_path.chmod(0o700)
    assert done.returncode == 5 and one_line(done.stderr)


# --- what is written ------------------------------------------------------------------------------------------------------------------
def test_the_same_bytes_again(run, arms, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name in ("one", "two"):
        assert run("compare", arms / "base.jsonl", arms / "unclear.jsonl", "--out", tmp_path / name, *DRAWN)[0] == 0
    one, two = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two and len(one) == 5


def test_never_overwrites_without_force(run, arms, tmp_path):
    command = ("compare", arms / "base.jsonl", arms / "worse.jsonl", "--out", tmp_path / "out", *DRAWN)
    assert run(*command)[0] == 1
    before = {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()}
    code, out, err = run(*command)
    assert code == 2 and one_line(err) and before == {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()}
    assert run("compare", arms / "base.jsonl", arms / "same.jsonl", "--out", tmp_path / "out", "--force", *DRAWN)[0] == 0
    assert run("verify", tmp_path / "out")[1].count("Equivalent") == 1


def test_losses_keep_every_bit_through_the_report(run, arms, tmp_path):
    run("compare", arms / "base.jsonl", arms / "same.jsonl", "--out", tmp_path / "out", *DRAWN)
    for arm, source in (("baseline", "base"), ("candidate", "same")):
        kept, given = read_losses(next((tmp_path / "out").glob(f"{arm}.*"))), read_losses(arms / f"{source}.jsonl")
        assert kept.log_loss.tobytes() == given.log_loss.tobytes() and kept.window_ids == given.window_ids and kept.model == given.model
    try:
        import pyarrow  # noqa: F401
        assert (tmp_path / "out" / "baseline.parquet").exists()
    except ImportError:
        assert (tmp_path / "out" / "baseline.jsonl").exists()


def test_summary_says_what_a_person_needs(run, arms, tmp_path):
    code, out, err = run("compare", arms / "base.jsonl", arms / "unclear.jsonl", "--out", tmp_path / "out", *DRAWN)
    for word in ("Undecided", "% interval", "p-value", "400 paired (200 preview, 200 final)", "n_eff 400.0", "lag-1", "gate", "report.html", "invar-nb verify", "1500 replicates, seed 0", "windows to settle it"):
        assert word in out, word
    assert "\x1b" not in out


# --- the rest of the shell ------------------------------------------------------------------------------------------------------------
def test_version_and_help():
    assert (shell("--version").returncode, shell("--version").stdout) == (0, f"invar_nb {invar_nb.__version__}\n")
    for arguments in ((), ("compare",), ("score",), ("verify",), ("demo",)):
        for flag in ("--help", "-h"):
            done = shell(*arguments, flag)
            assert done.returncode == 0 and "Usage" in done.stdout and done.stderr == ""
    assert "Exit codes" in shell("--help").stdout
    assert shell().returncode == 2


def test_the_console_script_is_installed():
    script = shutil.which("invar-nb", path=str(Path(sys.executable).parent)) or shutil.which("invar-nb")
    if script is None: pytest.skip("not installed as a script")
    assert subprocess.run([script, "verify", "nothing.json"], capture_output=True).returncode == 2


def test_help_costs_less_than_four_imports_of_numpy():
    def best(code):
        times = []
        for _ in range(7):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
            times.append(time.perf_counter() - start)
        return min(times)
    assert best("import sys; from invar_nb.statement.cli import main; sys.exit(main(['--help']))") < 4 * best("import numpy")


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo terminal")
@pytest.mark.parametrize("environment, coloured", [({}, True), ({"NO_COLOR": "1"}, False), ({"CI": "true"}, False), ({"TERM": "dumb"}, False)])
def test_colour_is_for_people(arms, tmp_path, environment, coloured):
    import pty
    leader, follower = pty.openpty()
    clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "CI", "TERM")}
    process = subprocess.Popen([sys.executable, "-c", "import sys; from invar_nb.statement.cli import main; sys.exit(main())", "compare", arms / "base.jsonl",
                                arms / "same.jsonl", "--out", tmp_path / "out", *DRAWN], stdout=follower, stderr=subprocess.PIPE, env={**clean, "TERM": "xterm", **environment})
    _, err = process.communicate(timeout=60)
    os.close(follower)
    said = os.read(leader, 65536).decode()
    os.close(leader)
    assert process.returncode == 0 and err == b"" and ("\x1b[" in said) == coloured


# --- models ---------------------------------------------------------------------------------------------------------------------------
TEXT = " ".join(f"The {a} of the {b} is {c}." for a in ("window", "token", "loss", "margin") for b in ("model", "text", "report", "gate") for c in ("long", "short", "new", "old"))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    torch = pytest.importorskip("torch")
    transformers, tokenizers = pytest.importorskip("transformers"), pytest.importorskip("tokenizers")
    home = tmp_path_factory.mktemp("models")
    (home / "text.txt").write_text(TEXT)
    (home / "other.txt").write_text(TEXT[::-1])

    def words(extra=()):
        names = {c: i for i, c in enumerate([*sorted(set(TEXT) | set("?[]")), *extra])}
        made = tokenizers.Tokenizer(tokenizers.models.WordLevel(names, unk_token="?"))
        made.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
        return transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="?"), len(names)

    def make(name, kind, seed, extra=(), positions=64):
        torch.manual_seed(seed)
        tokenizer, size = words(extra)
        none = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
        if kind == "gpt2":
            model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=size, n_positions=positions, n_embd=16, n_layer=1, n_head=2, **none))
        else:
            model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=size, max_position_embeddings=64, hidden_size=16, intermediate_size=24,
                                                                           num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, **none))
        model.save_pretrained(home / name)
        tokenizer.save_pretrained(home / name)

    make("gpt", "gpt2", 0), make("gpt_edit", "gpt2", 1), make("llama", "llama", 0), make("llama_edit", "llama", 1), make("stranger", "gpt2", 0, extra=("\u00e9",)), make("short", "gpt2", 2, positions=48)
    return home


@pytest.mark.parametrize("family", ["gpt", "llama"])
def test_two_directories_end_to_end(run, models, tmp_path, family):
    code, out, err = run("compare", models / family, models / f"{family}_edit", "--text", models / "text.txt", "--out", tmp_path / "out", "--max-length", "32", *DRAWN)
    assert code in (0, 1), err
    assert "baseline" in err and "candidate" in err and "Traceback" not in err
    assert run("verify", tmp_path / "out" / "report.json")[0] == 0
    document = json.loads((tmp_path / "out" / "report.json").read_text())
    evidence = document["evidence"]
    assert evidence["baseline"]["weights_digest"] != evidence["candidate"]["weights_digest"] and evidence["baseline"]["tokenizer_digest"] == evidence["candidate"]["tokenizer_digest"]
    assert evidence["baseline"]["scoring"]["max_length"] == 32 and document["dataset"]["total_tokens"] == len(TEXT) - 1
    stats = document["dataset"]["windows"]["stats"]
    assert (stats["window_overlap_fraction"], stats["window_overlap_basis"]) == (0.0, "token_ranges"), "measured from the ids that scoring wrote"


def test_the_languages_of_the_text_reach_the_report_and_two_splits_do_not_compare(run, models, tmp_path):
    one, two = len(TEXT) // 2, len(TEXT) * 3 // 4
    lines = [{"text": TEXT[:one], "language": "en"}, {"text": TEXT[one:two], "language": "es"}, {"text": TEXT[two:]}]
    for name, last in (("one", {}), ("other", {"language": "es"})):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps(line) for line in [*lines[:2], {**lines[2], **last}]))
    options = ("--max-length", "32", "--quiet")
    code, out, err = run("compare", models / "gpt", models / "gpt_edit", "--text", tmp_path / "one.jsonl", "--out", tmp_path / "out", "--json", *options, *DRAWN)
    found = json.loads(out)["dataset"]["languages"]
    assert code in (0, 1) and err == "" and {name: (part["documents"], part["tokens"]) for name, part in found.items()} == {
        name: (1, len(line["text"]) - 1) for name, line in zip(("en", "es", "und"), lines, strict=True)}
    assert run("verify", tmp_path / "out")[0] == 0
    for name in ("one", "other"): assert run("score", models / "gpt", "--text", tmp_path / f"{name}.jsonl", "--out", tmp_path / f"{name}.losses.jsonl", *options)[0] == 0
    code, out, err = run("compare", tmp_path / "one.losses.jsonl", tmp_path / "other.losses.jsonl", "--out", tmp_path / "no", *DRAWN)
    assert code == 3 and out == "" and one_line(err) and "one split of languages" in err and not (tmp_path / "no").exists()


def test_two_texts_do_not_compare(run, models, tmp_path):
    for name in ("text", "other"): run("score", models / "gpt", "--text", models / f"{name}.txt", "--out", tmp_path / f"{name}.jsonl", "--max-length", "32", "--quiet")
    code, out, err = run("compare", tmp_path / "text.jsonl", tmp_path / "other.jsonl", "--out", tmp_path / "no", *DRAWN)
    assert code == 3 and out == "" and one_line(err) and "scored with one text" in err and not (tmp_path / "no").exists()


def test_the_shorter_model_sets_the_length(run, models, tmp_path):
    code, out, err = run("compare", models / "gpt", models / "short", "--text", models / "text.txt", "--out", tmp_path / "out", "--json", "--quiet", *DRAWN)
    assert code in (0, 1) and err == "" and json.loads(out)["evidence"]["candidate"]["scoring"]["max_length"] == 48


def test_a_model_against_itself_is_equivalent(run, models, tmp_path):
    code, out, err = run("compare", models / "gpt", models / "gpt", "--text", models / "text.txt", "--out", tmp_path / "out", "--max-length", "32", "--json")
    document = json.loads(out)
    assert code == 0 and document["verdict"]["noise_kind"] == "equivalent" and document["primary_metric"]["ratio"] == 1.0 and document["primary_metric"]["p_value"] == 1.0
    assert document["dataset"]["windows"]["stats"]["paired_delta_summary"]["degenerate"] is True


def test_score_then_compare_says_what_compare_says(run, models, tmp_path):
    options = ("--text", models / "text.txt", "--max-length", "32", "--stride", "24", "--windows", "40")
    run("compare", models / "gpt", models / "gpt_edit", *options, "--out", tmp_path / "direct", *DRAWN)
    for name in ("gpt", "gpt_edit"):
        code, out, err = run("score", models / name, *options, "--out", tmp_path / f"{name}.jsonl")
        assert code == 0 and "perplexity" in out
    run("compare", tmp_path / "gpt.jsonl", tmp_path / "gpt_edit.jsonl", "--out", tmp_path / "saved", *DRAWN)
    run("compare", tmp_path / "gpt.jsonl", models / "gpt_edit", "--text", models / "text.txt", "--out", tmp_path / "mixed", *DRAWN)  # follows the saved arm's plan
    digests = {json.loads((tmp_path / name / "report.json").read_text())["digest"] for name in ("direct", "saved", "mixed")}
    assert len(digests) == 1
    assert json.loads((tmp_path / "saved" / "report.json").read_text())["dataset"]["windows"]["preview"] == 20


def test_score_goes_on_where_it_stopped(run, models, tmp_path, monkeypatch):
    from invar_nb.machine.store import Ledger
    options = ("score", models / "gpt", "--text", models / "text.txt", "--max-length", "32", "--out")
    assert run(*options, tmp_path / "whole.jsonl")[0] == 0
    real, count = Ledger.append, []

    def interrupted(self, *a):
        if len(count) == 11: raise KeyboardInterrupt
        count.append(a)
        return real(self, *a)
    monkeypatch.setattr(Ledger, "append", interrupted)
    code, out, err = run(*options, tmp_path / "part.jsonl")
    assert code == 5 and "interrupted" in err and not (tmp_path / "part.jsonl").exists()
    monkeypatch.setattr(Ledger, "append", real)
    code, out, err = run(*options, tmp_path / "part.jsonl")
    assert code == 0 and "going on after 11 of" in err
    assert (tmp_path / "part.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["part.jsonl", "whole.jsonl"], "the ledger is gone"


@pytest.mark.parametrize("arguments, code, says", [
    (("gpt", "stranger", "--text", "text.txt"), 3, "token"), (("gpt", "llama_edit", "--text", "empty.txt"), 3, "empty"), (("gpt", "gpt_edit", "--text", "text.txt", "--max-length", "65"), 3, "max_length"),
    (("gpt", "gpt_edit", "--text", "text.txt", "--text", "text.txt"), 3, "twice"), (("gpt", "gpt_edit", "--text", "text.txt", "--windows", "100000"), 3, "windows"),
    (("gpt", "short", "--text", "text.txt", "--max-length", "64"), 3, "--max-length 48"), (("gpt", "torn_config", "--text", "text.txt"), 3, "config.json"),
    (("gpt", "nothing_here", "--text", "text.txt"), 3, "config.json"), (("gpt", "gpt_edit", "--text", "binary.txt"), 3, "UTF-8")])
def test_models_that_cannot_be_compared(run, models, tmp_path, monkeypatch, arguments, code, says):
    (models / "nothing_here").mkdir(exist_ok=True)
    (models / "torn_config").mkdir(exist_ok=True)
    (models / "torn_config" / "config.json").write_text('{"a": ')
    (models / "empty.txt").write_text("")
    (models / "binary.txt").write_bytes(b"\xff\xfe\xfa")
    monkeypatch.chdir(models)
    found, out, err = run("compare", *arguments, "--out", tmp_path / "out")
    last = err.splitlines()[-1]
    assert found == code and out == "" and last.startswith("invar-nb: ") and says in last and list(tmp_path.iterdir()) == []
    assert len(err.splitlines()) == 1, "refused before anything was scored"


def test_a_hub_id_that_cannot_be_reached_is_a_clear_line(models, tmp_path):
    done = shell("compare", "no-such-owner/no-such-model", models / "gpt", "--text", models / "text.txt", "--out", "out", cwd=tmp_path, env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")})
    assert done.returncode == 2 and "Traceback" not in done.stderr and "HF_HUB_OFFLINE" in done.stderr.splitlines()[-1] and not (tmp_path / "out").exists()


def test_a_folder_comes_before_a_hub_id(run, models, tmp_path, monkeypatch):
    monkeypatch.chdir(models)
    assert cli.arm_kind("gpt") == "directory" and cli.arm_kind("gpt-that-is-not-here") == "hub" and cli.arm_kind("org/name") == "hub"


def test_demo_passes_the_room_what_it_needs(run, tmp_path, monkeypatch):
    from invar_nb.statement import demo
    seen = {}

    class Result:
        sentences = ("It is so.",)
        def table(self): return "name ratio"
        def to_dict(self): return {"rows": []}

    def run_demo(out, *, progress, echo):
        seen.update(out=out, progress=progress)
        echo("working")
        return Result()
    monkeypatch.setattr(demo, "run_demo", run_demo)
    code, out, err = run("demo", "--out", tmp_path / "new")
    assert code == 0 and out == "name ratio\n\nIt is so.\n" and err == "working\n" and seen["out"] == tmp_path / "new"
    seen["progress"]("base")(1, 2)
    code, out, err = run("demo", "--out", tmp_path / "new", "--json", "--quiet")
    assert code == 0 and json.loads(out) == {"rows": [], "exit_code": 0} and err == ""


# --- found by attack -------------------------------------------------------------------------------------------------------------------
@pytest.mark.skipif(os.name != "posix", reason="closes a descriptor")
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_stdout_is_no_defect(arms, tmp_path, closed):
    script = "import sys; from invar_nb.statement.cli import main; sys.exit(main())"
    for name, code in (("same", 0), ("worse", 1), ("missing", 2)):
        done = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", sys.executable, "-c", script, "compare", str(arms / "base.jsonl"), str(arms / f"{name}.jsonl"),
                               "--out", str(tmp_path / name), *DRAWN], capture_output=True, text=True)
        assert done.returncode == code and "Traceback" not in done.stderr and (done.stdout == "" or " >&-" not in f" {closed}")
        assert (tmp_path / name / "report.json").exists() == (code < 2)
        if code < 2: assert invar_nb.verify(tmp_path / name).sentence


def test_letting_go_of_no_stdout(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    cli._let_go_of_stdout()


@pytest.mark.parametrize("more, says", [
    (("--margin", "700"), "--margin"), (("--margin", "1e300"), "--margin"), (("--level", "0.99999999999999989"), "level"), (("--level", "1e-300"), "level"),
    (("--replicates", "1000000000000000", "--seed", "1"), "10000000"), (("--out", ""), "--out"), (("--out", "{base}/x"), "is a file"), (("--out", "{base}/x/y"), "is a file"),
    (("--tokenizer", "/nope"), "--tokenizer")])
def test_senseless_options_are_2_before_the_work(run, arms, tmp_path, monkeypatch, more, says):
    from invar_nb.statement import report
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "compare", lambda *_, **__: pytest.fail("the work was begun"))
    out = () if "--out" in more else ("--out", tmp_path / "out")
    code, said, err = run("compare", arms / "base.jsonl", arms / "same.jsonl", *out, *(x.format(base=arms / "base.jsonl") for x in more))
    assert code == 2 and said == "" and one_line(err) and says in err and not list(tmp_path.iterdir())


def test_a_dangling_link_or_a_folder_for_a_file_is_2_before_the_work(run, arms, tmp_path, monkeypatch):
    from invar_nb.statement import report
    monkeypatch.setattr(report, "compare", lambda *_, **__: pytest.fail("the work was begun"))
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    code, said, err = run("compare", arms / "base.jsonl", arms / "same.jsonl", "--out", tmp_path / "link")
    assert code == 2 and one_line(err)
    (tmp_path / "out" / "report.json").mkdir(parents=True)
    code, said, err = run("compare", arms / "base.jsonl", arms / "same.jsonl", "--out", tmp_path / "out", "--force")
    assert code == 2 and one_line(err) and "is a folder" in err and [p.name for p in (tmp_path / "out").iterdir()] == ["report.json"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFO here")
def test_a_fifo_is_refused_and_not_waited_for(arms, tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    done = subprocess.run([sys.executable, "-c", "import sys; from invar_nb.statement.cli import main; sys.exit(main())", "compare", arms / "base.jsonl", tmp_path / "pipe.jsonl",
                           "--out", tmp_path / "out"], capture_output=True, text=True, timeout=20)
    assert done.returncode in (2, 3) and one_line(done.stderr) and "regular file" in done.stderr


@pytest.mark.parametrize("value", [710.0, 1e308])
def test_a_loss_beyond_a_float_is_3_and_one_line(arms, tmp_path, value):
    write_losses(WindowLosses.from_arrays([f"0:{1 + 64 * i}-{65 + 64 * i}" for i in range(400)], np.full(400, 64), np.full(400, value), model="big", data_id="sha256:" + "c" * 64), tmp_path / "big.jsonl")
    done = shell("compare", arms / "base.jsonl", tmp_path / "big.jsonl", "--out", tmp_path / "out")
    assert done.returncode == 3 and one_line(done.stderr) and done.stdout == "" and not (tmp_path / "out").exists()


def test_a_terminal_is_not_given_orders(run, tmp_path):
    name = "x\x1b]0;owned\x07\x1b[2J\x9b\u202e"
    save(tmp_path / "a.jsonl", name=name), save(tmp_path / "b.jsonl", name=name + "b", shift=0.001, noise=0.01)
    texts = run("compare", tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--out", tmp_path / "o", *DRAWN)[1:]
    texts += run("verify", tmp_path / "o")[1:]
    texts += run("compare", tmp_path / "a.jsonl", "no\x1b[2Jwhere.jsonl")[1:] + run("verify", tmp_path / "no\x1b[2J")[1:]
    texts += cli.summary(json.loads((tmp_path / "o" / "report.json").read_text()), tmp_path / "o\x1b[2J"),
    for text in texts: assert not [c for c in text if not c.isprintable() and c != "\n"]
    assert "owned" in texts[0]


def test_a_tokenizer_that_does_not_load_is_one_line(models, tmp_path):
    (tmp_path / "empty").mkdir()
    done = shell("compare", models / "gpt", models / "gpt_edit", "--text", models / "text.txt", "--out", tmp_path / "out", "--tokenizer", tmp_path / "empty")
    assert done.returncode == 3 and one_line(done.stderr) and "tokenizer" in done.stderr and done.stdout == ""


@pytest.mark.parametrize("change", [lambda c: c | {"n_positions": "64"}, lambda c: c | {"n_positions": [64]}])
def test_positions_that_are_no_number_are_3(run, models, tmp_path, change):
    shutil.copytree(models / "gpt", tmp_path / "odd")
    config = json.loads((tmp_path / "odd" / "config.json").read_text())
    (tmp_path / "odd" / "config.json").write_text(json.dumps(change(config)))
    for command in (("compare", models / "gpt", tmp_path / "odd", "--out", tmp_path / "out"), ("score", tmp_path / "odd", "--out", tmp_path / "x.jsonl")):
        code, out, err = run(*command, "--text", models / "text.txt")
        assert code == 3 and one_line(err) and out == ""


def test_force_never_replaces_the_losses_that_it_reads(run, arms, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    for source, name in (("base", "baseline"), ("same", "candidate")): shutil.copy(arms / f"{source}.jsonl", mine / f"{name}.jsonl")
    before = {p.name: p.read_bytes() for p in mine.iterdir()}
    code, said, err = run("compare", mine / "baseline.jsonl", arms / "same.jsonl", "--out", mine, "--force", *DRAWN)
    assert code == 2 and one_line(err) and "no file that is read may be replaced" in err
    code, said, err = run("compare", arms / "base.jsonl", arms / "same.jsonl", "--out", mine, "--force", *DRAWN)  # and not those that it does not read
    assert code == 2 and one_line(err) and "Move it away" in err
    assert {p.name: p.read_bytes() for p in mine.iterdir()} == before


def test_score_never_replaces_the_text_that_it_reads(run, tmp_path, monkeypatch):
    (tmp_path / "m").mkdir()
    text = tmp_path / "t.jsonl"
    text.write_text('{"text": "x"}\n')
    code, said, err = run("score", tmp_path / "m", "--text", text, "--out", text, "--force")
    assert code == 2 and one_line(err) and "is read" in err and text.read_text() == '{"text": "x"}\n'


@pytest.mark.parametrize("page", ["report.html", "report.md"])
def test_a_folder_in_the_place_of_a_page_is_3(run, arms, tmp_path, page):
    assert run("compare", arms / "base.jsonl", arms / "same.jsonl", "--out", tmp_path / "out", *DRAWN)[0] == 0
    (tmp_path / "out" / page).unlink()
    (tmp_path / "out" / page).mkdir()
    code, said, err = run("verify", tmp_path / "out")
    assert code == 3 and one_line(err) and page in err and "a folder" in err and not said


def test_the_module_is_the_command(tmp_path):
    "`python -m` that imports and says nothing would be a gate that lets everything pass."
    found = subprocess.run([sys.executable, "-m", "invar_nb.statement.cli", "predictions", str(tmp_path / "none.csv")], capture_output=True, text=True)
    assert found.returncode == 2 and "is not a file" in found.stderr


def test_a_page_is_no_report(tmp_path, capsys):
    (tmp_path / "report.html").write_text("<html>")
    assert cli.main(["verify", str(tmp_path / "report.html")]) == 2
    assert "is a page. Name the report.json beside it" in capsys.readouterr().err
