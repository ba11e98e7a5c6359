"""The guard and the runner from outside: every way a run can end, what it can leave behind, a parent that dies."""
import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from invar_nb.experiments import guard, runner
from invar_nb.experiments.guard import GuardedRun, terminal_state
from invar_nb.experiments.runner import ExperimentSpec, ablate, over_seeds, read_metrics, run_all, write_runs
from invar_nb.experiments.runs import TERMINALS, ExperimentResult, read_runs
from invar_nb.foundations.journal import Journal
from invar_nb.foundations.numbers import ContractError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the runner needs POSIX processes")
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
GOOD = "print('{\"loss\": 1.5}')"


def spec(code=GOOD, **more):
    return ExperimentSpec(**{"experiment_id": "x", "command": (sys.executable, "-c", textwrap.dedent(code)),
                             "seed": 3, "metric_keys": ("loss",), "wall_timeout_s": 20.0, **more})


def run(one, tmp_path, **more):
    (result,) = run_all([one], results_file=tmp_path / "results", **more)
    return result


def alive(pid):
    try: return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError: return False


def until(holds, seconds=10.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end and not holds(): time.sleep(0.02)
    return bool(holds())


# --- the ends -------------------------------------------------------------------------------------
def test_precedence_on_every_combination():
    "The table, written once more as four sets."
    seen = Counter()
    for large, slow, code, metrics in itertools.product((0, 1), (0, 1), (0, 1, None), (False, True)):
        state = terminal_state(peak_mb=10 + large, cap_mb=10, seconds=4.999 + slow / 1000, timeout_s=5,
                               exit_code=code, has_metrics=metrics)
        good = "ok" if (code, metrics) == (0, True) else "crash"
        assert state == {(1, 1): "oom", (1, 0): "oom", (0, 1): "timeout", (0, 0): good}[large, slow]
        seen[state] += 1
    assert seen == {"oom": 12, "timeout": 6, "ok": 1, "crash": 5} and set(seen) == set(TERMINALS)


HOG = "x = []\nwhile True: x.append(bytearray(2**20))"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
ENDS = {  # code, limits, terminal, exit code, signal, detail
    "ok": (GOOD, {}, "ok", 0, None, ""),
    "last line counts": ("print('{\"loss\": 7}'); print('{\"loss\": 1.5}'); print('bye', end='')", {}, "ok", 0, None, ""),
    "exception": ("1/0", {}, "crash", 1, None, "exit code 1"),
    "metrics, then exit 3": (GOOD + "; raise SystemExit(3)", {}, "crash", 3, None, "exit code 3"),
    "silent": ("pass", {}, "crash", 0, None, "no line of output is a JSON object with loss"),
    "NaN at last": (GOOD + "; print('{\"loss\": NaN}')", {}, "crash", 0, None, "loss is nan"),
    "another seed": ("print('{\"loss\": 1.5, \"seed\": 4}')", {}, "crash", 0, None, "seed 4.0 where 3 was asked for"),
    "segfault": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", {}, "crash", None, "SIGSEGV", "did not send"),
    "no such command": (None, {"command": ("no-such-program", "x")}, "crash", None, None, "No such file or directory: no-such-program"),
    "not executable": (None, {"command": ("/",)}, "crash", None, None, "Permission denied"),
    "no such folder": (GOOD, {"folder": "/nowhere/at/all"}, "crash", None, None, "No such file or directory: /nowhere"),
    "too slow": (GOOD + "; import time; time.sleep(60)", {"wall_timeout_s": 0.4}, "timeout", None, "SIGTERM", "longer than 0.4 s"),
    "too slow, leaves politely": ("""
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: (print('{"loss": 1}'), sys.exit(0)))
        time.sleep(60)""", {"wall_timeout_s": 1.5}, "timeout", 0, None, "longer than 1.5 s"),
    "too slow, deaf": (DEAF, {"wall_timeout_s": 1.2, "grace_s": 0.2}, "timeout", None, "SIGKILL", "longer"),
    "too slow, stopped": ("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", {"wall_timeout_s": 1.0, "grace_s": 0}, "timeout", None, "SIGKILL", "longer"),
    "too large, with metrics": (f"print('{{\"loss\": 1.5}}', flush=True)\n{HOG}", {"memory_cap_mb": 100}, "oom", None, "SIGKILL", "cap 100 MB, and was killed"),
}


@pytest.mark.parametrize("name", ENDS)
def test_every_end_has_its_state_and_its_reason(tmp_path, name):
    code, more, terminal, exit_code, number, says = ENDS[name]
    result = run(spec(code or "", **more), tmp_path)
    ending = result.other["run"]
    assert (result.terminal, ending["exit_code"], ending["signal"]) == (terminal, exit_code, number)
    assert says in result.detail, result.detail
    assert dict(result.metrics) == ({"loss": 1.5, "seed": 3} if terminal == "ok" else {"seed": 3})
    assert run(spec(code or "", **more), tmp_path).to_dict() == result.to_dict()  # from the journal


# --- what the child is given ----------------------------------------------------------------------
def test_config_and_seed_arrive_whatever_their_size(tmp_path):
    config = {"rate": 1e-3, "name": "naïve \u2028 \U0001f600", "big": "x" * 300_000, "deep": {"a": [1, None]}}
    code = """
        import json, sys
        given = json.load(sys.stdin)
        print(json.dumps({"loss": sum(map(ord, json.dumps(given["config"], sort_keys=True))), "seed": given["seed"]}))"""
    result = run(spec(code, config=config, seed=41), tmp_path)
    assert result.metrics["loss"] == sum(map(ord, json.dumps(config, sort_keys=True))) and result.seed == 41


def test_the_environment_is_what_was_passed_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    code = "import json, os, sys; print(json.dumps({'loss': 1.5})); print(json.dumps([dict(os.environ), os.getcwd(), os.listdir('.')]), file=sys.stderr)"
    result = run(spec(code, environment={"MINE": "naïve = 1", "LANG": "C"}), tmp_path)
    seen, where, files = json.loads(result.other["run"]["stderr_tail"])
    assert set(seen) - {"LC_CTYPE"} == {"PATH", "HOME", "TMPDIR", "LANG", "MINE"}  # LC_CTYPE: Python's own
    assert (seen["MINE"], seen["HOME"], files) == ("naïve = 1", where, []) and not os.path.exists(where)


# --- nothing is left behind -------------------------------------------------------------------------
NAP = str(10**6 + os.getpid())  # seconds; no other process of this machine sleeps as long
SPAWN = f"""
    import os, subprocess, sys, time
    subprocess.Popen(["sleep", "{NAP}"])
    subprocess.Popen(["sleep", "{NAP}"], start_new_session=True)
    if os.fork() == 0:  # a daemon: twice forked, its own session, pipes closed
        os.setsid()
        if os.fork() == 0:
            for fd in (0, 1, 2): os.close(fd)
            os.execvpe("sleep", ["sleep", "{NAP}"], {{"PATH": os.environ["PATH"]}})
        os._exit(0)
    os.wait()
    time.sleep(0.2)
"""


def sleepers():
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try: mine = Path(f"/proc/{name}/cmdline").read_bytes() == f"sleep\0{NAP}\0".encode()
        except OSError: continue
        if mine and alive(name): found.append(int(name))
    return found


@linux
@pytest.mark.parametrize("then, terminal", [(GOOD, "ok"), ("time.sleep(60)", "timeout"), (HOG, "oom")])
def test_children_and_daemons_end_with_the_run(tmp_path, then, terminal):
    assert not sleepers()
    limit = 2.0 if terminal == "timeout" else 20.0
    result = run(spec(textwrap.dedent(SPAWN) + then, wall_timeout_s=limit, memory_cap_mb=150), tmp_path)
    assert result.terminal == terminal and not sleepers()
    assert terminal != "ok" or result.other["run"]["left_over"] == 3


@linux
def test_no_process_thread_or_descriptor_is_kept(tmp_path, monkeypatch):
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(guard.tempfile, "tempdir", str(tmp_path / "scratch"))
    run(spec(seed=999), tmp_path)
    def held(): return threading.active_count(), len(os.listdir("/proc/self/fd")), os.listdir(tmp_path / "scratch")
    before = held()
    specs = over_seeds(spec(SPAWN + "    " + GOOD), range(3)) + over_seeds(spec("1/0"), range(3))
    results = run_all(specs, results_file=tmp_path / "results", workers=3)
    assert Counter(r.terminal for r in results) == {"ok": 3, "crash": 3} and held() == before


@linux
def test_a_killed_guard_is_a_crash_and_the_queue_goes_on(tmp_path):
    shoot = "import os, signal, time; os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)"
    first, second = run_all([spec(shoot), spec()], results_file=tmp_path / "r", workers=1)
    assert first.terminal == "crash" and "its guard was killed" in first.detail and second.ok


# --- memory -----------------------------------------------------------------------------------------
def ended(code, **limits): return GuardedRun((sys.executable, "-c", textwrap.dedent(code)), **limits).wait()


@linux
def test_memory_is_that_of_the_whole_tree_and_shared_pages_count_once():
    own = "x = b'x' * (60 * 2**20); import time; time.sleep(60)"
    e = ended(f"import subprocess, sys, time; [subprocess.Popen([sys.executable, '-c', {own!r}]) for _ in range(4)]; time.sleep(60)", memory_cap_mb=200)
    assert e.killed and 200 < e.peak_memory_mb < 350
    e = ended("""
        import os, time
        x = b"x" * (100 * 2**20)
        if 0 in [os.fork() for _ in range(2)]: time.sleep(0.5); os._exit(0)
        time.sleep(0.4)""", memory_cap_mb=200)  # four processes of 400 MB that hold 110
    assert not e.killed and e.exit_code == 0


@linux
def test_reserved_addresses_and_our_own_size_are_not_the_run_s():
    ballast = b"x" * (200 * 2**20)
    e = ended("import mmap as m; x = m.mmap(-1, 2**36, flags=m.MAP_PRIVATE | m.MAP_ANONYMOUS, prot=m.PROT_READ)", memory_cap_mb=100)
    assert e.exit_code == 0 and e.peak_memory_mb < 60 and len(ballast)


def test_a_fast_hog_is_seen_after_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(guard, "TICK", 30.0)  # the guard looks once, at the start
    result = run(spec("import time; time.sleep(0.3); x = b'x' * (200 * 2**20); " + GOOD, memory_cap_mb=100), tmp_path)
    assert result.terminal == "oom" and "seen only after its end" in result.detail
    assert dict(result.metrics) == {"seed": 3} and result.other["run"]["exit_code"] == 0


# --- output -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("line, says", [
    ('{"loss": null}', "not a number"), ('{"loss": true}', "not a number"), ('{"loss": "1.5"}', "not a number"),
    ('{"loss": -Infinity}', "-inf"), ('{"loss": 1e999}', "inf"), ('{"loss": ' + "9" * 400 + "}", "inf"),
    ('{"loss": 1, "seed": "3"}', "seed '3'"), ('["loss"]', None), ('{"lost": 1}', None), ('{"loss": 1', None), ("{" * 99, None)])
