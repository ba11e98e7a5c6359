"""The gate of a pull request: the action's shell lines run against a local repository, the study file's accepted losses, exports, `init`, and pytest."""
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from commands import main
from frozen_inputs import loss_rows, write_losses

ROOT = Path(__file__).parents[1]
MARK = "<!-- invar_nb -->"


@pytest.fixture
def shell(capsys):
    "A command line -> (exit code, stdout, stderr)."
    def run(line, *more):
        capsys.readouterr()
        code = main([*shlex.split(line), *map(str, more)])
        return (code, *capsys.readouterr())
    return run


def write_docs(folder, n=300):
    for name in ("base", "q8", "q4", "tuned"): write_losses(folder / f"docs/{name}.jsonl", list(loss_rows(name, "docs", n)))
    write_losses(folder / "docs/few.jsonl", list(loss_rows("q8", "docs", 55)))
    write_losses(folder / "docs/start.jsonl", list(loss_rows("base", "docs", 55)))


@pytest.fixture
def docs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_docs(tmp_path)
    return tmp_path


# --- the action: its steps as GitHub runs them, with a fake gh and pip ------------------------------------------------------------------
yaml = pytest.importorskip("yaml")
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
GH = r'''#!/bin/sh
printf '%s\n' "$*" >> "$GH_LOG"
case "$*" in
  *--paginate*) cat "$GH_COMMENTS" ;;
  *) if [ "$GH_MAY_WRITE" != yes ]; then echo "gh: Resource not accessible by integration (HTTP 403)" >&2; exit 1; fi
     for word; do case "$word" in body=@*) cat "${word#body=@}" > "$GH_LOG.body" ;; esac; done ;;
esac
'''
GIT = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def git(folder, *words): return subprocess.run(["git", *words], cwd=folder, env=os.environ | GIT, check=True, capture_output=True, text=True).stdout


def executable(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


class Runner:
    "A job on GitHub: a clone of a local repository, temporary files, a fake gh."

    def __init__(self, folder):
        self.folder, self.origin, self.clone, self.comments = folder, folder / "origin.git", folder / "clone", ""
        (folder / "bin").mkdir()
        executable(folder / "bin/gh", GH)
        executable(folder / "bin/invar-nb", f'#!/bin/sh\nexec "{sys.executable}" -m invar_nb "$@"\n')
        executable(folder / "bin/python", f'#!/bin/sh\nif [ "$2" = pip ]; then echo "$*" >> "$GH_LOG"; else exec "{sys.executable}" "$@"; fi\n')
        git(folder, "init", "-q", "--bare", "-b", "main", "origin.git")
        git(folder, "clone", "-q", "origin.git", "clone")
        write_docs(self.clone)
        git(self.clone, "switch", "-q", "-c", "main")
        git(self.clone, "add", "docs/base.jsonl")
        git(self.clone, "commit", "-qm", "baseline")
        git(self.clone, "push", "-q", "origin", "main")

    def data_branch(self, name="quality"):
        "The baseline on a branch of its own, which holds nothing else."
        git(self.clone, "switch", "-q", "--orphan", name)
        (self.clone / "docs").mkdir(exist_ok=True)
        shutil.copy(self.folder / "kept.jsonl", self.clone / "base.jsonl")
        git(self.clone, "add", "base.jsonl")
        git(self.clone, "commit", "-qm", "data")
        git(self.clone, "push", "-q", "origin", name)
        git(self.clone, "switch", "-q", "main")

    def value(self, text, context):
        "What ${{ ... }} stands for."
        return re.sub(r"\$\{\{\s*(.*?)\s*\}\}", lambda m: str(context.get(m[1], "")), str(text))

    def run(self, event="pull_request", may_write=True, comments=(), **inputs):
        "The exit code of the job, its outputs, what gh was called with, and the last comment."
        temp = self.folder / "temp"
        shutil.rmtree(temp, ignore_errors=True)
        temp.mkdir()
        log = temp / "gh.log"
        log.touch()
        (temp / "comments").write_text("".join(f"{n}\n" for n in comments))
        context = {"github.event.repository.default_branch": "main", "github.token": "t", "github.server_url": "https://github.com", "github.repository": "o/r", "github.run_id": "7", "runner.temp": str(temp)}
        if event == "pull_request": context["github.event.pull_request.number"] = "12"
        given = {"extras": "", **{name.replace("_", "-"): value for name, value in inputs.items()}}
        assert given.keys() <= ACTION["inputs"].keys()
        for name, about in ACTION["inputs"].items(): context[f"inputs.{name}"] = given.get(name, self.value(about.get("default", ""), context))
        env = os.environ | GIT | {"PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), "RUNNER_TEMP": str(temp), "GITHUB_REPOSITORY": "o/r", "GITHUB_EVENT_NAME": event,
              "GITHUB_REF": "refs/heads/main" if event == "push" else "refs/pull/12/merge", "GITHUB_SHA": "abc", "GITHUB_ACTION_PATH": str(ROOT), "GITHUB_STEP_SUMMARY": str(temp / "summary.md"),
              "GH_LOG": str(log), "GH_COMMENTS": str(temp / "comments"), "GH_MAY_WRITE": "yes" if may_write else "no"}
        code, said, used = 0, "", []
        for step in ACTION["runs"]["steps"]:
            if code and step.get("if") != "always()": continue
            if "uses" in step:
                used.append((step["uses"], self.value(step["with"]["path"], context)))
                continue
            out = temp / "out"
            out.write_text("")
            mine = {name: self.value(text, context) for name, text in step.get("env", {}).items()}
            done = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], cwd=self.clone, env=env | mine | {"GITHUB_OUTPUT": str(out)}, capture_output=True, text=True)
            code, said = code or done.returncode, said + done.stdout + done.stderr
            for line in out.read_text().splitlines():
                name, _, value = line.partition("=")
                context[f"steps.{step['id']}.outputs.{name}"] = value
        outputs = {name: self.value(about["value"], context) for name, about in ACTION["outputs"].items()}
        body, kept = Path(f"{log}.body"), temp / "summary.md"
        assert used == [("actions/upload-artifact@v4", str(temp / "invar-nb"))]  # also of a job that failed
        return {"code": code, "said": said, "calls": log.read_text().splitlines(), "comment": body.read_text() if body.is_file() else None, "summary": kept.read_text() if kept.is_file() else "", "temp": temp, **outputs}


