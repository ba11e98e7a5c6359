"""The gate of a pull request: the action's shell lines run against a local repository, the study file's accepted losses, exports, `init`, and pytest."""

import json
import os
import random
import re
import shlex
import shutil
import stat
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from xml.etree import ElementTree

import pytest
from commands import main
from frozen_inputs import loss_rows, write_losses

from invar_nb import page_data

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
    for name in ("base", "q8", "q4", "tuned"):
        write_losses(folder / f"docs/{name}.jsonl", list(loss_rows(name, "docs", n)))
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
GH = r"""#!/bin/sh
printf '%s\n' "$*" >> "$GH_LOG"
case "$*" in
  *--paginate*) cat "$GH_COMMENTS" ;;
  *) if [ "$GH_MAY_WRITE" != yes ]; then echo "gh: Resource not accessible by integration (HTTP 403)" >&2; exit 1; fi
     for word; do case "$word" in body=@*) cat "${word#body=@}" > "$GH_LOG.body" ;; esac; done ;;
esac
"""
GIT = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


def git(folder, *words):
    return subprocess.run(
        ["git", *words],
        cwd=folder,
        env=os.environ | GIT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def executable(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


class Runner:
    "A job on GitHub: a clone of a local repository, temporary files, a fake gh."

    def __init__(self, folder):
        self.folder, self.origin, self.clone, self.comments = (
            folder,
            folder / "origin.git",
            folder / "clone",
            "",
        )
        (folder / "bin").mkdir()
        executable(folder / "bin/gh", GH)
        executable(
            folder / "bin/invar-nb", f'#!/bin/sh\nexec "{sys.executable}" -m invar_nb "$@"\n'
        )
        executable(
            folder / "bin/python",
            f'#!/bin/sh\nif [ "$2" = pip ]; then echo "$*" >> "$GH_LOG"; else exec "{sys.executable}" "$@"; fi\n',
        )
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
        return re.sub(
            r"\$\{\{\s*(.*?)\s*\}\}", lambda m: str(context.get(m[1], "")), str(text)
        )

    def run(self, event="pull_request", may_write=True, comments=(), **inputs):
        "The exit code of the job, its outputs, what gh was called with, and the last comment."
        temp = self.folder / "temp"
        shutil.rmtree(temp, ignore_errors=True)
        temp.mkdir()
        log = temp / "gh.log"
        log.touch()
        (temp / "comments").write_text("".join(f"{n}\n" for n in comments))
        context = {
            "github.event.repository.default_branch": "main",
            "github.token": "t",
            "github.server_url": "https://github.com",
            "github.repository": "o/r",
            "github.run_id": "7",
            "runner.temp": str(temp),
        }
        if event.startswith("pull_request"):
            context["github.event.pull_request.number"] = "12"
        given = {
            "extras": "",
            **{name.replace("_", "-"): value for name, value in inputs.items()},
        }
        assert given.keys() <= ACTION["inputs"].keys()
        for name, about in ACTION["inputs"].items():
            context[f"inputs.{name}"] = given.get(
                name, self.value(about.get("default", ""), context)
            )
        env = (
            os.environ
            | GIT
            | {
                "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
                "RUNNER_TEMP": str(temp),
                "GITHUB_REPOSITORY": "o/r",
                "GITHUB_EVENT_NAME": event,
                "GITHUB_REF": "refs/pull/12/merge"
                if event == "pull_request"
                else "refs/heads/main",
                "GITHUB_SHA": "abc",
                "GITHUB_ACTION_PATH": str(ROOT),
                "GITHUB_STEP_SUMMARY": str(temp / "summary.md"),
                "GH_LOG": str(log),
                "GH_COMMENTS": str(temp / "comments"),
                "GH_MAY_WRITE": "yes" if may_write else "no",
            }
        )
        code, said, used = 0, "", []
        for step in ACTION["runs"]["steps"]:
            if code and step.get("if") != "always()":
                continue
            if "uses" in step:
                used.append((step["uses"], self.value(step["with"]["path"], context)))
                continue
            out = temp / "out"
            out.write_text("")
            mine = {
                name: self.value(text, context) for name, text in step.get("env", {}).items()
            }
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                cwd=self.clone,
                env=env | mine | {"GITHUB_OUTPUT": str(out)},
                capture_output=True,
                text=True,
            )
            code, said = code or done.returncode, said + done.stdout + done.stderr
            for line in out.read_text().splitlines():
                name, _, value = line.partition("=")
                context[f"steps.{step['id']}.outputs.{name}"] = value
        outputs = {
            name: self.value(about["value"], context)
            for name, about in ACTION["outputs"].items()
        }
        body, kept = Path(f"{log}.body"), temp / "summary.md"
        assert used == [
            ("actions/upload-artifact@v4", str(temp / "invar-nb"))
        ]  # also of a job that failed
        return {
            "code": code,
            "said": said,
            "calls": log.read_text().splitlines(),
            "comment": body.read_text() if body.is_file() else None,
            "summary": kept.read_text() if kept.is_file() else "",
            "temp": temp,
            **outputs,
        }


@pytest.fixture
def job(tmp_path):
    runner = Runner(tmp_path)
    shutil.copy(runner.clone / "docs/base.jsonl", tmp_path / "kept.jsonl")
    return runner


def writes(ran):
    return [call for call in ran["calls"] if "--method" in call]


def test_no_input_stands_in_a_shell_line():
    'An input such as `x"; curl evil` would be run.'
    assert ACTION["runs"]["using"] == "composite" and all(
        step["shell"] == "bash" for step in ACTION["runs"]["steps"] if "run" in step
    )
    assert not [
        step["name"] for step in ACTION["runs"]["steps"] if "${{" in step.get("run", "")
    ]
    named = {
        name
        for step in ACTION["runs"]["steps"]
        for text in [*step.get("env", {}).values(), *step.get("with", {}).values()]
        for name in re.findall(r"inputs\.([\w-]+)", text)
    }
    assert named == {*ACTION["inputs"]}


def test_green_is_quiet(job):
    ran = job.run(baseline="docs/base.jsonl", candidate="docs/q8.jsonl")
    assert (
        ran["code"] == 0
        and ran["claim"] == "equivalent"
        and ran["exit-code"] == "0"
        and not writes(ran)
    ), ran["said"]
    assert [float(ran[name]) for name in ("change", "low", "high")] == [
        0.193,
        0.119,
        0.264,
    ] and ran["unit"] == "%"
    assert (
        ran["summary"].startswith(MARK)
        and "Equivalent within 2 %" in ran["summary"]
        and "::notice title=invar_nb::Equivalent within 2 %25" in ran["said"]
    )
    assert (
        Path(ran["report"], "report.html").is_file()
        and not (ran["temp"] / "invar-nb/comment.md").exists()
    )
    assert (
        len(
            writes(
                job.run(
                    baseline="docs/base.jsonl", candidate="docs/q8.jsonl", comment="always"
                )
            )
        )
        == 1
    )


def test_red_comments_and_fails(job):
    ran = job.run(baseline="docs/base.jsonl", candidate="docs/q4.jsonl")
    assert ran["code"] == 1 and ran["claim"] == "regressed" and ran["exit-code"] == "1", ran[
        "said"
    ]
    assert (
        len(writes(ran)) == 1
        and "--method POST repos/o/r/issues/12/comments" in writes(ran)[0]
    )
    assert (
        ran["comment"].startswith(MARK)
        and "Regressed: perplexity +2.80 %" in ran["comment"]
        and "actions/runs/7" in ran["comment"]
        and len(ran["comment"].encode()) < 4200
    )
    assert "::error title=invar_nb::Regressed: perplexity +2.80 %25" in ran["said"]
    assert not writes(
        job.run(baseline="docs/base.jsonl", candidate="docs/q4.jsonl", comment="never")
    )


def test_a_comment_that_is_there_is_updated_and_says_that_it_is_cured(job):
    for candidate, word in (("q4", "Regressed"), ("q8", "Equivalent")):
        ran = job.run(
            baseline="docs/base.jsonl", candidate=f"docs/{candidate}.jsonl", comments=(41, 42)
        )
        assert [call.split()[2:4] for call in writes(ran)] == [
            ["PATCH", "repos/o/r/issues/comments/41"]
        ] and word in ran["comment"]


def test_inconclusive_passes_with_a_warning_and_a_comment(job):
    same = dict(
        baseline="docs/start.jsonl", candidate="docs/few.jsonl", text="", args="--margin 0.2%"
    )
    ran = job.run(**same)
    assert (
        ran["code"] == 0
        and ran["claim"] == "inconclusive"
        and "::warning title=invar_nb::Inconclusive" in ran["said"]
        and len(writes(ran)) == 1
    )
    for more in ({"require": "not-worse"}, {"args": "--margin 0.2% --fail-inconclusive"}):
        ran = job.run(**same | more)
        assert (
            ran["code"] in (1, 4)
            and "::error" in ran["said"]
            and ran["exit-code"] == str(ran["code"])
        )


def test_an_accepted_loss_passes_and_is_seen(job):
    (job.clone / "study.toml").write_text(KNOWN)
    ran = job.run(study="study.toml")
    assert (
        ran["code"] == 0
        and ran["claim"] == "regressed"
        and len(writes(ran)) == 1
        and "accepted up to 3 %" in ran["comment"]
    ), ran["said"]
    assert (
        "::warning title=invar_nb::Regressed" in ran["said"]
        and "accepted up to 3 %25" in ran["said"]
    )


@pytest.mark.parametrize(
    "inputs, code, words",
    [
        (
            {"baseline": "docs/base.jsonl", "candidate": "docs/few.jsonl"},
            3,
            "score the baseline again",
        ),
        (
            {"baseline": "docs/gone.jsonl", "candidate": "docs/few.jsonl"},
            2,
            "got 'docs/gone.jsonl'. Check the path, or score it: invar-nb score MODEL --text FILE --out docs/gone.jsonl",
        ),
        ({"baseline": "docs/base.jsonl"}, 2, "no CANDIDATE"),
        (
            {
                "baseline": "base.jsonl",
                "candidate": "docs/q8.jsonl",
                "baseline_branch": "nowhere",
            },
            3,
            "There is no file base.jsonl on the branch nowhere. Score it and push it there: invar-nb score MODEL --text FILE --out base.jsonl",
        ),
    ],
)
def test_what_was_not_compared_is_never_green(job, inputs, code, words):
    ran = job.run(**inputs)
    assert (
        ran["code"] == code
        and ran["exit-code"] == str(code)
        and ran["claim"] == "refused"
        and ran["report"] == ""
    ), ran["said"]
    assert (
        ran["comment"].startswith(f"{MARK}\n**Nothing was compared (exit code {code}).**\n`")
        and words in ran["comment"]
        and words in ran["summary"]
        and f"::error title=invar_nb::Nothing was compared (exit code {code})." in ran["said"]
    )


def test_a_crash_is_red_and_said(job):
    executable(job.folder / "bin/invar-nb", "#!/bin/sh\nexit 5\n")
    ran = job.run(baseline="docs/base.jsonl", candidate="docs/q8.jsonl")
    assert ran["code"] == 5 and ran["claim"] == "failed" and "gave no answer" in ran["comment"]
    executable(job.folder / "bin/invar-nb", "#!/bin/sh\nexit 0\n")
    assert job.run(baseline="docs/base.jsonl", candidate="docs/q8.jsonl")["code"] == 5


def test_a_fork_keeps_its_comment_in_the_artifact(job):
    ran = job.run(may_write=False, baseline="docs/base.jsonl", candidate="docs/q4.jsonl")
    kept = (ran["temp"] / "invar-nb/comment.md").read_text()
    assert (
        ran["code"] == 1
        and kept.startswith(MARK)
        and "Regressed" in kept
        and "cannot comment" in ran["said"]
    )
    assert not (
        job.run(may_write=False, baseline="docs/base.jsonl", candidate="docs/q8.jsonl")["temp"]
        / "invar-nb/comment.md"
    ).exists()


def test_the_data_branch_holds_baseline_and_badge(job):
    job.data_branch()
    same = dict(baseline="base.jsonl", baseline_branch="quality")
    held = lambda name: git(job.origin, "show", f"quality:{name}")
    ran = job.run(**same, candidate="docs/q8.jsonl")  # a pull request writes nothing
    assert ran["code"] == 0 and git(
        job.origin, "ls-tree", "--name-only", "quality"
    ).split() == ["base.jsonl"], ran["said"]
    ran = job.run("push", **same, candidate="docs/q8.jsonl")
    assert (
        ran["code"] == 0
        and not ran["calls"]
        and json.loads(held("badge.json"))["message"] == "equivalent (+0.193 %)"
    ), ran["said"]
    assert held("base.jsonl") == (job.folder / "kept.jsonl").read_text() and "<svg" in held(
        "result.svg"
    )
    ran = job.run(
        "push", **same, candidate="docs/q4.jsonl", update_baseline="true"
    )  # a loss does not become the baseline
    assert (
        ran["code"] == 1
        and json.loads(held("badge.json"))["color"] == "red"
        and held("base.jsonl") == (job.folder / "kept.jsonl").read_text()
    )
    (job.clone / "study.toml").write_text(
        KNOWN.partition("[[")[2].join(["[[", ""]).replace("int4", "candidate")
    )
    noise, lines = random.Random(2), (job.clone / "docs/q8.jsonl").read_text().splitlines()
    (job.clone / "noisy.jsonl").write_text(
        "".join(
            re.sub(r"[\d.]+(?=}$)", lambda m: f"{float(m[0]) + noise.gauss(0, 0.5):.6f}", line)
            + "\n"
            for line in lines
        )
    )
    passed = [
        ({"study": "study.toml", "candidate": "docs/q4.jsonl"}, "regressed"),
        ({"candidate": "noisy.jsonl"}, "inconclusive"),
        (
            {"study": "study.toml", "candidate": "docs/q4.jsonl", "args": "--force"},
            "regressed",
        ),
    ]
    for inputs, claim in passed:  # exit 0, and no reason to compare with it from now on
        ran = job.run("push", **same, **inputs, update_baseline="true")
        assert (
            ran["code"] == 0
            and ran["claim"] == claim
            and held("base.jsonl") == (job.folder / "kept.jsonl").read_text()
        ), ran["said"]
    ran = job.run("push", **same, candidate="docs/q8.jsonl", update_baseline="true")
    assert (
        ran["code"] == 0 and json.loads(held("base.jsonl").splitlines()[0])["model"] == "q8"
    ), ran["said"]
    ran = job.run("push", **same, candidate="docs/q8.jsonl", badge="false")
    assert ran["code"] == 0, ran
    assert (
        git(job.clone, "status", "--porcelain", "-uno") == ""
        and len(git(job.clone, "worktree", "list").splitlines()) == 1
    )


@pytest.mark.parametrize(
    "event, writes",
    [
        ("push", True),
        ("schedule", True),
        ("workflow_dispatch", True),
        ("pull_request_target", False),
        ("issue_comment", False),
        ("workflow_run", False),
        ("pull_request", False),
    ],
)
def test_what_a_fork_proposes_becomes_no_baseline_and_no_badge(job, event, writes):
    "pull_request_target, issue_comment and workflow_run have the ref of the default branch, and may hold a fork's files."
    job.data_branch()
    files = lambda: {
        name: git(job.origin, "show", f"quality:{name}")
        for name in git(job.origin, "ls-tree", "--name-only", "quality").split()
    }
    before = files()
    done = job.run(
        event=event,
        baseline_branch="quality",
        baseline="base.jsonl",
        candidate="docs/q8.jsonl",
        update_baseline="true",
        pull_request_target="true",
    )
    assert done["code"] == 0 and done["claim"] in ("equivalent", "improved", "identical"), (
        done["said"]
    )
    assert (files() != before) is writes and ("badge.json" in files()) is writes


def test_a_fork_is_not_read_with_the_secrets_of_the_repository(job):
    done = job.run(
        event="pull_request_target", baseline="docs/base.jsonl", candidate="docs/q8.jsonl"
    )
    assert (
        (done["code"], done["claim"], done["report"]) == (3, "refused", "")
        and "::error title=invar_nb::Nothing was compared" in done["said"]
        and "set the input pull-request-target: true" in done["said"]
    )
    assert "invar-nb compare" not in done["said"] and "pull_request_target" in done["comment"]
    done = job.run(
        event="pull_request_target",
        baseline="docs/base.jsonl",
        candidate="docs/q8.jsonl",
        pull_request_target="true",
    )
    assert done["code"] == 0 and done["report"]


def test_inputs_are_data_and_args_are_split_as_in_a_shell(job):
    trap = '$(touch trap); `touch trap` "x'
    ran = job.run(
        baseline="docs/base.jsonl",
        candidate="docs/q8.jsonl\ndocs/q4.jsonl\n",
        margin="5%",
        args=f"--level 0.9 --study '{'a study.toml'}'",
        text="",
        study="",
    )
    assert (
        ran["code"] == 2
        and "a study.toml" in ran["comment"]
        and not (job.clone / "trap").exists()
    )
    ran = job.run(
        baseline="docs/base.jsonl",
        candidate="docs/q8.jsonl\ndocs/q4.jsonl\n",
        margin="5%",
        args="--level 0.9",
    )
    d = json.loads(Path(ran["report"], "report.json").read_text())
    assert (
        d["rules"]["margin"] == {"perplexity": 0.05}
        and d["rules"]["level"] == 0.9
        and len(d["pairs"]) == 2
    )
    for name in (
        "baseline",
        "candidate",
        "text",
        "questions",
        "margin",
        "require",
        "study",
        "baseline_branch",
    ):
        job.run(**{"baseline": "docs/base.jsonl", "candidate": "docs/q8.jsonl", name: trap})
        assert not (job.clone / "trap").exists(), name
    ran = job.run(
        baseline="docs/base.jsonl",
        candidate="docs/q8.jsonl",
        args="--profile dev --text 'a --require equivalent",
    )  # no word is dropped
    assert (
        ran["code"] == 2
        and "must close its quotes; got: --profile dev --text 'a" in ran["comment"]
        and "invar-nb compare" not in ran["calls"]
    ), ran["comment"]
    ran = job.run(baseline="docs/base.jsonl", candidate="docs/q8.jsonl", extras="hf,gguf")
    assert f"-m pip install --quiet {ROOT}[hf,gguf]" in ran["calls"]
    ran = job.run(baseline="docs/base.jsonl", candidate="docs/q8.jsonl", extras="none")
    assert f"-m pip install --quiet {ROOT}" in ran["calls"]


# --- the summary of a job, the baseline's file ------------------------------------------------------------------------------------------
def test_the_summary_of_a_job_is_written_where_there_is_one(docs, shell, monkeypatch):
    page = docs / "summary.md"
    shell("compare docs/base.jsonl docs/q8.jsonl --out a")
    assert not page.exists()
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    shell("compare docs/base.jsonl docs/q4.jsonl --out b")
    shell("evaluate docs/base.jsonl --out c")
    text = page.read_text()
    assert text.count(MARK) == 2 and text == "\n".join(
        [(docs / "b/summary.md").read_text(), (docs / "c/summary.md").read_text(), ""]
    )


def test_a_refusal_is_written_to_the_summary_of_a_job(docs, shell, monkeypatch):
    "Before, it stood in the log alone."
    page = docs / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    for line, code in (
        ("compare docs/base.jsonl docs/few.jsonl --out a", 3),
        ("compare docs/base.jsonl docs/none.jsonl", 2),
        ("compare docs/base.jsonl docs/q4.jsonl --bogus", 2),
    ):
        page.unlink(missing_ok=True)
        found, _, err = shell(line)
        last = err.splitlines()[-1]
        assert found == code and last.startswith("invar-nb: ")
        assert page.read_text() == (
            f"**No answer: exit code {code}.**\n\n```text\n{last}\n```\n\n"
        )


def test_the_baseline_is_updated_after_a_completed_comparison_only(docs, shell):
    base, q4 = docs / "base.parquet", docs / "docs/q4.jsonl"
    from invar_nb import read_losses, write_losses

    write_losses(read_losses("docs/base.jsonl"), base)
    before = base.read_bytes()
    for line, code in (
        ("compare base.parquet docs/few.jsonl", 3),
        ("compare base.parquet docs/q4.jsonl docs/q8.jsonl", 2),
        ("compare docs docs/q4.jsonl", 2),
    ):
        assert shell(f"{line} --update-baseline -q")[0] == code and base.read_bytes() == before
    code, out, _ = shell("compare base.parquet docs/q4.jsonl --update-baseline -q --out r")
    assert (
        code == 1
        and base.read_bytes() == before
        and out.splitlines()[-1]
        == "Kept: base.parquet, since the candidate regressed. To take it all the same, add --force."
    )
    (docs / "study.toml").write_text(KNOWN.replace("docs/base.jsonl", "base.parquet"))
    code, out, _ = shell(
        "compare --study study.toml --update-baseline -q --json --out accepted"
    )
    d = json.loads(out)
    assert (code, d["exit"]["rule"], d["updated_baseline"]) == (
        0,
        "accepted_loss",
        None,
    ) and base.read_bytes() == before
    code, out, _ = shell(
        "compare base.parquet docs/q4.jsonl --update-baseline --force -q --out r"
    )
    assert (
        code == 1
        and out.splitlines()[-1]
        == "Updated: base.parquet now holds the losses of q4 on 300 windows."
    )
    new, was = read_losses(base), read_losses(q4)
    assert (
        (new.log_loss == was.log_loss).all()
        and new.data_id == was.data_id
        and shell("verify r")[0] == 0
    )
    code, out, _ = shell("compare base.parquet docs/q4.jsonl -q --json")
    assert code == 0 and json.loads(out)["headline"].startswith("Identical")
    code, out, _ = shell(
        "compare base.parquet docs/q8.jsonl --update-baseline -q --json --out s"
    )
    assert json.loads(out)["updated_baseline"] == "base.parquet"


@pytest.mark.parametrize(
    "more, code, why",
    [
        ("", 0, "the result is inconclusive"),
        ("--fail-inconclusive", 4, "the result is inconclusive"),
        ("--require not-worse", 1, "not worse is required, and was not shown"),
        ("--require equivalent", 1, "equivalent is required, and was not shown"),
    ],
)
def test_a_baseline_is_not_renewed_by_what_was_not_shown(docs, shell, more, code, why):
    from invar_nb import read_losses, write_losses

    start, base = read_losses("docs/start.jsonl"), docs / "base.parquet"
    write_losses(start, base)
    before, line = (
        base.read_bytes(),
        f"compare base.parquet docs/few.jsonl --margin 0.2% {more} --update-baseline -q",
    )
    ended, out, _ = shell(line)
    assert (
        ended == code
        and base.read_bytes() == before
        and out.splitlines()[-1]
        == f"Kept: base.parquet, since {why}. To take it all the same, add --force."
    )
    assert (
        json.loads(shell(f"{line} --json")[1])["updated_baseline"] is None
        and base.read_bytes() == before
    )
    assert shell(f"{line} --force --out r")[0] == code and read_losses(base).model == "few"


def test_a_baseline_is_renewed_by_a_candidate_that_is_shown_not_to_be_worse(docs, shell):
    "Its interval reaches far below zero, and not up to the margin: inconclusive by itself, and no loss."
    from invar_nb import read_losses, write_losses

    base, noise = read_losses("docs/base.jsonl"), random.Random(2)
    write_losses(base, docs / "base.parquet")
    write_losses(
        base.changed(
            log_loss=base.log_loss + [noise.gauss(-0.01, 0.25) for _ in base.log_loss],
            model="better",
        ),
        docs / "better.parquet",
    )
    d = json.loads(
        shell(
            "compare base.parquet better.parquet --require not-worse --update-baseline -q --json"
        )[1]
    )
    assert (d["claim"], d["exit"]["rule"], d["updated_baseline"]) == (
        "inconclusive",
        "not_worse",
        "base.parquet",
    ) and read_losses(docs / "base.parquet").model == "better"


# --- a loss that is accepted -------------------------------------------------------------------------------------------------------------
KNOWN = '[arms]\nbaseline = "docs/base.jsonl"\nint4 = "docs/q4.jsonl"\n[[accepted]]\ncandidate = "int4"\nup_to = "3%"\nreason = "ticket 123"\nexpires = 2027-03-01\n'
DAY = {
    "before": 1_700_000_000,
    "the last day": 1_803_859_200,
    "after": 1_803_945_600,
}  # SOURCE_DATE_EPOCH; the second is 2027-03-01


def judged(docs, shell, toml, *more):
    "The document of a comparison by a study file; its report is verified, whatever the day."
    (docs / "study.toml").write_text(toml)
    shutil.rmtree(docs / "r", ignore_errors=True)
    code, out, err = shell("compare --study study.toml --out r -q --json", *more)
    assert out, err
    assert code not in (0, 1) or shell("verify r")[0] == 0
    return json.loads(out)


def marks_with_losses(docs, n=600):
    "Two tables of marks: `correct` lost much in the slice law, `polite` some everywhere."
    rows = {"old": [], "new": []}
    for i in range(n):
        kind = ("law", "code", "math")[i % 3]
        right, polite = int(i % 10 < 7), int(i % 5 < 4)
        lost = right and kind == "law" and i % 4 == 0
        rows["old"].append((f"q{i}", kind, right, polite))
        rows["new"].append((f"q{i}", kind, right - bool(lost), polite * (i % 8 != 1)))
    for name, cells in rows.items():
        lines = ["id,kind,correct,polite", *(",".join(map(str, row)) for row in cells)]
        (docs / f"{name}.csv").write_text("\n".join(lines) + "\n")


MARKS = (
    '[arms]\nbaseline = "old.csv"\nnew = "new.csv"\n[columns]\nscore = ["correct", "polite"]\n'
    '[rules]\nby = ["kind"]\nbetter = ["polite=higher"]\n'
)


def test_the_rows_that_a_report_writes_accept_its_losses_slices_too(docs, shell):
    marks_with_losses(docs)
    d = judged(docs, shell, MARKS)
    lost = [row["key"] for row in d["rows"] if row["claim"] == "regressed"]
    assert {"kind law", None} <= {key["slice"] for key in lost} and d["exit"]["code"] == 1
    assert "report.md and report.html have the rows" in (docs / "r/summary.md").read_text()
    assert "[[accepted]]\nup_to" in (docs / "r/report.html").read_text()
    pasted = re.search("```toml\n(.*?)```", (docs / "r/report.md").read_text(), re.S)[1]
    assert 3 <= pasted.count("[[accepted]]") <= len(lost) and 'slice = "kind law"' in pasted
    accepted = judged(docs, shell, MARKS + pasted)
    assert accepted["exit"]["rule"] == "accepted_loss", accepted["exit"]["because"]
    assert "correct regressed on kind law, accepted up to" in accepted["exit"]["because"]
    assert "```toml" not in (docs / "r/summary.md").read_text()
    code, out, _ = shell("compare --study study.toml --out again -q")
    assert code == 0 and "Known loss?" not in out


def test_rows_of_several_models_are_not_averaged_on_advice(docs, shell):
    "The advice for repeated ids led to the mean of three different models."
    rows = [
        {"model": model, "prompt_id": f"q{i}", "correct": (i * step) % 7 > 2}
        for model, step in (("base", 1), ("int8", 2), ("int4", 3))
        for i in range(60)
    ]
    (docs / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    cure = "invar-nb compare all.jsonl --column id=prompt_id --column arm=model=base,int8,int4"
    for line in (
        "compare all.jsonl",
        "compare all.jsonl --column id=prompt_id",
        "evaluate all.jsonl --column id=prompt_id",
        "compare all.jsonl docs/all2.jsonl --column id=prompt_id",
    ):
        (docs / "docs/all2.jsonl").write_text((docs / "all.jsonl").read_text())
        code, _, err = shell(f"{line} -q")
        assert code in (2, 3) and err.count("\n") == 1, err
        assert cure in err and "evaluate" not in err and ".." not in err, err
        if "repeats" in err:
            assert err.index(cure) < err.index("--set repeats=mean") and "; else say" in err
    code, out, err = shell(f"{cure.removeprefix('invar-nb ')} -q")
    assert code in (0, 1) and "2 candidates" in out, err


def test_the_terminal_leads_to_the_row_where_a_study_file_is_used(docs, shell):
    marks_with_losses(docs)
    (docs / "study.toml").write_text(MARKS)
    _, out, _ = shell("compare --study study.toml --out r -q")
    assert "Known loss? The [[accepted]] to paste is in r/report.md" in out
    _, out, _ = shell("compare old.csv new.csv --score correct --out s -q")
    assert "[[accepted]]" not in out


def test_the_terminal_says_what_lifts_a_loss_that_no_new_row_does(docs, shell):
    "It led to rows in summary.md, which had none, and to rows that do not lift `required`."
    marks_with_losses(docs)
    one = MARKS.replace('["correct", "polite"]', '["correct"]').replace("better", "# ")
    one = one.replace('by = ["kind"]\n', "")
    lapsed = '[[accepted]]\nup_to = "90%"\nreason = "t"\nexpires = 2020-01-01\n'
    (docs / "study.toml").write_text(one + lapsed)
    code, out, _ = shell("compare --study study.toml --out r -q")
    assert code == 1 and "Known loss? Renew expires or up_to" in out and "to paste" not in out
    sliced = one + 'by = ["kind"]\nrequired = "slices"\n'
    (docs / "study.toml").write_text(sliced)
    code, out, _ = shell("compare --study study.toml --out s -q")
    assert code == 1 and "to paste" not in out
    assert 'does not lift required = "slices": write required = "not-worse"' in out
    assert "```toml" not in (docs / "s/summary.md").read_text()
    valid = lapsed.replace("2020", "2099")
    (docs / "study.toml").write_text(sliced + valid)
    assert shell("compare --study study.toml --out t -q")[0] == 1
    (docs / "study.toml").write_text(sliced.replace('"slices"', '"not-worse"') + valid)
    code, out, _ = shell("compare --study study.toml --out u -q")
    assert code == 0, out


def test_an_accepted_loss_of_one_slice_accepts_no_other(docs, shell):
    marks_with_losses(docs)
    known = '[[accepted]]\nup_to = "40%"\nreason = "t"\nexpires = 2099-01-01\n'
    one_score = MARKS.replace('["correct", "polite"]', '["correct"]').replace("better", "# ")
    only_code = judged(docs, shell, one_score + known + 'slice = "kind code"\n')
    assert only_code["exit"]["rule"] == "primary_regressed"
    for wrong, said in (
        ('slice = "kind lav"', "Did you mean 'kind law'?"),
        ('slice = ""', None),
    ):
        (docs / "study.toml").write_text(one_score + known + wrong + "\n")
        code, _, err = shell("compare --study study.toml --out w -q --force")
        assert (said is None and code == 0) or (code == 2 and said in err), err


@pytest.mark.parametrize(
    "day, code, rule, said",
    [
        (
            "before",
            0,
            "accepted_loss",
            "perplexity regressed, accepted up to 3 % until 2027-03-01: ticket 123.",
        ),
        ("the last day", 0, "accepted_loss", "accepted up to 3 %"),
        (
            "after",
            1,
            "primary_regressed",
            "accepted until 2027-03-01, which has passed: ticket 123",
        ),
    ],
)
def test_an_accepted_loss_passes_until_its_day(
    docs, shell, monkeypatch, day, code, rule, said
):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(DAY[day]))
    d = judged(docs, shell, KNOWN)
    assert (d["exit"]["code"], d["exit"]["rule"]) == (code, rule) and said in d["exit"][
        "because"
    ]
    assert (
        d["claim"] == "regressed"
        and d["rows"][0]["claim"] == "regressed"
        and d["headline"].startswith("Regressed")
    )
    assert any(
        line == "The accepted loss of int4 ended on 2027-03-01: ticket 123."
        for line in d["warnings"]
    ) == (code == 1)
    text = (docs / "r/summary.md").read_text()
    assert said in text and "| regressed |" in text
    assert_report_says(shell, docs, is_accepted=code == 0)
    assert json.loads((docs / "r/badge.json").read_text())["color"] == (
        "red" if code else "yellow"
    )
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(DAY["after"] if code == 0 else DAY["before"]))
    assert shell("verify r")[0] == 0  # no clock