def test_lines_that_are_no_result(line, says):
    metrics, doubt = read_metrics(line.encode(), ("loss",), 3)
    assert metrics is None and (doubt is None if says is None else says in doubt)


lines = st.lists(st.one_of(
    st.binary(max_size=30), st.sampled_from([b"", b"{", b'{"loss": 1', b'  {"loss": 2}', b'{"loss": NaN}', b'{"loss": 3, "seed": 9}', b"x" * 300]),
    st.dictionaries(st.sampled_from(["loss", "acc", "é", "seed"]), st.one_of(st.integers(0, 3), st.floats(), st.none(), st.text(max_size=3)), max_size=4)
    .map(lambda d: json.dumps(d).encode())), max_size=12)


def naive(data, keys, seed):
    "The last line of the whole output that has the keys: read at once, with the plainest tools."
    last = None
    for line in data.split(b"\n"):
        try: found = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError): continue
        if isinstance(found, dict) and all(k in found for k in keys): last = found
    if last is None: return "none"
    good = all(type(last[k]) in (int, float) and math.isfinite(last[k]) for k in keys)
    return {k: last[k] for k in keys} if good and last.get("seed", seed) == seed else "doubt"


@given(lines=lines, cuts=st.lists(st.integers(1, 40), max_size=60), newline=st.booleans(), keys=st.sampled_from([("loss",), ("loss", "acc"), ("é",)]))
@settings(max_examples=60, deadline=None)
def test_output_in_pieces_is_output_at_once(lines, cuts, newline, keys):
    data = b"\n".join(lines) + b"\n" * newline
    output, at = runner._Output(spec(metric_keys=keys)), 0
    for cut in itertools.chain(cuts, itertools.repeat(64)):
        if at >= len(data): break
        output.feed(data[at:at + cut])
        at += cut
    output.end()
    metrics, doubt = output.final
    assert (metrics if metrics is not None else "doubt" if doubt else "none") == naive(data, keys, 3)


