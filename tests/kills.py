"""Commands that are killed again and again: `python tests/kills.py --kills 200 --seed 1`

A process that has imported everything forks; the child runs a command, and SIGKILL reaches it at a random moment, or at a random one of
its operations on files. What it leaves is looked at, the same command is run again, and killed again, until it ends. The result
must be the one of an undisturbed run, byte for byte; no record of a journal may be put twice; nothing may be left beside the result."""
import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import small_models

from invar_nb.foundations.journal import Journal
from invar_nb.models import batches, together as tiles
from commands import main

LIMITS = "--max-length 40 --batch-tokens 120 --device cpu -q".split()
WRITES = ("os.", "shutil.", "sqlite3.connect")


def make(folder):
    "Models, texts, questions and files of losses, which no command changes."
    folder.mkdir()
    model = small_models.gpt2(vocab_size=257, seed=1, scale=0.1)
    for k, name in enumerate(("base", "q8", "q4")):
        rng = np.random.default_rng(k)
        for p in model.parameters(): p.data += small_models.torch.tensor(0.02 * k * rng.normal(size=p.shape), dtype=p.dtype)
        small_models.save(model, folder / name)
    rng = np.random.default_rng(0)
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "then", "it", "rained", "all", "day"]
    (folder / "text.jsonl").write_text("".join(json.dumps({"text": " ".join(rng.choice(words, 30))}) + "\n" for _ in range(60)))
    (folder / "ask.jsonl").write_text("".join(json.dumps({"id": f"q{i}", "prompt": " ".join(rng.choice(words, 4)), "candidates": [" cat", " mat"], "label": " cat"}) + "\n"
                                              for i in range(150)))
    for name in ("base", "q8"): assert main(["score", str(folder / name), "--text", str(folder / "text.jsonl"), "--out", str(folder / f"{name}.jsonl"), *LIMITS]) == 0
    return folder


def scenarios(data):
    "name -> (commands, a command that makes an older result first)."
    model = lambda name: str(data / name)
    text = ["--text", str(data / "text.jsonl"), *LIMITS]
    files = [model("base.jsonl"), model("q8.jsonl"), "-q"]
    score = lambda *more: ["score", model("base"), *text, *more]
    compare = lambda *more: ["compare", model("base"), model("q8"), *text, *more]
    older = ["compare", model("base.jsonl"), model("base.jsonl"), "--out", "out/r", "-q"]
    return {
        "score": ([score("--out", "out/x.parquet")], None),
        "score, JSONL, replaced": ([score("--out", "out/x.jsonl", "--force")], ["score", model("q4"), *text, "--out", "out/x.jsonl"]),
        "score in shards, merge": ([*(score("--out", "out", "--shard", f"{i}/3") for i in (1, 2, 3)), ["merge", "out", "-q"]], None),
        "answer": ([["answer", model("base"), str(data / "ask.jsonl"), "--batch-tokens", "120", "--device", "cpu", "-q", "--out", "out/a.jsonl"]], None),
        "compare models": ([compare("--out", "out/r")], None),
        "compare models, replaced": ([compare("--out", "out/r", "--force")], older),
        "compare models, divergence": ([compare("--out", "out/r", "--divergence")], None),
        "compare models, control": ([compare("--out", "out/r", "--control")], None),
        "compare models, until decided": ([compare("--out", "out/r", "--until-decided", "rules.target=text", "rules.looks=4", "--margin", "0.5")], None),
        "compare several": ([["compare", *map(model, ("base", "q8", "q4")), *text, "--out", "out/r"]], None),
        "compare answers": ([["compare", model("base"), model("q8"), "--questions", str(data / "ask.jsonl"), *LIMITS[2:], "--out", "out/r"]], None),
        "compare files": ([["compare", *files, "--out", "out/r"]], None),
        "compare files, replaced": ([["compare", *files, "--out", "out/r", "--force"]], older)}


def visible(folder):
    "Every file under a final name; a report without its environment."
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_dir() or any(part.startswith(".") for part in name.parts): continue
        data = path.read_bytes()
        if path.name == "report.json":
            d = json.loads(data)
            d.pop("environment")
            data = json.dumps(d)
        found[str(name)] = data
    return found


def hidden(folder): return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.name.startswith("."))


def log(file, line): os.write(file, f"{line}\n".encode())


def watch(events):
    "Write down each batch that begins and each record that is kept, in the child."
    put = Journal.put

    def kept(self, name, value):
        put(self, name, value)
        log(events, f"kept {self.path.name}/{name}")
    Journal.put = kept
    for kind in (batches.Scorer, tiles.PairScorer):
        def begun(self, batch, score=kind.score):
            log(events, "begun")
            return score(self, batch)
        kind.score = begun


def child(folder, command, events, operation, count):
    "Run a command; kill it at an operation on files, or count those operations."
    os.chdir(folder)
    for stream in (1, 2): os.dup2(os.open(folder.parent / f"said.{stream}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC), stream)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # not those of a caller that captures its own
    watch(events)
    seen = [0]

    def look(event, args):
        if not event.startswith(WRITES) and not (event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)): return
        seen[0] += 1
        if seen[0] == operation: os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(look)
    code = main(command)
    for stream in (sys.stdout, sys.stderr): stream.flush()
    if count is not None: log(count, seen[0])
    os._exit(code)


def run(folder, command, events, *, after=None, operation=None, count=None):
    "Exit code of a command in a process of its own, None where it was killed; and its seconds."
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try: child(folder, command, events, operation, count)
        finally: os._exit(99)
    if after is not None:
        while time.monotonic() - began < after and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None: time.sleep(0.001)
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    return None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), time.monotonic() - began