@pytest.mark.parametrize(
    "edit, code, said",
    [
        (
            ("3%", "1%"),
            1,
            "at least +2.09 % is shown, more than the 1 % accepted until 2027-03-01: ticket 123",
        ),
        (('candidate = "int4"\n', ""), 0, "accepted up to 3 %"),
        (('"int4"\nup', '"int4"\nmetric = "perplexity"\nup'), 0, "accepted up to 3 %"),
        (('"3%"', "0.03"), 0, "accepted up to 3 %"),
        (("[arms]", '[rules]\nrequired = "not-worse"\n[arms]'), 0, "accepted up to 3 %"),
        (("[arms]", "[rules]\nfail_inconclusive = true\n[arms]"), 0, "accepted"),
    ],
)
def test_what_is_accepted(docs, shell, edit, code, said):
    assert edit[0] in KNOWN
    d = judged(docs, shell, KNOWN.replace(*edit))
    assert d["exit"]["code"] == code and said in d["exit"]["because"]
    assert_report_says(shell, docs, is_accepted=code == 0)


def assert_report_says(shell, docs, *, is_accepted):
    "JUnit and the page call a loss accepted where the exit code does."
    case = ElementTree.fromstring(shell("export r")[1])[0][0]
    assert [kid.tag for kid in case if kid.tag != "properties"] == [
        "skipped" if is_accepted else "failure"
    ]
    assert ("(accepted)" in (docs / "r/report.md").read_text()) == is_accepted