def test_the_end_of_a_line_too_long_to_read_is_no_line():
    output = runner._Output(spec())
    for data in (b"x" * (runner.LONGEST_LINE + 1), b'{"loss": 9}\n{"loss": 1.5}'): output.feed(data)
    output.end()
    assert (output.final, output.n_lines) == (({"loss": 1.5}, None), 1)


def test_a_flood_of_output_is_not_kept(tmp_path):
    code = """
        import os
        for _ in range(40): os.write(1, b"x" * 2**20); os.write(2, b"e" * 2**20)
        os.write(1, b'{"loss": 9}\\n{"loss": 1.5}')"""  # the first stands at the end of a line too long to read
    began = time.monotonic()
    result = run(spec(code), tmp_path)
    assert result.ok and result.other["run"]["metric_lines"] == 1 and time.monotonic() - began < 15
    assert len(result.other["run"]["stderr_tail"]) <= guard.KEPT_STDERR


# --- the queue of runs ------------------------------------------------------------------------------
WORK = """
import json, random, sys, time
given = json.load(sys.stdin)
with open(given["config"]["log"], "a") as log: log.write(f"start {given['seed']}\\n")
time.sleep(given["config"]["sleep"] * random.Random(given["seed"]).random())
if given["seed"] % 5 == 4: raise SystemExit(7)
print(json.dumps({"loss": given["seed"] / 8, "seed": given["seed"]}))
"""