def journal_of(record):
    "The journal of a record as `watch` logs it; None for other events."
    return record.split("/")[0].removeprefix("kept ") if record.startswith("kept ") else None


class Trials:
    "One scenario: its undisturbed result, and runs that are killed."

    def __init__(self, scratch, name, commands, first):
        self.scratch, self.name, self.commands, self.first = Path(scratch) / name.replace(",", "").replace(" ", "-"), name, commands, first
        self.scratch.mkdir()
        self.before, self.kills, self.failed, self.turn = self.folder("whole"), 0, [], 0
        self.steps, counts = [], self.scratch / "counts"
        for command in commands:
            with open(counts, "wb") as count, open(self.scratch / "events", "ab") as events:
                code, seconds = run(self.scratch / "whole", command, events.fileno(), count=count.fileno())
            assert code in (0, 1), (name, command, (self.scratch / "said.2").read_text())
            self.steps.append((code, seconds, int(counts.read_text()), visible(self.scratch / "whole")))
        assert not hidden(self.scratch / "whole"), (name, hidden(self.scratch / "whole"))
        self.records = Counter((self.scratch / "events").read_text().splitlines())

    def folder(self, name):
        "A new folder with what stands there before."
        folder = self.scratch / name
        (folder / "out").mkdir(parents=True)
        if self.first:
            with open(os.devnull, "ab") as events: assert run(folder, self.first, events.fileno())[0] == 0
        return visible(folder)

    def check(self, true, *words):
        if not true: self.failed.append(" ".join(map(str, words)))
        return true

    def trial(self, rng, most):
        "Kill each command up to three times, let it end, and compare."
        self.turn += 1
        folder, there, killed, again = self.scratch / f"turn{self.turn}", self.before, 0, set()
        self.folder(folder.name)
        journals = {journal_of(record) for record in self.records} - {None}
        with open(self.scratch / f"events{self.turn}", "ab") as file:
            for command, (code, seconds, operations, then) in zip(self.commands, self.steps, strict=True):
                ended = None
                for _ in range(rng.integers(1, 4)):
                    if killed >= most: break
                    how = {"after": rng.uniform(0, seconds)} if rng.integers(2) else {"operation": int(rng.integers(1, operations + 1))}
                    ended, _ = run(folder, command, file.fileno(), **how)
                    killed += ended is None
                    here = visible(folder)
                    self.check(self.whole(folder, here, there, then), "after a kill", how, "there was", {k: len(v) for k, v in here.items() if v != then.get(k)})
                    if here == then and not hidden(folder): ended = code  # all was done: with --force it would be done again
                    if ended is not None: break
                    if here == then != there: again |= journals - {Path(name).name for name in hidden(folder)}  # the result is in place, these were deleted: --force does their work again
                if ended is None: ended, _ = run(folder, command, file.fileno())
                refused = ended == 2 and "give --force" in (self.scratch / "said.2").read_text()
                self.check(ended == code or refused, "it ended with", ended, (self.scratch / "said.2").read_text()[-300:])
                there = then
        self.check(visible(folder) == there, "another result:", [k for k in {**visible(folder), **there} if visible(folder).get(k) != there.get(k)])
        self.check(not hidden(folder), "left over:", hidden(folder))
        events = Counter((self.scratch / f"events{self.turn}").read_text().splitlines())
        begun, kept = events.pop("begun", 0), +events
        twice = [k for k, n in kept.items() if n > 1 + (journal_of(k) in again)]
        self.check(not twice, "put twice:", twice[:3])
        redone = sum(journal_of(k) in again for k in self.records)
        self.check(begun <= self.records["begun"] + redone + killed, "begun", begun, "batches of", self.records["begun"], "with", killed, "kills and", redone, "done again")
        self.kills += killed
        return killed

    def whole(self, folder, here, before, then):
        "Each file is the old one or the new one, and those of a report are all old or all new; while they change places both stand beside."
        old, new = ({k: v for k, v in state.items() if k.startswith("out/r/")} for state in (before, then))
        report = {k: v for k, v in here.items() if k.startswith("out/r/")}
        between = not report and {"out/.r.old", "out/.r.new"} <= {*hidden(folder)}
        return (between or report in (old, new)) and all(value in (before.get(name), then.get(name)) for name, value in here.items())


def kill_all(kills, seed, names=None, say=print):
    "At least so many kills, spread over all scenarios; what failed."
    rng, failed = np.random.default_rng(seed), []
    with tempfile.TemporaryDirectory() as scratch:
        data = make(Path(scratch) / "data")
        chosen = {name: two for name, two in scenarios(data).items() if not names or name in names}
        made = [Trials(scratch, name, *two) for name, two in chosen.items()]
        for i, trials in enumerate(made):
            share, began = -(-kills * (i + 1) // len(made)) - kills * i // len(made), time.monotonic()
            while trials.kills < share and trials.turn < 9 * share: trials.trial(rng, share - trials.kills)
            say(f"{trials.name:32s} {trials.kills:4d} kills, {trials.turn:3d} runs, {time.monotonic() - began:5.1f} s, "
                f"{trials.records['begun']:4d} batches, undisturbed {sum(step[1] for step in trials.steps):.1f} s: {'; '.join(trials.failed) or 'as undisturbed'}")
            failed += [f"{trials.name}: {line}" for line in trials.failed]
        say(f"{sum(trials.kills for trials in made)} kills, seed {seed}")
    return failed


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("names", nargs="*")
    p.add_argument("--kills", type=int, default=200)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    sys.exit(bool(kill_all(a.kills, a.seed, a.names)))