def test_a_loss_is_accepted_in_python_as_in_a_study_file(docs, monkeypatch):
    from datetime import date, datetime

    from invar_nb import Rules, UsageError
    from invar_nb.ci import assert_not_worse

    for up_to, expires in (
        ("50%", date(2027, 3, 1)),
        (0.5, "2027-03-01"),
        (" 50 %", datetime(2027, 3, 1, 12)),
    ):
        (loss,) = Rules(
            accepted=[{"up_to": up_to, "reason": "ticket", "expires": expires}]
        ).accepted
        assert (loss.up_to, loss.expires) == (0.5, "2027-03-01")
        monkeypatch.setenv("SOURCE_DATE_EPOCH", str(DAY["before"]))
        assert (
            assert_not_worse("docs/base.jsonl", "docs/q4.jsonl", accepted=[loss]).claim
            == "regressed"
        )
        monkeypatch.setenv("SOURCE_DATE_EPOCH", str(DAY["after"]))
        with pytest.raises(
            AssertionError, match="accepted until 2027-03-01, which has passed"
        ):
            assert_not_worse("docs/base.jsonl", "docs/q4.jsonl", accepted=[loss])
    for wrong in (
        {"up_to": "100%"},
        {"up_to": "0%"},
        {"up_to": "3"},
        {"up_to": "3%", "metric": "brier"},
        {"expires": 20270301},
    ):
        with pytest.raises(UsageError):
            Rules(
                accepted=[{"up_to": 0.5, "reason": "ticket", "expires": "2027-03-01", **wrong}]
            )