@pytest.fixture
def job(tmp_path):
    runner = Runner(tmp_path)
    shutil.copy(runner.clone / "docs/base.jsonl", tmp_path / "kept.jsonl")
    return runner


def writes(ran): return [call for call in ran["calls"] if "--method" in call]


def test_no_input_stands_in_a_shell_line():
    "An input such as `x\"; curl evil` would be run."
    assert ACTION["runs"]["using"] == "composite" and all(step["shell"] == "bash" for step in ACTION["runs"]["steps"] if "run" in step)
    assert not [step["name"] for step in ACTION["runs"]["steps"] if "${{" in step.get("run", "")]
    named = {name for step in ACTION["runs"]["steps"] for text in [*step.get("env", {}).values(), *step.get("with", {}).values()] for name in re.findall(r"inputs\.([\w-]+)", text)}
    assert named == {*ACTION["inputs"]}


def test_green_is_quiet(job):
    ran = job.run(baseline="docs/base.jsonl", candidate="docs/q8.jsonl")
    assert ran["code"] == 0 and ran["claim"] == "equivalent" and ran["exit-code"] == "0" and not writes(ran), ran["said"]
    assert [float(ran[name]) for name in ("change", "low", "high")] == [0.193, 0.119, 0.264]
    assert ran["summary"].startswith(MARK) and "Equivalent within 2 %" in ran["summary"] and "::notice title=invar_nb::Equivalent within 2 %25" in ran["said"]
    assert Path(ran["report"], "report.html").is_file() and not (ran["temp"] / "invar-nb/comment.md").exists()
    assert len(writes(job.run(baseline="docs/base.jsonl", candidate="docs/q8.jsonl", comment="always"))) == 1


def test_red_comments_and_fails(job):
    ran = job.run(baseline="docs/base.jsonl", candidate="docs/q4.jsonl")
    assert ran["code"] == 1 and ran["claim"] == "regressed" and ran["exit-code"] == "1", ran["said"]
    assert len(writes(ran)) == 1 and "--method POST repos/o/r/issues/12/comments" in writes(ran)[0]
    assert ran["comment"].startswith(MARK) and "Regressed: perplexity +2.80 %" in ran["comment"] and "actions/runs/7" in ran["comment"] and len(ran["comment"].encode()) < 4200
    assert "::error title=invar_nb::Regressed: perplexity +2.80 %25" in ran["said"]
    assert not writes(job.run(baseline="docs/base.jsonl", candidate="docs/q4.jsonl", comment="never"))