def work(tmp_path, seeds, sleep=0, **more):
    return over_seeds(spec(WORK, config={"log": str(tmp_path / "log"), "sleep": sleep}, **more), seeds)


def outcome(results): return [(r.seed, r.terminal, r.metrics.get("loss")) for r in results]


def test_results_come_in_the_order_of_the_specs_and_nothing_runs_twice(tmp_path):
    specs, twins = work(tmp_path, [3, 9, 1, 0], 0.2), work(tmp_path, [1, 0], 0.2, experiment_id="y", hypothesis_id=7)
    seen = []
    first = run_all([*specs, *twins], results_file=tmp_path / "r", workers=3, progress=lambda *a: seen.append(a[1:]))
    assert outcome(first[:4]) == [(3, "ok", 0.375), (9, "crash", None), (1, "ok", 0.125), (0, "ok", 0.0)]
    assert [(r.experiment_id, r.hypothesis_id) for r in first[4:]] == [("y/seed=1", 7), ("y/seed=0", 7)]
    assert Counter((tmp_path / "log").read_text().splitlines()) == {f"start {s}": 1 for s in (3, 9, 1, 0)}
    assert seen == [(i, 4) for i in range(1, 5)]
    again = run_all([*specs, *twins], results_file=tmp_path / "r", progress=seen.append)
    assert [r.to_dict() for r in again] == [r.to_dict() for r in first] and len(seen) == 4


def test_workers_run_at_the_same_time(tmp_path):
    "Each waits until the other has started."
    code = f"""
        import json, os, sys, time
        seed = json.load(sys.stdin)["seed"]
        open(f"{tmp_path}/started-{{seed}}", "w").close()
        while not os.path.exists(f"{tmp_path}/started-{{1 - seed}}"): time.sleep(0.01)
        {GOOD}"""
    assert all(r.ok for r in run_all(over_seeds(spec(code), range(2)), results_file=tmp_path / "r", workers=2))


def test_failed_runs_get_another_attempt_only_when_asked(tmp_path):
    flag = tmp_path / "repaired"
    code = f"import os\nif not os.path.exists({str(flag)!r}): raise SystemExit(2)\n{GOOD}"
    assert run(spec(code), tmp_path).terminal == "crash"
    flag.touch()
    assert run(spec(code), tmp_path).terminal == run(spec(code), tmp_path, again=("timeout",)).terminal == "crash"
    assert run(spec(code), tmp_path, again=("crash",)).ok and run(spec(code), tmp_path, again=TERMINALS[1:]).ok
    with pytest.raises(ContractError, match="again must be one of .*; got 'ok'"): run(spec(code), tmp_path, again=("ok",))