@pytest.mark.parametrize(
    "day",
    [
        "20260101",
        "2026-W01-1",
        "2026-1-1",
        "2026-02-30",
        "２０２６-01-01",
        None,
        b"2026-01-01",
    ],
)
def test_a_last_day_has_one_spelling(day):
    from invar_nb import Rules, UsageError

    with pytest.raises(
        UsageError, match="the last day on which it is accepted.*Write expires = 2027-03-01"
    ):
        Rules(accepted=[{"up_to": 0.5, "reason": "t", "expires": day}])


def test_a_day_that_has_passed_counts_in_python_too(docs, monkeypatch, tmp_path):
    "Also in compare and study; what is stored needs no clock."
    from invar_nb import compare, pair, read_losses, verify

    both = pair(read_losses("docs/base.jsonl"), read_losses("docs/q4.jsonl"))
    for day, rule in (("after", "primary_regressed"), ("the last day", "accepted_loss")):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", str(DAY[day]))
        report = compare(
            both, accepted=[{"up_to": 0.5, "reason": "ticket", "expires": "2027-03-01"}]
        ).report()
        assert report.exit.rule == rule
        folder = report.save(tmp_path / day)
        monkeypatch.setenv(
            "SOURCE_DATE_EPOCH", str(DAY["before" if day == "after" else "after"])
        )
        assert verify(folder).report.exit.rule == rule


def test_a_requirement_is_a_key_of_the_study_file_too(docs, shell):
    study = KNOWN.replace("[arms]", '[rules]\nrequired = "not-worse"\n[arms]')
    assert judged(docs, shell, study)["rules"]["required"] == "not-worse"
    typed = judged(docs, shell, study, "--require", "equivalent")
    assert typed["rules"]["required"] == "equivalent"
    set_by_key = judged(docs, shell, KNOWN, "--set", "required=equivalent")
    assert set_by_key["rules"]["required"] == "equivalent"


def test_one_loss_is_accepted_and_another_is_not(docs, shell):
    both = KNOWN.replace("[[acc", 'tuned = "docs/tuned.jsonl"\nbad = "docs/bad.jsonl"\n[[acc')
    shutil.copy(docs / "docs/q4.jsonl", docs / "docs/bad.jsonl")
    d = judged(docs, shell, both)
    assert d["exit"]["because"] == "perplexity regressed on bad." and d["exit"]["code"] == 1
    states = {
        one.get("name"): [kid.tag for kid in one if kid.tag != "properties"]
        for one in ElementTree.fromstring(shell("export r")[1])[0]
    }
    assert states == {
        "bad: perplexity": ["failure"],
        "int4: perplexity": ["skipped"],
        "tuned: perplexity": [],
        "gate": ["failure"],
    }
    assert re.search(
        r'skipped message="regressed: \+2\.80 % \([^)]*\), accepted up to 3 % until 2027-03-01: ticket 123"',
        shell("export r")[1],
    )
    d = judged(docs, shell, both.replace('bad = "docs/bad.jsonl"\n', ""))
    assert (
        d["exit"]["because"]
        == "perplexity regressed on int4, accepted up to 3 % until 2027-03-01: ticket 123."
    )


def test_a_reason_names_a_candidate_on_a_text_as_one_thing(docs):
    "`regressed on q2, sci; q4, sci` read as four things."
    from invar_nb import Rules, read_losses, report_of, study

    losses = {name: read_losses(f"docs/{name}.jsonl") for name in ("base", "q4")}
    arms = {
        (name, part): losses["base" if name == "baseline" else "q4"]
        for name in ("baseline", "q2", "q4")
        for part in ("law", "sci")
    }
    known = [
        dict(up_to=0.5, reason="ticket", expires="2099-01-01", part=part)
        for part in ("law", "sci")
    ]
    for more, said in (
        ({"deciding": ["sci"]}, "perplexity regressed for q2 on sci, q4 on sci."),
        ({"accepted": known}, "perplexity regressed for q2 on law, accepted up to 50 %"),
    ):
        assert report_of(study(arms, Rules(**more))).exit.because.startswith(said), more
    one = {key: arm for key, arm in arms.items() if key[0] != "q2"}
    assert report_of(study(one)).exit.because.startswith("perplexity regressed on law, sci")


def test_slices_go_with_their_metric_and_other_metrics_do_not(docs, shell):
    def rows(wrong, spanish=0):
        missed = lambda i: i < wrong or i % 3 == 0 and i // 3 < spanish
        return "id,label,prediction,language\n" + "".join(
            f"q{i},{'yn'[i % 2]},{'yn'[(i + missed(i)) % 2]},{'en' if i % 3 else 'es'}\n"
            for i in range(200)
        )

    (docs / "old.csv").write_text(rows(10))
    (docs / "new.csv").write_text(rows(60))
    toml = '[arms]\nbaseline = "old.csv"\nnew = "new.csv"\n[rules]\nby = ["language"]\n[[accepted]]\nup_to = "40%"\nreason = "known"\nexpires = 2027-03-01\n'
    d = judged(docs, shell, toml)
    lost = {
        (row["key"]["metric"], row["key"]["slice"])
        for row in d["rows"]
        if row["claim"] == "regressed"
    }
    assert (
        {("accuracy", "language es"), ("macro_f1", None)} <= lost
        and d["exit"]["rule"] == "secondary_regressed"
        and d["exit"]["because"].startswith("macro F1 regressed")
    ), lost
    two = toml + toml[toml.index("[[acc") :] + 'metric = "macro_f1"\n'
    d = judged(docs, shell, two)
    assert (
        d["exit"]["rule"] == "accepted_loss"
        and d["exit"]["because"].count("accepted up to") == 6  # of each slice, too
        and "accuracy regressed on language es, accepted up to" in d["exit"]["because"]
    )
    assert (
        judged(docs, shell, two.replace("40%", "10%"))["exit"]["rule"] == "primary_regressed"
    )
    (docs / "new.csv").write_text(rows(10, spanish=45))  # a slice lost much more than 40 %
    alone = toml.replace("[[acc", 'metrics = ["accuracy"]\n[[acc')
    assert (
        judged(docs, shell, alone)["exit"]["because"].startswith(
            "accuracy regressed on language es"
        )
        and judged(docs, shell, alone.replace("40%", "90%"))["exit"]["rule"] == "accepted_loss"
    )


@pytest.mark.parametrize(
    "edit, said",
    [
        (("reason", "raison"), "raison"),
        (("expires = 2027-03-01\n", ""), "expires"),
        (("2027-03-01", '"soon"'), "date"),
        (('"3%"', '"3 nats"'), "[[accepted]] up_to"),
        (('"3%"', '"300%"'), "below 1"),
        (('candidate = "int4"', 'candidate = "int8"'), "candidate of accepted"),
        (('candidate = "int4"', 'part = "law"'), "part of accepted"),
        (('"ticket 123"', '" "'), "reason"),
        (('candidate = "int4"', 'metric = "accuracy"'), "must name a metric that is compared"),
        (("[[accepted]]", "[accepted]"), "accepted"),
    ],
)
def test_a_wrong_accepted_loss_is_refused_in_one_line(docs, shell, edit, said):
    assert edit[0] in KNOWN
    (docs / "study.toml").write_text(KNOWN.replace(*edit))
    code, out, err = shell("compare --study study.toml --out r -q")
    assert (
        code == 2
        and not out
        and said in err
        and err.count("\n") == 1
        and not (docs / "r").exists()
    ), err