def test_a_comment_that_is_there_is_updated_and_says_that_it_is_cured(job):
    for candidate, word in (("q4", "Regressed"), ("q8", "Equivalent")):
        ran = job.run(baseline="docs/base.jsonl", candidate=f"docs/{candidate}.jsonl", comments=(41, 42))
        assert [call.split()[2:4] for call in writes(ran)] == [["PATCH", "repos/o/r/issues/comments/41"]] and word in ran["comment"]


def test_inconclusive_passes_with_a_warning_and_a_comment(job):
    same = dict(baseline="docs/start.jsonl", candidate="docs/few.jsonl", text="", args="--margin 0.2%")
    ran = job.run(**same)
    assert ran["code"] == 0 and ran["claim"] == "inconclusive" and "::warning title=invar_nb::Inconclusive" in ran["said"] and len(writes(ran)) == 1
    for more in ({"require": "not-worse"}, {"args": "--margin 0.2% --fail-inconclusive"}):
        ran = job.run(**same | more)
        assert ran["code"] in (1, 4) and "::error" in ran["said"] and ran["exit-code"] == str(ran["code"])


@pytest.mark.parametrize("inputs, code, words", [
    ({"baseline": "docs/base.jsonl", "candidate": "docs/few.jsonl"}, 3, "score the baseline again"),
    ({"baseline": "docs/gone.jsonl", "candidate": "docs/few.jsonl"}, 2, "must exist"), ({"baseline": "docs/base.jsonl"}, 2, "no CANDIDATE"),
    ({"baseline": "base.jsonl", "candidate": "docs/q8.jsonl", "baseline_branch": "nowhere"}, 3, "There is no file base.jsonl on the branch nowhere")])
def test_what_was_not_compared_is_never_green(job, inputs, code, words):
    ran = job.run(**inputs)
    assert ran["code"] == code and ran["exit-code"] == str(code) and ran["claim"] == "refused" and ran["report"] == "", ran["said"]
    assert ran["comment"].startswith(f"{MARK}\n**Nothing was compared.") and words in ran["comment"] and words in ran["summary"] and "::error title=invar_nb::Nothing was compared" in ran["said"]


def test_a_crash_is_red_and_said(job):
    executable(job.folder / "bin/invar-nb", "#!/bin/sh\nexit 5\n")
    ran = job.run(baseline="docs/base.jsonl", candidate="docs/q8.jsonl")
    assert ran["code"] == 5 and ran["claim"] == "failed" and "gave no answer" in ran["comment"]
    executable(job.folder / "bin/invar-nb", "#!/bin/sh\nexit 0\n")
    assert job.run(baseline="docs/base.jsonl", candidate="docs/q8.jsonl")["code"] == 5


def test_a_fork_keeps_its_comment_in_the_artifact(job):
    ran = job.run(may_write=False, baseline="docs/base.jsonl", candidate="docs/q4.jsonl")
    kept = (ran["temp"] / "invar-nb/comment.md").read_text()
    assert ran["code"] == 1 and kept.startswith(MARK) and "Regressed" in kept and "cannot comment" in ran["said"]
    assert not (job.run(may_write=False, baseline="docs/base.jsonl", candidate="docs/q8.jsonl")["temp"] / "invar-nb/comment.md").exists()