def test_the_key_is_everything_that_decides_and_nothing_else(tmp_path):
    script, data = tmp_path / "train.py", tmp_path / "data.txt"
    script.write_text(GOOD)
    data.write_text("x")
    base = spec(config={"a": 1}, environment={"A": "1"}, files=(script,))
    others = {"command": ("true",), "config": {"a": 2}, "seed": 4, "metric_keys": ("loss", "acc"), "environment": {"A": "2"},
              "files": (data,), "folder": tmp_path, "wall_timeout_s": 21.0, "memory_cap_mb": 513.0, "grace_s": 2.5}
    keys = {name: runner.replace(base, **{name: value}).key for name, value in others.items()} | {"base": base.key}
    script.write_text(GOOD + "\n")
    keys["content"] = base.key
    assert len(set(keys.values())) == len(keys) == 12
    script.write_text(GOOD)
    assert runner.replace(base, experiment_id="y", hypothesis_id=9).key == keys["base"]
    assert "A" in base.to_dict()["environment"] and "'1'" not in str(base.to_dict()["environment"])


def test_a_file_that_changes_under_the_queue_stops_it(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(f"open({str(script)!r}, 'a').write('#\\n')\n{GOOD}")
    specs = over_seeds(spec(command=(sys.executable, str(script)), files=(script,)), range(3))
    with pytest.raises(ContractError, match="must not change while the queue runs; got 'x/seed=1'"):
        run_all(specs, results_file=tmp_path / "r", workers=1)
    with Journal(tmp_path / "r", runner._KEY) as kept: assert len(kept) == 1


def test_an_error_of_the_caller_ends_every_run_and_keeps_what_finished(tmp_path):
    class Stop(Exception): pass

    def progress(result, done, total): raise Stop
    nap = spec(f"import subprocess; subprocess.run(['sleep', '{NAP}'])", wall_timeout_s=1e6)
    with pytest.raises(Stop):
        run_all([spec(), *over_seeds(nap, range(4))], results_file=tmp_path / "r", workers=3, progress=progress)
    with Journal(tmp_path / "r", runner._KEY) as kept: assert [r["terminal"] for _, r in kept.items()] == ["ok"]
    assert sys.platform != "linux" or not sleepers()


def test_ablation_and_seeds():
    base = spec(config={"rate": 1, "layers": 2})
    assert [(s.experiment_id, dict(s.config)) for s in ablate(base, "rate", [1, 3])] == [
        ("x/rate=1", {"rate": 1, "layers": 2}), ("x/rate=3", {"rate": 3, "layers": 2})]
    assert [(s.experiment_id, s.seed) for s in over_seeds(base, [5, 6])] == [("x/seed=5", 5), ("x/seed=6", 6)]
    with pytest.raises(ContractError, match="Did you mean 'rate'"): ablate(base, "rat", [1])


@pytest.mark.parametrize("bad", [
    dict(command="python x.py"), dict(command=()), dict(metric_keys=()), dict(metric_keys=("seed",)), dict(seed=-1),
    dict(seed=1.5), dict(environment={"A": 1}), dict(config={"a": math.nan}), dict(wall_timeout_s=0), dict(wall_timeout_s=math.inf),
    dict(memory_cap_mb="1"), dict(grace_s=-1), dict(experiment_id="")])
def test_what_is_no_experiment(bad):
    with pytest.raises(ContractError): spec(**bad)


def test_what_the_queue_refuses(tmp_path):
    with pytest.raises(ContractError, match="files must exist"): run(spec(files=("nowhere.py",)), tmp_path)
    with pytest.raises(ContractError, match="must hold ExperimentSpecs"): run_all(["x"], results_file=tmp_path / "r")
    (tmp_path / "text").write_text("seed,loss\n" * 100)
    with pytest.raises(ContractError): run_all([spec()], results_file=tmp_path / "text")
    assert (tmp_path / "text").read_text().startswith("seed,loss")


def test_written_runs_are_read_back(tmp_path):
    results = [ExperimentResult(terminal="ok", metrics={"seed": 1, "loss": 2.5}),
               ExperimentResult(terminal="oom", metrics={"seed": 2, "loss": None}, detail="120 MB")]
    write_runs(results, tmp_path / "arm.jsonl")
    assert [r.to_dict() for r in read_runs(tmp_path / "arm.jsonl")] == [r.to_dict() for r in results]


# --- a parent that dies -------------------------------------------------------------------------------
PARENT = """
import sys, tempfile
tempfile.tempdir = sys.argv[4]
from invar_nb.experiments.runner import ExperimentSpec, over_seeds, run_all
work = ExperimentSpec(experiment_id="x", command=(sys.executable, "-c", sys.argv[1]), seed=0, metric_keys=("loss",),
                      config={"log": sys.argv[3], "sleep": float(sys.argv[5])}, grace_s=0.5)
run_all(over_seeds(work, range(12)), results_file=sys.argv[2], workers=3)
print("done", flush=True)
"""


def parent(tmp_path, sleep):
    (tmp_path / "scratch").mkdir(exist_ok=True)
    return subprocess.Popen([sys.executable, "-c", PARENT, WORK, *(str(tmp_path / n) for n in ("r", "log", "scratch")), str(sleep)],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def living(tmp_path):
    "Runs of this test, by the folder that they work in."
    found = []
    for p in Path("/proc").glob("[0-9]*"):
        try: mine = os.readlink(p / "cwd").startswith(str(tmp_path / "scratch"))
        except OSError: continue
        if mine and alive(p.name): found.append(p.name)
    return found


@linux
def test_killed_at_random_times_the_queue_resumes_without_loss(tmp_path):
    rnd, recorded, kills = random.Random(7), {}, 0
    log = tmp_path / "log"
    log.touch()
    while True:
        p, starts = parent(tmp_path, 0.2), len(log.read_text().splitlines())
        if kills < 4:
            until(lambda: len(log.read_text().splitlines()) > starts + 2)
            time.sleep(0.3 * rnd.random())
            p.kill()
        if "done" in p.communicate()[0]: break
        kills += 1
        assert until(lambda: not living(tmp_path)), "runs outlive their parent"
        with Journal(tmp_path / "r", runner._KEY) as kept:
            now = dict(kept.items())
        assert recorded.items() <= now.items()
        recorded = now
    with Journal(tmp_path / "r", runner._KEY) as kept: final = [ExperimentResult.from_row(r) for _, r in kept.items()]
    assert sorted(outcome(final)) == [(s, "crash", None) if s % 5 == 4 else (s, "ok", s / 8) for s in range(12)]
    assert len(log.read_text().splitlines()) <= 12 + 3 * kills and kills == 4


def test_a_result_is_on_the_disk_before_it_is_reported(tmp_path):
    code = """
import os, signal, sys
from invar_nb.experiments.runner import ExperimentSpec, over_seeds, run_all
spec = ExperimentSpec(experiment_id="x", command=("true",), seed=0, metric_keys=("loss",))
run_all(over_seeds(spec, range(3)), results_file=sys.argv[1], workers=1,
        progress=lambda *_: os.kill(os.getpid(), signal.SIGKILL))"""
    p = subprocess.run([sys.executable, "-c", code, str(tmp_path / "r")], capture_output=True)
    assert p.returncode == -signal.SIGKILL, p.stderr
    with Journal(tmp_path / "r", runner._KEY) as kept: assert len(kept) == 1


@linux
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_runs_of_a_dead_parent_end_and_their_folders_go(tmp_path, number):
    p = parent(tmp_path, 60)
    assert until(lambda: len(living(tmp_path)) == 3)
    p.send_signal(number)
    p.communicate(timeout=20)
    assert until(lambda: not living(tmp_path) and not os.listdir(tmp_path / "scratch"))


@linux
def test_a_command_that_ends_at_once_is_seen_to_end(tmp_path, monkeypatch):
    "The Popen object must not take the exit status when it is collected: the guard then waited for ever."
    import time

    from invar_nb.experiments import guard

    class Slow(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            time.sleep(0.3)
    monkeypatch.setattr(guard.subprocess, "Popen", Slow)
    plan = dict(scratch=str(tmp_path / "s"), command=["true"], input=subprocess.DEVNULL, folder=str(tmp_path), environment=dict(os.environ))
    pid, wrong = guard._launch(plan, None)
    report = {"peak": 0, "status": None}
    assert not wrong and guard._reap(pid, report) and report["status"] == 0
    assert guard._reap(pid, report)          # a command that is gone has ended