# --- exports, init, pytest ---------------------------------------------------------------------------------------------------------------
def test_junit_has_the_numbers_of_the_report(docs, shell):
    assert shell("compare docs/base.jsonl docs/q8.jsonl docs/q4.jsonl --out r -q")[0] == 1
    d = json.loads((docs / "r/report.json").read_text())
    want = {
        row["key"]["candidate"]: [
            100 * (x - 1) for x in (row["value"]["ratio"], *row["value"]["display_ci"])
        ]
        for row in d["rows"]
        if row["role"] == "lead"
    }
    for one in ElementTree.fromstring(shell("export r")[1])[0]:
        known = {p.get("name"): p.get("value") for p in one.iter("property")}
        if one.get("name") != "gate":
            name = one.get("name").partition(":")[0]
            assert [float(known[key]) for key in ("change", "low", "high")] == pytest.approx(
                want[name], rel=1e-5
            ) and known["claim"] in ("equivalent", "regressed")
    text = shell("export r/report.json")[1]
    assert json.loads(shell("export r --json")[1])["text"] == text.rstrip("\n")
    assert shell("export r --to bencher")[0] == 2
    assert shell("export nowhere")[0] == 2


def test_what_init_writes_works(docs, shell):
    pytest.importorskip("torch")
    import invar_nb

    models = Path(invar_nb.__file__).parent / "demo_models"
    (docs / "my text.jsonl").write_text(
        "".join(
            json.dumps({"text": f"Sentence {i} is read, and then number {i * i} of them all."})
            + "\n"
            for i in range(60)
        )
    )
    (docs / "models").mkdir()
    for name, source in (("base", "base"), ("q8", "tuned")):
        (docs / "models" / name).symlink_to(models / source)
    code, out, err = shell("init --candidate models/q8 --text", "my text.jsonl")
    assert code == 0, err
    score, add = [line.strip() for line in out.splitlines()[-2:]]
    code, out, err = shell("compare --study study.toml -q --out r")
    assert (
        code == 2 and "score it: invar-nb score MODEL --study FILE --out base.parquet" in err
    )
    assert shell(score.removeprefix("invar-nb "), "-q")[0] == 0
    (docs / "other.jsonl").write_text(
        json.dumps({"text": "Another text, which is short. " * 50}) + "\n"
    )
    code, out, err = shell("compare --study study.toml -q --out r --text other.jsonl")
    assert code == 3 and err.endswith(
        "or score it again: invar-nb score MODEL --text other.jsonl --out FILE --force.\n"
    ), err
    assert (
        add
        == "git add .gitignore base.parquet 'my text.jsonl' .github/workflows/model-quality.yml study.toml"
    )
    job = yaml.safe_load((docs / ".github/workflows/model-quality.yml").read_text())
    step = job["jobs"]["quality"]["steps"][-1]
    assert (
        step["uses"].startswith("invar-nb/invar_nb@")
        and {*step["with"]} <= {*ACTION["inputs"]}
        and job[True] == {"pull_request": None, "push": {"branches": ["main"]}}
    )
    code, out, err = shell(f"compare --study {step['with']['study']} -q --json --out r")
    assert code in (0, 1) and json.loads(out)["rules"]["margin"] == {"perplexity": 0.02}, err
    text = (docs / "study.toml").read_text()  # what stands there as a comment works too
    (docs / "study.toml").write_text(
        re.sub(
            r"^# (?=\[\[acc|candidate|up_to|reason|expires|required|fail_inc)",
            "",
            text,
            flags=re.M,
        ).replace("3%", "90%")
    )
    d = json.loads(shell("compare --study study.toml -q --json --out s")[1])
    assert (
        d["rules"]["required"] == "not-worse"
        and d["rules"]["fail_inconclusive"]
        and d["rules"]["accepted"][0]["up_to"] == 0.9
    )
    before = {path: path.read_bytes() for path in docs.rglob("*.*ml")}
    (docs / ".github/workflows/model-quality.yml").rename(docs / "w.yml")
    assert (
        shell("init")[0] == 2
        and (docs / "study.toml").read_bytes() == before[docs / "study.toml"]
        and not (docs / ".github/workflows/model-quality.yml").exists()
    )
    (docs / "study.toml").unlink()
    assert shell("init")[0] == 0
    first = {path: path.read_bytes() for path in docs.rglob("*.*ml")}
    (docs / "study.toml").unlink()  # as a kill between the two files leaves it
    assert (
        shell("init")[0] == 0
        and {path: path.read_bytes() for path in docs.rglob("*.*ml")} == first
    )


def test_the_study_of_init_scores_a_part_of_a_long_text(docs, shell, monkeypatch):
    "A job on a CPU would not end within its time; a short text is scored whole."
    pytest.importorskip("torch")
    import tomllib

    import invar_nb
    from invar_nb.files.losses import read_losses
    from invar_nb.shell import workflow

    (docs / "models").mkdir()
    for name, source in (("base", "base"), ("q8", "tuned")):
        (docs / "models" / name).symlink_to(
            Path(invar_nb.__file__).parent / "demo_models" / source
        )
    rows = [json.dumps({"text": f"Sentence {i} is read."}) + "\n" for i in range(410)]
    (docs / "text.jsonl").write_text("".join(rows))

    def windows_of_init():
        (docs / "study.toml").unlink(missing_ok=True)
        shutil.rmtree(docs / ".github", ignore_errors=True)
        code, _, err = shell("init --baseline models/base --candidate models/q8")
        assert code == 0, err
        text = (docs / "study.toml").read_text()
        return tomllib.loads(text)["scoring"].get("windows")

    assert windows_of_init() is None and "# windows = 400" in (docs / "study.toml").read_text()
    monkeypatch.setattr(workflow, "LONG_TEXT", 1000)
    assert windows_of_init() == 400
    code, _, err = shell("score models/base --study study.toml --out base.parquet -q")
    assert code == 0 and len(read_losses(docs / "base.parquet")) == 400, err
    code, out, err = shell("compare --study study.toml --json -q --out r")
    assert code in (0, 1) and json.loads(out)["parts"][0]["n"] == 400, err
    (docs / "text.jsonl").unlink()
    assert windows_of_init() is None  # it would be refused where the text holds fewer


def test_init_of_results_writes_a_gate_that_scores_nothing(docs, shell):
    for name, wrong in (("base", 0), ("new", 40)):
        rows = [f"q{i},{int(i % 5 > 0 and i >= wrong)},d{i // 2}" for i in range(200)]
        (docs / f"{name}.csv").write_text("\n".join(["id,passed,document", *rows]) + "\n")
    code, out, err = shell(
        "init --baseline base.csv --candidate new.csv --margin passed=3% --require not-worse"
    )
    assert code == 0, err
    *_, compare, add = [line.strip() for line in out.splitlines()]
    assert add == "git add .gitignore base.csv .github/workflows/model-quality.yml study.toml"
    job = yaml.safe_load((docs / ".github/workflows/model-quality.yml").read_text())
    given = job["jobs"]["quality"]["steps"][-1]["with"]
    assert given == {"study": "study.toml", "extras": "none"}
    study = docs / "study.toml"
    study.write_text(study.read_text().replace("# cluster =", "cluster ="))
    code, out, err = shell(compare.removeprefix("invar-nb "), "-q", "--json")
    answer = json.loads(out)
    assert code == 1 and answer["rules"]["margin"] == {"score": 0.03}, err
    assert answer["rules"]["required"] == "not-worse"
    assert answer["parts"][0]["n"] == 200 and "document" in out


def test_init_says_what_it_cannot_do_and_keeps_what_was_asked(docs, shell):
    results = page_data("lm_eval")
    (docs / "models").mkdir()
    for line, said in (
        ("init --baseline docs/base.jsonl", "--candidate must be named where results"),
        (f"init --candidate {results / 'tuned'}", "--baseline must be named where results"),
        (f"init --baseline models --candidate {results / 'tuned'}", "two models or two files"),
        (
            f"init --baseline {results / 'base'} --candidate {results / 'tuned'} --text a",
            "--text must be left out",
        ),
        ("init --margin '2 nats'", "--margin must be a positive number"),
        ("init --margin accuracy=2%", "perplexity"),
    ):
        code, out, err = shell(line)
        assert code == 2 and err.count("\n") == 1 and not (docs / "study.toml").exists(), err
        assert said in err, err
    code, out, err = shell("init --margin 1% --require equivalent --json")
    assert code == 0 and json.loads(out)["notes"] == [
        "This folder is not the root of a git repository: GitHub reads workflows only there."
    ], err
    text = (docs / "study.toml").read_text()
    (docs / "files.toml").write_text(text[text.index("[rules]") :])
    d = json.loads(
        shell("compare docs/base.jsonl docs/q8.jsonl --study files.toml -q --json")[1]
    )
    (docs / "files.toml").write_text(
        (docs / "files.toml").read_text().replace('# profile = "ci"', 'profile = "ci"')
    )
    assert (
        "profile ci with the balanced tier needs"
        in shell("compare docs/base.jsonl docs/q8.jsonl --study files.toml -q")[2]
    )
    assert (
        d["rules"]["margin"] == {"perplexity": 0.01} and d["rules"]["required"] == "equivalent"
    )
    job = yaml.safe_load((docs / ".github/workflows/model-quality.yml").read_text())
    assert job["jobs"]["quality"]["timeout-minutes"] == 60 and job["concurrency"] == {
        "group": "${{ github.workflow }}-${{ github.ref }}",
        "cancel-in-progress": "${{ github.event_name == 'pull_request' }}",
    }
    for path in (docs / "study.toml", docs / ".github/workflows/model-quality.yml"):
        path.unlink()
    git(docs, "init", "-q")
    assert (
        "root of a git" not in (out := shell("init")[1])
        and "  echo 'invar-nb-*' >> .gitignore\n" in out
    )
    for path in (docs / "study.toml", docs / ".github/workflows/model-quality.yml"):
        path.unlink()
    (docs / ".gitignore").write_text("invar-nb-report*\n")
    assert "echo" not in shell("init")[1]