def test_the_data_branch_holds_baseline_and_badge(job):
    job.data_branch()
    same = dict(baseline="base.jsonl", baseline_branch="quality")
    held = lambda name: git(job.origin, "show", f"quality:{name}")
    ran = job.run(**same, candidate="docs/q8.jsonl")  # a pull request writes nothing
    assert ran["code"] == 0 and git(job.origin, "ls-tree", "--name-only", "quality").split() == ["base.jsonl"], ran["said"]
    ran = job.run("push", **same, candidate="docs/q8.jsonl")
    assert ran["code"] == 0 and not ran["calls"] and json.loads(held("badge.json"))["message"] == "equivalent (+0.193 %)", ran["said"]
    assert held("base.jsonl") == (job.folder / "kept.jsonl").read_text() and "<svg" in held("result.svg")
    ran = job.run("push", **same, candidate="docs/q4.jsonl", update_baseline="true")  # a loss does not become the baseline
    assert ran["code"] == 1 and json.loads(held("badge.json"))["color"] == "red" and held("base.jsonl") == (job.folder / "kept.jsonl").read_text()
    ran = job.run("push", **same, candidate="docs/q8.jsonl", update_baseline="true")
    assert ran["code"] == 0 and json.loads(held("base.jsonl").splitlines()[0])["model"] == "q8", ran["said"]
    assert job.run("push", **same, candidate="docs/q8.jsonl", badge="false")["code"] == 0
    assert git(job.clone, "status", "--porcelain", "-uno") == "" and len(git(job.clone, "worktree", "list").splitlines()) == 1


def test_inputs_are_data_and_args_are_split_as_in_a_shell(job):
    trap = "$(touch trap); `touch trap` \"x"
    ran = job.run(baseline="docs/base.jsonl", candidate="docs/q8.jsonl\ndocs/q4.jsonl\n", margin="5%", args=f"--level 0.9 --study '{'a study.toml'}'", text="", study="")
    assert ran["code"] == 2 and "a study.toml" in ran["comment"] and not (job.clone / "trap").exists()
    ran = job.run(baseline="docs/base.jsonl", candidate="docs/q8.jsonl\ndocs/q4.jsonl\n", margin="5%", args="--level 0.9")
    d = json.loads(Path(ran["report"], "report.json").read_text())
    assert d["rules"]["margin"] == {"perplexity": .05} and d["rules"]["level"] == .9 and len(d["pairs"]) == 2
    for name in ("baseline", "candidate", "text", "questions", "margin", "require", "study", "baseline_branch"):
        job.run(**{"baseline": "docs/base.jsonl", "candidate": "docs/q8.jsonl", name: trap})
        assert not (job.clone / "trap").exists(), name
    ran = job.run(baseline="docs/base.jsonl", candidate="docs/q8.jsonl", extras="hf,gguf")
    assert f"-m pip install --quiet {ROOT}[hf,gguf]" in ran["calls"]


# --- the summary of a job, the baseline's file ------------------------------------------------------------------------------------------
def test_the_summary_of_a_job_is_written_where_there_is_one(docs, shell, monkeypatch):
    page = docs / "summary.md"
    shell("compare docs/base.jsonl docs/q8.jsonl --out a")
    assert not page.exists()
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    shell("compare docs/base.jsonl docs/q4.jsonl --out b")
    shell("evaluate docs/base.jsonl --out c")
    text = page.read_text()
    assert text.count(MARK) == 2 and text == "\n".join([(docs / "b/summary.md").read_text(), (docs / "c/summary.md").read_text(), ""])


def test_the_baseline_is_updated_after_a_completed_comparison_only(docs, shell):
    base, q4 = docs / "base.parquet", docs / "docs/q4.jsonl"
    from invar_nb import read_losses, write_losses
    write_losses(read_losses("docs/base.jsonl"), base)
    before = base.read_bytes()
    for line, code in (("compare base.parquet docs/few.jsonl", 3), ("compare base.parquet docs/q4.jsonl docs/q8.jsonl", 2), ("compare docs docs/q4.jsonl", 2)):
        assert shell(f"{line} --update-baseline -q")[0] == code and base.read_bytes() == before
    code, out, _ = shell("compare base.parquet docs/q4.jsonl --update-baseline -q --out r")
    assert code == 1 and out.splitlines()[-1] == "Updated: base.parquet now holds the losses of q4 on 300 windows."
    new, was = read_losses(base), read_losses(q4)
    assert (new.log_loss == was.log_loss).all() and new.data_id == was.data_id and shell("verify r")[0] == 0
    code, out, _ = shell("compare base.parquet docs/q4.jsonl -q --json")
    assert code == 0 and json.loads(out)["headline"].startswith("Identical")
    code, out, _ = shell("compare base.parquet docs/q8.jsonl --update-baseline -q --json --out s")
    assert json.loads(out)["updated_baseline"] == "base.parquet"