def test_init_writes_no_study_that_its_first_run_refuses(docs, shell):
    "Several candidates, slices by no column, one margin for several metrics: all were taken."
    for name, wrong in (("base", 0), ("int8", 20), ("int4", 40)):
        rows = [f"q{i},{int(i % 5 > 0 and i >= wrong)},{'ab'[i % 2]}" for i in range(200)]
        (docs / f"{name}.csv").write_text("\n".join(["id,passed,topic", *rows]) + "\n")
    results = page_data("lm_eval")
    of_tasks = f"init --baseline {results / 'base'} --candidate {results / 'tuned'}"
    two = "init --baseline base.csv --candidate int8.csv"
    for line, said in (
        (
            f"{two} --candidate int4.csv",
            'of the line candidate: "int8" = "int8.csv" and "int4" = "int4.csv"',
        ),
        (f"{two} --require slices", "Write --by topic."),
        (f"{two} --require all", "Write --by topic."),
        (f"{two} --require slices --by nope", "there must be a column 'nope'"),
        (f"{two} --margin judge=3", "--margin must name a metric that is compared"),
        (f"{two} --margin 1% --margin passed=3%", "once per metric"),
        (of_tasks, "In its place write --margin accuracy=2% --margin"),
    ):
        code, _, err = shell(line)
        assert code in (2, 3) and err.count("\n") == 1 and said in err, err
        assert not (docs / "study.toml").exists() and not (docs / ".github").exists()
    margins = re.search("write (--margin .*?)\\.\n", err)[1]
    code, out, err = shell(f"{of_tasks} {margins}")
    assert code == 0, err
    assert shell("compare --study study.toml -q --out r")[0] in (0, 1)
    study = docs / "study.toml"
    study.write_text(re.sub("(?m)^margin = .*", 'margin = "2%"', study.read_text()))
    code, _, err = shell("compare --study study.toml -q --out r2")
    table = re.search("In the study file write (margin = .*) under \\[rules\\]", err)[1]
    study.write_text(study.read_text().replace('margin = "2%"', table))
    code, _, err = shell("compare --study study.toml -q --out r3")
    assert code in (0, 1), err
    shutil.rmtree(docs / ".github")
    study.unlink()
    code, _, err = shell(f"{two} --require slices --by topic")
    assert code == 0, err
    both = '"int8" = "int8.csv"\n"int4" = "int4.csv"\n'
    study.write_text(re.sub("(?m)^candidate = .*\n", both, study.read_text()))
    code, out, err = shell("compare --study study.toml -q --out r4")
    assert code == 1 and "topic a" in out and "2 candidates" in out, out + err


def test_slices_that_are_required_and_lack_are_asked_for_as_they_are_written(docs, shell):
    (docs / "study.toml").write_text(
        '[arms]\nbaseline = "docs/base.jsonl"\nnew = "docs/q8.jsonl"\n'
        '[rules]\nrequired = "slices"\n'
    )
    code, _, err = shell("compare --study study.toml -q")
    assert code == 2 and "--by COLUMN" in err and 'by = ["COLUMN"] under [rules]' in err, err


def test_the_assertion_takes_arms_files_and_models(docs):
    from dataclasses import fields

    from invar_nb import Rules, UsageError, compare_models, read_losses
    from invar_nb.ci import assert_not_worse
    from invar_nb.shell.compare import SCORING

    base, q8, q4 = (f"docs/{name}.jsonl" for name in ("base", "q8", "q4"))
    for a, b in (
        (base, q8),
        (read_losses(base), q8),
        (Path(base), read_losses(q8)),
        (read_losses(base), read_losses(q8)),
    ):
        assert assert_not_worse(a, b).claim == "equivalent"
    with pytest.raises(
        AssertionError, match=r"^Regressed: perplexity \+2\.80 % .* Perplexity regressed\.$"
    ):
        assert_not_worse(base, q4)
    assert (
        assert_not_worse(
            base, q4, accepted=[dict(up_to=0.03, reason="ticket", expires="2027-03-01")]
        ).claim
        == "regressed"
    )
    start, few = "docs/start.jsonl", "docs/few.jsonl"
    with pytest.warns(
        UserWarning,
        match=r"^Inconclusive: .* An inconclusive result passes; require=\"not-worse\" makes it fail\.$",
    ) as warned:
        assert assert_not_worse(start, few, margin=0.002).claim == "inconclusive"
    assert len(warned) == 1 and warned[0].filename == __file__
    with warnings.catch_warnings(action="error"):
        assert_not_worse(base, q8)
    with pytest.raises(
        AssertionError,
        match=r"Inconclusive.* about \d+ documents would .* Not worse is required",
    ):
        assert_not_worse(start, few, margin="0.2%", require="not-worse")
    with pytest.raises(UsageError, match=r"got 'windowss'\. Did you mean 'windows'\?"):
        assert_not_worse(base, q8, windowss=3)
    with pytest.raises(UsageError, match=r"got 'study'\. It is for the command line"):
        assert_not_worse(base, q8, study="no-such.toml")
    with pytest.raises(UsageError, match=r"got 'scale'\. Write rules=Rules\(scale=\.\.\.\)"):
        compare_models(base, q8, scale={"loss": "log"})
    said = {*re.findall(r"\w+", assert_not_worse.__doc__)}
    assert {*SCORING, *(f.name for f in fields(Rules))} - said == {
        "margin",
        "required",
    }  # parameters of their own


@pytest.mark.filterwarnings("ignore:.*An inconclusive result passes")
def test_the_assertion_takes_what_compare_takes(docs, shell):
    "Folders with tasks of several kinds, some tasks of them, and the margins of compare."
    from invar_nb import UsageError
    from invar_nb.ci import BaselineFile, assert_not_worse

    base, tuned = (page_data("lm_eval") / name for name in ("base", "tuned"))
    d = json.loads(shell(f"compare {base} {tuned} -q --json")[1])
    try:
        said = assert_not_worse(base, tuned).headline
    except AssertionError as error:
        said = str(error)
    assert len(
        {row["value"]["metric"] for row in d["rows"] if row["role"] == "lead"}
    ) > 2 and said.startswith(d["headline"])
    tasks = [part["part"] for part in d["parts"]]
    for some in (tasks[0], tasks[:2]):
        words = [
            word
            for task in ([some] if isinstance(some, str) else some)
            for word in ("--task", task)
        ]
        d = json.loads(shell(f"compare {base} {tuned} -q --json", *words)[1])
        try:
            said = assert_not_worse(base, tuned, task=some).headline
        except AssertionError as error:
            said = str(error)
        assert said.startswith(d["headline"])
    kept = BaselineFile(docs / "kept.jsonl", update=True)
    with pytest.raises(UsageError, match="of one task"):
        kept.assert_not_worse(base)


def test_a_baseline_that_was_asked_for_is_written_unless_the_candidate_regressed(docs):
    from invar_nb import read_losses
    from invar_nb.ci import BaselineFile

    def renew(name):
        kept = BaselineFile(docs / "kept.parquet", update=True)
        kept.assert_not_worse(docs / f"docs/{name}.jsonl", require="not-worse", level=0.9)
        assert kept.notes == [f"baseline updated: {kept.path}"] and not list(
            docs.glob("new-*")
        )
        return (
            read_losses(kept.path).log_loss[0]
            == read_losses(docs / f"docs/{name}.jsonl").log_loss[0]
        )

    assert renew("base") and renew("q8")
    before = (docs / "kept.parquet").read_bytes()
    with pytest.raises(
        AssertionError,
        match="Kept: .*since the candidate regressed. Regressed: perplexity .2.6.* delete that file and run this again",
    ):
        renew("q4")
    assert (docs / "kept.parquet").read_bytes() == before and not list(docs.glob("new-*"))
    assert renew("few")  # another text
    kept = BaselineFile(docs / "start.parquet", update=True)
    kept.assert_not_worse("docs/start.jsonl")
    before = kept.path.read_bytes()
    for more, why in (
        ({}, "the result is inconclusive"),
        ({"require": "not-worse"}, "not worse is required, and was not shown"),
    ):
        with pytest.raises(AssertionError, match=f"Kept: .*, since {why}. Inconclusive: "):
            kept.assert_not_worse("docs/few.jsonl", margin="0.2%", **more)
    assert kept.path.read_bytes() == before


def test_a_refusal_is_raised_at_the_line_of_the_test(docs):
    "Not through the frames of the library and of the hub's client: pytest would print them all."
    from invar_nb import ContractError, UsageError
    from invar_nb.ci import BaselineFile, assert_not_worse

    base = docs / "docs/base.jsonl"
    calls = [
        lambda: assert_not_worse("gone.parquet", base),
        lambda: assert_not_worse(base, base, margin="2 nats"),
        lambda: BaselineFile(base).assert_not_worse("gone.parquet"),
        lambda: BaselineFile(base, update=True).assert_not_worse("gone.parquet"),
    ]
    for call in calls:
        with pytest.raises((ContractError, UsageError)) as caught:
            call()
        frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][
            2:
        ]  # after those of this test
        assert (
            {*frames} <= {"assert_not_worse"}
            and caught.value.__suppress_context__
            and caught.value.__cause__ is None
        ), frames


def test_two_models_of_a_test_suite():
    pytest.importorskip("torch")
    import tempfile

    import invar_nb
    from invar_nb.ci import BaselineFile, assert_not_worse

    models = Path(invar_nb.__file__).parent / "demo_models"
    with tempfile.TemporaryDirectory() as folder:
        text, kept = Path(folder, "text.jsonl"), Path(folder, "kept.parquet")
        text.write_text(
            "".join(
                json.dumps(
                    {"text": f"Sentence {i} is read, and then number {i * i} of them all."}
                )
                + "\n"
                for i in range(40)
            )
        )
        same = {"text": text, "max_length": 64, "device": "cpu"}
        assert assert_not_worse(models / "base", models / "base", **same).claim == "equivalent"
        BaselineFile(kept, update=True).assert_not_worse(models / "base", margin="1%", **same)
        assert (
            BaselineFile(kept)
            .assert_not_worse(str(models / "base"), margin="1%", **same)
            .headline.startswith("Identical")
        )


# --- a gate on questions: the baseline's answers are a file --------------------------------------------------------------------------------
def questions(path, n=40):
    rows = [
        {
            "id": f"q{i}",
            "prompt": f"{i} + {i % 7} =",
            "candidates": [f" {i + i % 7}", " few", " many"],
            "label": f" {i + i % 7}",
        }
        for i in range(n)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def quiz(tmp_path, monkeypatch):
    "A folder with models, questions, and the answers of the baseline, asked in a way of their own."
    pytest.importorskip("torch")
    import invar_nb

    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").symlink_to(Path(invar_nb.__file__).parent / "demo_models")
    questions(tmp_path / "q.jsonl")
    questions(tmp_path / "few.jsonl", 30)
    (tmp_path / "t.jsonl").write_text(
        "".join(
            json.dumps({"text": f"Sentence {i} is read, and then number {i * i} of them all."})
            + "\n"
            for i in range(40)
        )
    )
    assert (
        main(
            [
                "answer",
                "models/base",
                "q.jsonl",
                "--out",
                "acc.jsonl",
                "--set",
                "normalize=bytes",
                "-q",
            ]
        )
        == 0
    )
    (tmp_path / "study.toml").write_text(
        '[arms]\nbaseline = "acc.jsonl"\ncandidate = "models/tuned"\n[questions]\nquiz = "q.jsonl"\n'
    )
    return tmp_path


def test_a_model_is_asked_as_a_file_of_answers_records(quiz, shell):
    code, out, err = shell(
        "compare acc.jsonl models/tuned --questions q.jsonl --out r -q --json"
    )
    d = json.loads(out)
    assert (
        code == d["exit"]["code"]
        and {arm["provenance"]["normalize"] for arm in d["arms"].values()} == {"bytes"}
        and shell("verify r")[0] == 0
    ), err
    assert (
        shell("answer models/tuned q.jsonl --out tuned.jsonl --set normalize=bytes -q")[0] == 0
    )
    files = json.loads(shell("compare acc.jsonl tuned.jsonl --out f -q --json")[1])
    assert [row["value"] for row in files["rows"]] == [
        row["value"] for row in d["rows"]
    ] and files["headline"] == d["headline"]
    for line in (
        "compare --study study.toml",
        "compare r/baseline.jsonl models/tuned --questions q.jsonl",
        "compare acc.jsonl models/tuned --questions q.jsonl --set normalize=bytes",
    ):
        assert json.loads(shell(f"{line} -q --json")[1])["headline"] == d["headline"], line
    d = json.loads(
        shell("compare models/base acc.jsonl --questions q.jsonl -q --json")[1]
    )  # the candidate is the file
    assert d["rows"][0]["value"]["delta"] == 0
    assert shell("plan acc.jsonl tuned.jsonl")[0] == 0


@pytest.mark.parametrize(
    "line, code, words",
    [
        (
            "compare acc.jsonl models/tuned --questions few.jsonl",
            3,
            "both models must be asked the same questions; got sha256:.* in acc.jsonl, sha256:.* in few.jsonl. Use the questions that it answers, or answer anew: invar-nb answer MODEL few.jsonl --out acc.jsonl --force",
        ),
        (
            "compare acc.jsonl models/tuned --questions q.jsonl --set normalize=tokens",
            3,
            "must be asked in one way; got normalize 'bytes' in acc.jsonl, 'tokens' here. Leave it out",
        ),
        (
            "compare acc.csv models/tuned --questions q.jsonl",
            3,
            "got acc.csv, which does not record what was asked. Files of invar-nb answer do",
        ),
        (
            "compare acc.jsonl models/tuned",
            2,
            "a text to score, or questions; got none. Give --questions FILE, those that acc.jsonl answers",
        ),
        (
            "compare wb.jsonl models/tuned",
            2,
            "Give --text FILE, the one that wb.jsonl was scored on",
        ),
        (
            "compare acc.jsonl models/tuned --text t.jsonl",
            2,
            "both arms must be of the same kind; got answers and model. .* by --questions, with answers",
        ),
        (
            "compare no.jsonl models/tuned --questions q.jsonl",
            2,
            "must exist; got 'no.jsonl'. Check the path, or answer questions: invar-nb answer MODEL FILE --out no.jsonl",
        ),
        (
            "compare wb.jsonl models/tuned --text a=t.jsonl --text b=t.jsonl",
            2,
            "several texts need models on this machine; got 'wb.jsonl'. Let this machine have the baseline model too .* or gate each text in a job of its own",
        ),
        (
            "compare wb.jsonl models/tuned --text t.jsonl --questions q.jsonl",
            2,
            "a text together with questions needs models .* in a job of its own",
        ),
        (
            "compare models/base models/tuned --text quiz=t.jsonl --questions quiz=q.jsonl",
            2,
            "a text must not be called quiz, as the questions are",
        ),
        (
            "score models/base --text a=t.jsonl --text b=t.jsonl --out x.jsonl",
            2,
            "one text must be given; got a, b. .* or gate each text in a job of its own",
        ),
        (
            "plan models/base models/tuned --questions q.jsonl",
            2,
            "plan takes answers, not --questions. .* invar-nb answer MODEL questions.jsonl --out NAME.jsonl, then: invar-nb plan a.jsonl b.jsonl",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_with_what_to_do(quiz, shell, line, code, words):
    (quiz / "acc.csv").write_text(
        "id,label,prediction\n" + "".join(f"q{i},a,{'ab'[i % 2]}\n" for i in range(40))
    )
    if "wb.jsonl" in line:
        assert shell("score models/base --text t.jsonl --out wb.jsonl -q")[0] == 0
    ended, _, err = shell(f"{line} -q")
    assert ended == code and re.search(words, err) and err.count("\n") == 1, err


def test_several_candidates_are_asked_beside_a_file_of_answers(quiz, shell):
    (quiz / "copy").symlink_to(quiz / "models/base")
    d = json.loads(
        shell("compare acc.jsonl models/tuned copy --questions q.jsonl -q --json")[1]
    )
    lead = {
        row["key"]["candidate"]: row["value"]["delta"]
        for row in d["rows"]
        if row["role"] == "lead"
    }
    assert lead.keys() == {"tuned", "copy"} and lead["copy"] == 0


def test_the_action_gates_on_questions(job):
    pytest.importorskip("torch")
    import invar_nb

    (job.clone / "models").symlink_to(Path(invar_nb.__file__).parent / "demo_models")
    questions(job.clone / "q.jsonl")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "invar_nb",
            "answer",
            "models/base",
            "q.jsonl",
            "--out",
            "acc.jsonl",
            "-q",
        ],
        cwd=job.clone,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
    )
    ran = job.run(
        baseline="acc.jsonl",
        candidate="models/tuned",
        questions="q.jsonl",
        args="--metric accuracy",
    )
    assert (ran["code"], ran["claim"]) == (0, "inconclusive") and "accuracy" in ran[
        "comment"
    ], ran["said"]


@pytest.mark.parametrize("kind", ["scores", "answers"])
def test_a_baseline_that_is_a_table_becomes_a_copy_of_the_candidate(
    tmp_path, shell, monkeypatch, kind
):
    "The same command runs again, with the columns that it names."
    monkeypatch.chdir(tmp_path)
    noise = random.Random(3)
    for name, chance in (("base", 0.5), ("better", 0.9)):
        rows = []
        for i in range(240):
            row = {"id": f"q{i}", "page": f"p{i // 2}"}
            is_right = noise.random() < chance
            if kind == "answers":
                row |= {"label": "yes", "prediction": "yes" if is_right else "no"}
            else:
                row["passed"] = is_right
            rows.append(row)
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    line = "compare base.jsonl better.jsonl --column cluster=page --require not-worse -q"
    before = (tmp_path / "base.jsonl").read_bytes()
    worse = line.replace("base.jsonl better.jsonl", "better.jsonl base.jsonl")
    assert shell(f"{worse} --update-baseline --out w")[0] == 1
    assert (tmp_path / "base.jsonl").read_bytes() == before
    code, out, err = shell(f"{line} --update-baseline --out r")
    assert code == 0 and out.endswith("base.jsonl is now a copy of better.jsonl.\n"), err
    assert (tmp_path / "base.jsonl").read_bytes() == (tmp_path / "better.jsonl").read_bytes()
    code, out, err = shell(f"{line} --update-baseline --out s --fail-inconclusive")
    assert code in (0, 1, 4) and "Clusters" not in err and "clusters" not in err, err


def test_a_baseline_of_answers_is_renewed_by_the_rules(quiz, shell):
    from invar_nb import read_predictions

    before, line = (
        (quiz / "acc.jsonl").read_bytes(),
        "compare --study study.toml --margin 40% --set metrics=accuracy --update-baseline -q",
    )
    code, out, _ = shell(line.replace("40%", "1%"))
    assert (
        code == 0
        and (quiz / "acc.jsonl").read_bytes() == before
        and "Kept: acc.jsonl, since the result is inconclusive" in out
    )
    code, out, _ = shell(line)
    assert (
        code == 0
        and out.splitlines()[-1]
        == "Updated: acc.jsonl now holds the answers of tuned on 40 examples."
    )
    kept = read_predictions(quiz / "acc.jsonl")
    assert kept.model == "tuned" and kept.provenance["normalize"] == "bytes"
    assert (
        json.loads(shell("compare --study study.toml -q --json")[1])["rows"][0]["value"][
            "delta"
        ]
        == 0
    )


@pytest.mark.filterwarnings("ignore:.*An inconclusive result passes")
def test_a_suite_keeps_answers_and_asks_the_candidate(quiz):
    from invar_nb import PairingError, UsageError, read_predictions
    from invar_nb.ci import BaselineFile, assert_not_worse

    asked = {"questions": "q.jsonl", "normalize": "bytes"}
    BaselineFile(quiz / "new.jsonl", update=True).assert_not_worse("models/base", **asked)
    assert (quiz / "new.jsonl").read_bytes() == (quiz / "acc.jsonl").read_bytes() and not list(
        quiz.glob(".*")
    )
    same = {"metrics": ["accuracy"], "margin": "40%"}
    result = BaselineFile(quiz / "new.jsonl").assert_not_worse(
        "models/tuned", questions="q.jsonl", **same
    )
    assert (
        result.claim == "equivalent"
        and assert_not_worse(
            "acc.jsonl", "models/tuned", questions=Path("q.jsonl"), **same
        ).headline
        == result.headline
    )
    assert (
        assert_not_worse(
            read_predictions("acc.jsonl"), "models/tuned", questions="q.jsonl", **same
        ).headline
        == result.headline
    )
    with pytest.raises(
        AssertionError,
        match="Kept: .*new.jsonl, since .* To take it all the same, delete that file and run this again.",
    ):
        BaselineFile(quiz / "new.jsonl", update=True).assert_not_worse(
            "models/tuned", margin="1%", metrics=["accuracy"], **asked
        )
    with pytest.raises(PairingError, match="the same questions"):
        BaselineFile(quiz / "new.jsonl").assert_not_worse(
            "models/tuned", questions="few.jsonl"
        )
    for more, words in (
        ({}, "needs text= or questions=; got none"),
        ({"text": "t.jsonl", "questions": "q.jsonl"}, "got text and questions"),
    ):
        with pytest.raises(UsageError, match=words):
            BaselineFile(quiz / "n.jsonl", update=True).assert_not_worse("models/base", **more)
    with pytest.raises(UsageError, match="answers in a .jsonl file"):
        BaselineFile(quiz / "n.parquet", update=True).assert_not_worse("models/base", **asked)


def test_a_suite_is_answered_in_its_own_words(docs):
    "A test has `require=`, not `--require`; and what takes a candidate all the same does."
    from invar_nb import UsageError, read_losses
    from invar_nb.ci import BaselineFile, assert_not_worse

    with pytest.raises(
        AssertionError,
        match='perhaps by less than the margin. With require="not-beyond" such a loss passes.',
    ):
        assert_not_worse("docs/base.jsonl", "docs/q4.jsonl", margin="3%")
    kept = BaselineFile(docs / "kept.parquet", update=True)
    kept.assert_not_worse("docs/base.jsonl")
    with pytest.raises(AssertionError) as caught:
        kept.assert_not_worse(
            Path("docs/q4.jsonl"),
            margin="1%",
            level=0.9,
            require="not-worse",
            metrics=["perplexity"],
        )
    before = kept.path.read_bytes()
    with pytest.raises(UsageError):
        kept.assert_not_worse("docs/q4.jsonl", resample="tokens")  # it needs method=
    assert kept.path.read_bytes() == before
    assert str(caught.value).endswith(
        "To take it all the same, delete that file and run this again."
    )
    kept.path.unlink()
    kept.assert_not_worse(
        Path("docs/q4.jsonl"),
        margin="1%",
        level=0.9,
        require="not-worse",
        metrics=["perplexity"],
    )
    assert read_losses(kept.path).model == "q4"


def test_text_and_questions_are_called_by_their_names(quiz, shell):
    (quiz / "study.toml").write_text(
        '[arms]\nbaseline = "models/base"\ncandidate = "models/tuned"\n[texts]\nwiki = "t.jsonl"\n[questions]\nmmlu = "q.jsonl"\n'
    )
    both = "models/base models/tuned"
    lines = {
        "--study study.toml": ["wiki", "mmlu"],
        f"{both} --text wiki=t.jsonl --questions mmlu=q.jsonl": ["wiki", "mmlu"],
        f"{both} --text t.jsonl --questions q.jsonl": ["text", "examples"],
        f"{both} --text t.jsonl --questions mmlu=q.jsonl": ["text", "mmlu"],
        f"{both} --text wiki=t.jsonl": [""],
        f"{both} --questions mmlu=q.jsonl": [""],
    }
    for line, names in lines.items():
        d = json.loads(shell(f"compare {line} --out r --force -q --json")[1])
        assert [part["part"] for part in d["parts"]] == names and d["rules"].get(
            "deciding", []
        ) == names[: len(names) - 1], line
        assert shell("verify r")[0] == 0


def test_pytest_finds_the_fixture_by_its_entry_point(tmp_path):
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "egg_info", "-e", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    points = next(tmp_path.rglob("entry_points.txt"), None)
    assert points, done.stderr[-500:]
    assert (
        "[pytest11]\ninvar_nb.ci.plugin = invar_nb.ci.plugin" in points.read_text()
        and "invar-nb = invar_nb.shell.cli:main" in points.read_text()
    )


# --- the guide: every command and workflow of it ------------------------------------------------------------------------------------------
GUIDE = "\n\n".join(
    "".join(cell["source"])
    for cell in json.loads((ROOT / "nbs/guides/gate_a_pull_request.ipynb").read_text())[
        "cells"
    ]
)


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)\n```$", GUIDE, re.M | re.S)


def test_the_guide_comes_to_a_command_soon_and_names_each_input_and_output():
    assert len(re.findall(r"\w[\w.'-]*", GUIDE.partition("```")[0])) <= 70
    inputs, outputs = blocks("text")[0].removeprefix("inputs").split("\noutputs")
    assert {*inputs.split()} == {*ACTION["inputs"]} and {*outputs.split()} == {
        *ACTION["outputs"]
    }


def commands_of(block):
    "The commands of a block: one a line, or several lines until its quotes are closed."
    command = ""
    for line in block.splitlines():
        command += line
        try:
            shlex.split(command, comments=True)
        except ValueError:
            command += "\n"
        else:
            yield command
            command = ""


def test_every_command_of_the_guide_runs_in_its_order(docs, tmp_path):
    pytest.importorskip("torch")
    import invar_nb

    models, work = Path(invar_nb.__file__).parent / "demo_models", tmp_path / "work"
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "origin.git")
    git(tmp_path, "clone", "-q", "origin.git", "work")
    git(work, "switch", "-q", "-c", "main")
    (work / ".git/info/exclude").write_text("models\nlm_eval\n")
    (work / "models").mkdir()
    for name, source in (("base", "base"), ("q8", "tuned")):
        (work / "models" / name).symlink_to(models / source)
    for name, source in (("base", "base"), ("q8", "tuned")):
        shutil.copytree(
            page_data("lm_eval") / source,
            work / "lm_eval" / name,
            ignore=shutil.ignore_patterns("*_words_*", "*_lengths_*", "*_rolling_*"),
        )
    (work / "text.jsonl").write_text(
        "".join(
            json.dumps({"text": f"Sentence {i} of the text is read, and then number {i * i}."})
            + "\n"
            for i in range(60)
        )
    )
    (tmp_path / "bin").mkdir()
    executable(
        tmp_path / "bin/invar-nb",
        f'#!/bin/sh\nexec "{sys.executable}" -m invar_nb "$@" --quiet\n',
    )
    executable(
        tmp_path / "bin/pytest",
        f'#!/bin/sh\nexec "{sys.executable}" -m pytest -p no:cacheprovider -p invar_nb.ci.plugin "$@"\n',
    )
    env = (
        os.environ
        | GIT
        | {
            "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
    )
    fixture, recovery = blocks("python")
    (work / "test_quality.py").write_text(fixture)
    (work / "test_recovery.py").write_text(recovery)
    (work / "study.toml").unlink(missing_ok=True)
    ran = {}
    questions(work / "questions.jsonl")
    (work / "quiz.toml").write_text(blocks("toml")[1] + "\n")
    for block in blocks("shell"):
        if "switch --orphan" in block:
            git(work, "commit", "-qm", "gate")
        for line in commands_of(block):
            done = subprocess.run(
                ["bash", "-c", line], cwd=work, env=env, capture_output=True, text=True
            )
            ran[line] = done
            regressed = line.startswith("invar-nb compare") or line == "pytest test_quality.py"
            assert done.returncode in ((0, 1) if regressed else (0,)), (
                f"{line}\n{done.stdout[-1500:]}{done.stderr[-1500:]}"
            )
    assert git(tmp_path / "origin.git", "ls-tree", "--name-only", "quality").split() == [
        "base.parquet"
    ]
    assert blocks("yaml")[0] == (
        work / ".github/workflows/model-quality.yml"
    ).read_text().rstrip("\n")
    assert (
        "baseline updated"
        in ran[
            "pytest --update-baseline test_quality.py  # writes the baseline from this candidate"
        ].stdout
    )
    assert (work / "junit.xml").stat().st_size
    numbers = json.loads((work / "benchmark.json").read_text())
    lead = json.loads((work / "invar-nb-report/report.json").read_text())["rows"][0]
    assert [entry["name"] for entry in numbers] == [lead["key"]["candidate"]]
    assert numbers[0]["value"] == pytest.approx(100 * (lead["value"]["ratio"] - 1))
    assert json.loads(numbers[0]["range"]) == pytest.approx(lead["value"]["display_ci"])
    done = subprocess.run(
        ["bash", "-c", "pytest test_recovery.py"],
        cwd=work,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1) and (
        "1 passed" in done.stdout or "AssertionError" in done.stdout
    ), done.stdout[-1500:]
    git(work, "checkout", "-q", "main", "--", "base.parquet")
    (work / "study.toml").write_text(
        (work / "study.toml").read_text() + blocks("toml")[0] + "\n"
    )
    done = subprocess.run(
        ["bash", "-c", "invar-nb compare --study study.toml --json --out accepted"],
        cwd=work,
        env=env,
        capture_output=True,
        text=True,
    )
    assert (
        done.returncode == 0
        and json.loads(done.stdout)["rules"]["accepted"][0]["expires"] == "2099-12-31"
    ), done.stderr


@pytest.mark.parametrize(
    "there, call",
    [
        ("", "--method POST repos/o/r/issues/12/comments"),
        ("41", "--method PATCH repos/o/r/issues/comments/41"),
    ],
)
def test_the_second_workflow_posts_what_a_fork_could_not(tmp_path, there, call):
    step = yaml.safe_load(blocks("yaml")[1])["jobs"]["comment"]["steps"][0]
    assert "${{" not in step["run"]
    log = tmp_path / "log"
    (tmp_path / "bin").mkdir()
    executable(
        tmp_path / "bin/gh",
        f'#!/bin/sh\necho "$*" >> {log}\ncase "$*" in "run download"*) mkdir -p kept; if [ "$KEPT" = yes ]; then echo "{MARK}" > kept/comment.md; fi ;; *pulls*) echo 12 ;; *--paginate*) echo "{there}" ;; esac\n',
    )
    env = os.environ | {
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_REPOSITORY": "o/r",
        "RUN": "7",
        "HEAD": "fork:branch",
    }
    for kept in ("yes", "no"):
        log.write_text("")
        (tmp_path / kept).mkdir()
        subprocess.run(
            ["bash", "-eo", "pipefail", "-c", step["run"]],
            cwd=tmp_path / kept,
            env=env | {"KEPT": kept},
            check=True,
        )
        calls = [
            line for line in log.read_text().splitlines() if "POST" in line or "PATCH" in line
        ]
        assert calls == ([f"api {call} --silent -F body=@comment.md"] if kept == "yes" else [])


def test_a_margin_as_text_is_that_of_the_metric_it_names():
    "brier=0.01 was the margin of accuracy, which leads."
    from studies import answers

    from invar_nb import UsageError
    from invar_nb.ci.gate import study_of

    both = answers()
    arms = (both.baseline, both.candidate)
    asked = {"metrics": ["accuracy", "brier"]}
    study = study_of(*arms, "brier=0.01", asked)
    margins = {row.value.metric.name: row.margin for row in study.rows}
    assert margins == {"accuracy": 0.02, "brier": 0.01}
    with pytest.raises(UsageError, match="must be in the unit of brier"):
        study_of(*arms, "brier=1%", asked)
    with pytest.raises(UsageError, match="one of 'accuracy', 'brier'"):
        study_of(*arms, "f1=0.01", asked)
