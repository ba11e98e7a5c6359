"""The runner from outside: every way a run can end, everything it can leave behind, and a parent that is killed at any moment."""
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
from hypothesis import given
from hypothesis import strategies as st

from invar_nb import ContractError
from invar_nb.evidence.runs import TERMINALS, ExperimentResult
from invar_nb.machine import runner
from invar_nb.machine.runner import ExperimentSpec, ResultsFile, ablate, over_seeds, read_results, run_all, terminal_state, write_runs

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the runner needs POSIX processes")
linux = pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's /proc")
GOOD = "print('{\"loss\": 1.5}')"


def spec(code=GOOD, **more):
    return ExperimentSpec(**{"experiment_id": "x", "command": (sys.executable, "-c", textwrap.dedent(code)), "seed": 3, "metric_keys": ("loss",), "wall_timeout_s": 20.0, **more})


def run(one, tmp_path, **more):
    (result,) = run_all([one], results_file=tmp_path / "results.jsonl", **more)
    return result


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def until(holds, seconds=10.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds(): return True
        time.sleep(0.01)
    return bool(holds())


# --- the ends -------------------------------------------------------------------------------------------------------------------------
ENDS = {
    "ok": (GOOD, {}, "ok", 0, None, "exited with code 0 and told loss"),
    "no line break": ("import sys; sys.stdout.write('{\"loss\": 1.5}')", {}, "ok", 0, None, "told loss"),
    "last line counts": ("print('{\"loss\": 7}'); print('{\"loss\": 1.5}'); print('{\"done\": true}'); print('bye')", {}, "ok", 0, None, "told loss"),
    "its own seed": ("print('{\"loss\": 1.5, \"seed\": 3}')", {}, "ok", 0, None, "told loss"),
    "an escaped name": ("print('{\"\\\\u006coss\": 1.5}')", {}, "ok", 0, None, "told loss"),
    "garbage around": ("import os; os.write(1, bytes(range(256)) * 9 + b'\\n{\"loss\": 1.5}\\n\\xff{\\x00\\n')", {}, "ok", 0, None, "told loss"),
    "windows line ends": ("import os; os.write(1, b'{\"loss\": 1.5}\\r\\n')", {}, "ok", 0, None, "told loss"),
    "exception": ("1/0", {}, "crash", 1, None, "exited with code 1"),
    "metrics, then exit 3": (GOOD + "; raise SystemExit(3)", {}, "crash", 3, None, "exited with code 3"),
    "silent": ("pass", {}, "crash", 0, None, "no line of its output is a JSON object with loss"),
    "another metric": ("print('{\"lost\": 1}')", {}, "crash", 0, None, "no line"),
    "a list": ("print('[\"loss\", 1]')", {}, "crash", 0, None, "no line"),
    "cut off": ("import sys; sys.stdout.write('{\"loss\": 1.5')", {}, "crash", 0, None, "no line"),
    "NaN at last": (GOOD + "; print('{\"loss\": NaN}')", {}, "crash", 0, None, "loss is nan"),
    "infinity": ("print('{\"loss\": -Infinity}')", {}, "crash", 0, None, "loss is -inf"),
    "overflow": ("print('{\"loss\": 1e999}')", {}, "crash", 0, None, "loss is inf"),
    "a thousand digits": (GOOD + "; print('{\"loss\": ' + '9' * 9999 + '}')", {}, "crash", 0, None, "loss is inf"),
    "NaN beside it": ("print('{\"loss\": 1.5, \"norms\": [1, NaN]}')", {}, "crash", 0, None, "norms.1 is nan"),
    "null": ("print('{\"loss\": null}')", {}, "crash", 0, None, "loss is null, not a number"),
    "true": ("print('{\"loss\": true}')", {}, "crash", 0, None, "loss is true, not a number"),
    "text": ("print('{\"loss\": \"1.5\"}')", {}, "crash", 0, None, "not a number"),
    "said twice": ("print('{\"loss\": 1.5, \"loss\": 2.5}')", {}, "crash", 0, None, "'loss' is said twice"),
    "another seed": ("print('{\"loss\": 1.5, \"seed\": 4}')", {}, "crash", 0, None, "seed 4 where 3 was asked for"),
    "segfault": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", {}, "crash", None, "SIGSEGV", "SIGSEGV, which this runner did not send"),
    "killed by another": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", {}, "crash", None, "SIGKILL", "did not send"),
    "no such command": (None, {"command": ("no-such-program", "x")}, "crash", None, None, "could not be started: No such file or directory: no-such-program"),
    "not executable": (None, {"command": ("/",)}, "crash", None, None, "could not be started: Permission denied"),
    "no such folder": (GOOD, {"folder": "/nowhere/at/all"}, "crash", None, None, "could not be started: No such file or directory: /nowhere"),
    "too slow": ("import time; time.sleep(60)", {"wall_timeout_s": 0.3}, "timeout", None, "SIGTERM", "longer than 0.3 s and ended on SIGTERM"),
    "too slow, with metrics": ("import time; print('{\"loss\": 1}', flush=True); time.sleep(60)", {"wall_timeout_s": 0.3}, "timeout", None, "SIGTERM", "longer than 0.3 s"),
    "too slow, leaves politely": ("""
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: (print('{"loss": 1}'), sys.exit(0)))
        time.sleep(60)""", {"wall_timeout_s": 1.5}, "timeout", 0, None, "longer than 1.5 s and ended by itself"),
    "too slow, deaf": ("import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)", {"wall_timeout_s": 1.2, "grace_s": 0.2}, "timeout", None, "SIGKILL", "was killed"),
    "too slow, no grace": ("import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)", {"wall_timeout_s": 1.2, "grace_s": 0}, "timeout", None, "SIGKILL", "was killed"),
    "too slow, stopped": ("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", {"wall_timeout_s": 1.2, "grace_s": 0.2}, "timeout", None, "SIGKILL", "was killed"),
    "too large": ("x = []\nwhile True: x.append(bytearray(2**20))", {"memory_cap_mb": 100}, "oom", None, "SIGKILL", "cap 100 MB, and was killed"),
    "too large, with metrics": (GOOD + "\nimport sys; sys.stdout.flush()\nx = []\nwhile True: x.append(bytearray(2**20))", {"memory_cap_mb": 100}, "oom", None, "SIGKILL", "cap 100 MB"),
}


@pytest.mark.parametrize("name", ENDS)
def test_every_end_has_its_state_and_its_reason(tmp_path, name):
    code, more, terminal, exit_code, number, says = ENDS[name]
    result = run(spec(code or "", **more), tmp_path)
    told = result.other["run"]
    if name.startswith("too large") and not told["sampled"]: pytest.skip("memory is only looked at after the end here")
    assert (result.terminal, told["exit_code"], told["signal"]) == (terminal, exit_code, number) and says in result.detail, result.detail
    assert dict(result.metrics) == ({"loss": 1.5, "seed": 3} if terminal == "ok" else {"seed": 3})
    assert read_results(tmp_path / "results.jsonl") == [result] and result.ok == (terminal == "ok")
    limits = dict(peak_mb=told["peak_memory_mb"], cap_mb=more.get("memory_cap_mb", 512), seconds=told["seconds"], timeout_s=more.get("wall_timeout_s", 20))
    assert terminal_state(**limits, exit_code=exit_code, has_metrics=terminal == "ok") == terminal


def test_precedence_on_every_combination():
    "The table, written once more as four sets."
    seen = Counter()
    for large, slow, code, metrics in itertools.product((False, True), (False, True), (0, 1, None), (False, True)):
        state = terminal_state(peak_mb=11.0 if large else 10.0, cap_mb=10.0, seconds=5.0 if slow else 4.999, timeout_s=5.0, exit_code=code, has_metrics=metrics)
        expected = {(True, True): "oom", (True, False): "oom", (False, True): "timeout", (False, False): "ok" if (code, metrics) == (0, True) else "crash"}[large, slow]
        assert state == expected
        seen[state] += 1
    assert seen == {"oom": 12, "timeout": 6, "ok": 1, "crash": 5} and set(seen) == set(TERMINALS)


# --- what the child is given ----------------------------------------------------------------------------------------------------------
def test_config_and_seed_arrive_whatever_their_size(tmp_path):
    config = {"rate": 1e-3, "name": "naïve \u2028 \U0001f600", "big": "x" * 300_000, "nested": {"a": [1, None, True]}}
    result = run(spec("""
        import hashlib, json, sys
        given = json.load(sys.stdin)
        print(json.dumps({"loss": int(hashlib.sha256(json.dumps(given["config"], sort_keys=True).encode()).hexdigest()[:12], 16), "seed": given["seed"], "keys": sorted(given)}))""",
        config=config, seed=41), tmp_path)
    import hashlib
    assert result.metrics["loss"] == int(hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12], 16) and result.seed == 41


def test_the_environment_is_what_was_passed_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    code = "import json, os, sys; print(json.dumps({'loss': 1.5})); print(json.dumps(dict(os.environ)), file=sys.stderr)"
    result = run(spec(code, environment={"MINE": "naïve = 1", "LANG": "C"}), tmp_path)
    seen = json.loads(result.other["run"]["stderr_tail"])
    assert set(seen) - {"LC_CTYPE"} == {"PATH", "HOME", "TMPDIR", "LANG", "MINE"}            # LC_CTYPE is Python's own answer to LANG=C
    assert (seen["MINE"], seen["LANG"], seen["PATH"], seen["HOME"]) == ("naïve = 1", "C", os.environ["PATH"], seen["TMPDIR"])
    assert "hush" not in (tmp_path / "results.jsonl").read_text() and "naïve = 1" not in (tmp_path / "results.jsonl").read_text().split('"experiment"')[1].split('"other"')[0]


def test_a_folder_of_its_own_empty_and_gone_afterwards(tmp_path):
    code = "import os, sys; print(os.getcwd(), os.listdir('.'), file=sys.stderr); open('left', 'w').close(); os.mkdir('x'); " + GOOD
    result = run(spec(code), tmp_path)
    where, files = result.other["run"]["stderr_tail"].strip().split(" ", 1)
    assert result.ok and files == "[]" and not os.path.exists(where)
    result = run(spec(code, folder=tmp_path), tmp_path)
    assert result.ok and result.other["run"]["stderr_tail"].startswith(str(tmp_path)) and (tmp_path / "left").exists()


@linux
def test_ordinary_signals_and_no_open_files(tmp_path):
    "Seen from a shell: Python would ignore SIGPIPE again by itself."
    code = """mask() { printf '%d' 0x$(grep $1 /proc/self/status | cut -f2); }
              echo "{\\"ignored\\": $(mask SigIgn), \\"blocked\\": $(mask SigBlk), \\"open\\": $(ls /proc/self/fd | wc -l)}" """
    result = run(spec(command=("sh", "-c", code), metric_keys=("ignored", "blocked", "open")), tmp_path)
    settable = sum(1 << s - 1 for s in signal.valid_signals())        # glibc keeps 32 and 33 for itself; who was born by posix_spawn ignores them
    assert {name: int(value) & settable for name, value in result.metrics.items() if name in ("ignored", "blocked")} == {"ignored": 0, "blocked": 0}, result
    assert result.metrics["open"] == 4        # three, and the folder that ls reads


# --- nothing is left behind -----------------------------------------------------------------------------------------------------------
NAP = str(10**6 + os.getpid())                                               # seconds; no other process of this machine sleeps as long
SPAWN = """
    import os, subprocess, sys, time
    subprocess.Popen(["sleep", "NAP"])                                   # a child
    subprocess.Popen(["sleep", "NAP"], start_new_session=True)           # one in another session
    if os.fork() == 0:                                                    # a daemon: twice forked, its own session, pipes closed
        os.setsid()
        if os.fork() == 0:
            for fd in (0, 1, 2): os.close(fd)
            os.execvpe("sleep", ["sleep", "NAP"], {"PATH": os.environ["PATH"]})
        os._exit(0)
    os.wait()
    time.sleep(0.2)
""".replace("NAP", NAP)


def sleepers():
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if Path(f"/proc/{name}/cmdline").read_bytes() == f"sleep\0{NAP}\0".encode() and alive(name): found.append(int(name))
        except OSError:
            continue
    return found


@linux
@pytest.mark.parametrize("then, terminal", [(GOOD, "ok"), ("1/0", "crash"), ("time.sleep(60)", "timeout"), ("x = [bytearray(2**20) for _ in range(500)]", "oom")])
def test_children_grandchildren_and_daemons_end_with_the_run(tmp_path, then, terminal):
    assert not sleepers()
    result = run(spec(textwrap.dedent(SPAWN) + then, wall_timeout_s=1.5, memory_cap_mb=150), tmp_path)
    assert result.terminal == terminal and not sleepers()
    assert terminal not in ("ok", "crash") or result.other["run"]["left_over"] == 3
    assert result.other["run"]["seconds"] < 5


@linux
def test_helpers_that_leave_by_themselves_are_not_counted(tmp_path):
    code = "import subprocess; subprocess.Popen(['sleep', '0.04']); " + GOOD
    result = run(spec(code), tmp_path)
    assert result.ok and result.other["run"]["left_over"] == 0


@linux
def test_no_process_thread_or_descriptor_is_kept(tmp_path, monkeypatch):
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(runner.tempfile, "tempdir", str(tmp_path / "scratch"))        # other tests put folders where all do
    run(spec(seed=999), tmp_path)
    before = (threading.active_count(), len(os.listdir("/proc/self/fd")), set(os.listdir(runner.tempfile.gettempdir())))
    results = run_all(over_seeds(spec(SPAWN + "    " + GOOD), range(4)) + over_seeds(spec("1/0"), range(4)), results_file=tmp_path / "results.jsonl", workers=4)
    assert Counter(r.terminal for r in results) == {"ok": 4, "crash": 4}
    assert (threading.active_count(), len(os.listdir("/proc/self/fd")), set(os.listdir(runner.tempfile.gettempdir()))) == before
    me, children = os.getpid(), []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1]) == me: children.append(Path(f"/proc/{name}/cmdline").read_bytes())
        except OSError:
            continue
    assert not [c for c in children if b"_guard" in c or c == b""], "a guard or a zombie is left"


@linux
def test_a_killed_guard_is_a_crash_and_the_queue_goes_on(tmp_path):
    shoot = "import os, signal, time; os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)"
    first, second = run_all([spec(shoot), spec()], results_file=tmp_path / "r.jsonl", workers=1)
    assert (first.terminal, first.detail) == ("crash", "it could not be watched: its guard was killed") and second.ok


# --- memory ---------------------------------------------------------------------------------------------------------------------------
@linux
def test_memory_is_that_of_the_whole_tree(tmp_path):
    each = "x = b'x' * (60 * 2**20); import time; time.sleep(60)"
    code = f"import subprocess, sys, time; [subprocess.Popen([sys.executable, '-c', {each!r}]) for _ in range(4)]; time.sleep(60)"
    result = run(spec(code, memory_cap_mb=200), tmp_path)
    assert result.terminal == "oom" and 200 < result.other["run"]["peak_memory_mb"] < 350


@linux
def test_shared_pages_are_counted_once(tmp_path):
    code = """
        import os, time
        x = b"x" * (100 * 2**20)
        if any(os.fork() == 0 for _ in range(4)): time.sleep(0.5); os._exit(0)
        time.sleep(0.4)
        print('{"loss": 1.5}')"""
    result = run(spec(code.replace("any(os.fork() == 0 for _ in range(4))", "0 in [os.fork() for _ in range(2)]"), memory_cap_mb=200), tmp_path)
    assert result.ok, result.detail                                                           # four processes that see 400 MB between them, and hold 110


@linux
def test_a_reserved_address_costs_nothing(tmp_path):
    result = run(spec("import mmap as m; x = m.mmap(-1, 2**36, flags=m.MAP_PRIVATE | m.MAP_ANONYMOUS, prot=m.PROT_READ); " + GOOD, memory_cap_mb=100), tmp_path)
    assert result.ok and result.other["run"]["peak_memory_mb"] < 50


def test_a_fast_hog_is_seen_after_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "TICK", 30.0)                                                 # the guard looks once, at the start
    result = run(spec("import time; time.sleep(0.3); x = b'x' * (200 * 2**20); " + GOOD, memory_cap_mb=100), tmp_path)
    assert result.terminal == "oom" and "seen only after its end" in result.detail and dict(result.metrics) == {"seed": 3}
    assert result.other["run"]["exit_code"] == 0 and 200 < result.other["run"]["peak_memory_mb"] < 300


def test_our_own_size_is_not_the_run_s(tmp_path):
    ballast = b"x" * (300 * 2**20)
    result = run(spec(memory_cap_mb=100), tmp_path)
    assert result.ok and result.other["run"]["peak_memory_mb"] < 50 and len(ballast)


# --- output ---------------------------------------------------------------------------------------------------------------------------
@linux
def test_a_gigabyte_of_output_stays_out_of_memory(tmp_path):
    parent = f"""
        import sys
        from invar_nb.machine.runner import ExperimentSpec, run_all
        hwm = lambda: int(next(l.split()[1] for l in open("/proc/self/status") if l.startswith("VmHWM"))) // 1024
        flood = '''import os
        for _ in range(250): os.write(1, b"x" * 2**20); os.write(1, (b"a log line of about a hundred characters " * 2 + b"\\\\n") * 12500); os.write(2, bytes(range(256)) * 4096); os.write(1, b'{{"loss": 7, ' * 87000)
        for _ in range(1000): os.write(1, b'{{"loss": ' * 12000)
        os.write(1, b'\\\\n{{"loss": 1.5}}')'''
        before = hwm()
        (r,) = run_all([ExperimentSpec(experiment_id="flood", command=({sys.executable!r}, "-c", "\\n".join(l.strip() for l in flood.splitlines())), seed=1, metric_keys=("loss",), wall_timeout_s=100)], results_file={str(tmp_path / 'r.jsonl')!r})
        print(r.terminal, dict(r.metrics), r.other["run"]["stdout_bytes"] + r.other["run"]["stderr_bytes"], hwm() - before, len(r.other["run"]["stderr_tail"]))"""
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(parent)], capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    terminal, *_, size, grown, tail = found.stdout.split()
    assert terminal == "ok" and "'loss': 1.5" in found.stdout and int(size) > 10**9 and int(grown) < 40 and int(tail) <= 4096


def test_both_pipes_full_is_no_deadlock(tmp_path):
    result = run(spec("import os\nfor _ in range(40): os.write(2, b'e' * 100_000); os.write(1, b'o' * 100_000)\nos.write(1, b'\\n{\"loss\": 1.5}')"), tmp_path)
    assert result.ok and (result.other["run"]["stdout_bytes"], result.other["run"]["stderr_bytes"]) == (4_000_014, 4_000_000)


def test_the_tail_of_stderr_is_kept(tmp_path):
    result = run(spec("import sys; sys.stderr.write('x' * 10_000 + ' é\\x00\\x1b[31m end'); 1/0"), tmp_path)
    tail = result.other["run"]["stderr_tail"]
    assert len(tail.encode()) <= 4096 and "é\x00\x1b[31m end" in tail and tail.rstrip().endswith("ZeroDivisionError: division by zero")
    assert read_results(tmp_path / "results.jsonl") == [result]


def test_earlier_metrics_are_kept_within_reason(tmp_path):
    result = run(spec("import json\nfor i in range(1000): print(json.dumps({'loss': i, 'note': 'x'}))\nprint('{\"loss\": NaN}'); print('{\"loss\": 1.5}')"), tmp_path)
    told = result.other["run"]
    assert result.metrics["loss"] == 1.5 and told["n_earlier"] == 1001 and len(told["earlier"]) == runner.KEPT_LINES
    assert told["earlier"][-2:] == [{"loss": 999}, {"doubt": "loss is nan"}]


def test_a_line_too_long_to_read_is_told(tmp_path):
    code = "import json; print(json.dumps({'loss': 1.5, 'rest': 'x' * (2**20 + 10)}))"
    result = run(spec(code), tmp_path)
    assert result.terminal == "crash" and "1 objects were longer than 1048576 bytes" in result.detail


lines = st.lists(st.one_of(
    st.binary(max_size=30), st.sampled_from([b"", b"{", b"}", b'{"loss": 1', b'  {"loss": 2}', b'{"loss": NaN}', b'{"loss": 3, "seed": 9}', b"x" * 300, b"[" * 300, b'{"a":' * 300]),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda x: json.dumps({"loss": x}).encode()),
    st.dictionaries(st.sampled_from(["loss", "acc", "é", "seed"]), st.one_of(st.integers(0, 3), st.floats(), st.none(), st.text(max_size=3)), max_size=4).map(lambda d: json.dumps(d).encode())), max_size=12)


def naive(data, keys, seed):
    "The last line of the whole output that is about the keys: read at once, with the plainest tools."
    last = None
    for line in data.split(b"\n"):
        try: found = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError): continue
        if isinstance(found, dict) and all(k in found for k in keys): last = found
    if last is None: return "none"
    numbers = all(type(last[k]) in (int, float) for k in keys)
    finite = all(math.isfinite(v) for v in last.values() if type(v) in (int, float))
    return {k: last[k] for k in keys} if numbers and finite and last.get("seed", seed) == seed and type(last.get("seed", seed)) is int else "doubt"


@given(lines=lines, cuts=st.lists(st.integers(1, 40), max_size=60), newline=st.booleans(), keys=st.sampled_from([("loss",), ("loss", "acc"), ("é",)]))
def test_output_in_pieces_is_output_at_once(lines, cuts, newline, keys):
    data = b"\n".join(lines) + b"\n" * newline
    output = runner._Output(spec(metric_keys=keys))
    at = 0
    for cut in itertools.chain(cuts, itertools.repeat(64)):
        if at >= len(data): break
        output.feed(data[at:at + cut])
        at += cut
    output.end()
    metrics, doubt = output.final
    assert (metrics if metrics is not None else "doubt" if doubt else "none") == naive(data, keys, 3)
    assert output.n_bytes == len(data) and not output.too_long


# --- the queue ------------------------------------------------------------------------------------------------------------------------
WORK = """
import json, os, random, sys, time
given = json.load(sys.stdin)
with open(given["config"]["log"], "a") as log: log.write(f"start {given['seed']}\\n")
time.sleep(given["config"]["sleep"] * random.Random(given["seed"]).random())
if given["seed"] % 5 == 4: raise SystemExit(7)
print(json.dumps({"loss": given["seed"] / 8, "seed": given["seed"]}))
"""


def outcome(results): return [(r.experiment_id, r.terminal, dict(r.metrics)) for r in results]


def test_results_come_in_the_order_of_the_specs_whoever_ends_first(tmp_path):
    def work(name): return over_seeds(spec(WORK, config={"log": str(tmp_path / f"{name}.log"), "sleep": 0.2}), [3, 9, 1, 7, 4, 0])
    one, four = (run_all(work(n), results_file=tmp_path / f"{n}.jsonl", workers=n) for n in (1, 4))
    assert outcome(one) == outcome(four) and [r.seed for r in four] == [3, 9, 1, 7, 4, 0]
    assert [r.terminal for r in one] == ["ok", "crash", "ok", "ok", "crash", "ok"]


def test_workers_run_at_the_same_time(tmp_path):
    began = time.monotonic()
    run_all(over_seeds(spec("import time; time.sleep(0.7); " + GOOD), range(4)), results_file=tmp_path / "r.jsonl", workers=4)
    assert time.monotonic() - began < 2.1                                                     # one after another they sleep 2.8 s


def test_nothing_runs_twice_and_equal_experiments_run_once(tmp_path):
    log = tmp_path / "log"
    specs = over_seeds(spec(WORK, config={"log": str(log), "sleep": 0}, experiment_id="a"), range(6))
    twins = over_seeds(spec(WORK, config={"log": str(log), "sleep": 0}, experiment_id="b", hypothesis_id=7), range(3, 6))
    seen = []
    first = run_all([*specs, *twins], results_file=tmp_path / "r.jsonl", progress=lambda result, done, total: seen.append((result.seed, done, total)))
    assert Counter(log.read_text().split("\n")[:-1]) == {f"start {s}": 1 for s in range(6)} and [s[1:] for s in seen] == [(i, 6) for i in range(1, 7)]
    assert [(r.experiment_id, r.hypothesis_id) for r in first[6:]] == [(f"b/seed={s}", 7) for s in (3, 4, 5)] and [r.metrics for r in first[6:]] == [r.metrics for r in first[3:6]]
    assert run_all([*specs, *twins], results_file=tmp_path / "r.jsonl", progress=seen.append) == first and len(log.read_text().split()) == 12
    assert run_all(twins[::-1], results_file=tmp_path / "r.jsonl") == first[:5:-1]


def test_failed_runs_get_another_attempt_only_when_asked(tmp_path):
    flag = tmp_path / "repaired"
    code = f"import os\nif not os.path.exists({str(flag)!r}): raise SystemExit(2)\n{GOOD}"
    assert run(spec(code), tmp_path).terminal == "crash"
    flag.touch()
    assert run(spec(code), tmp_path).terminal == "crash" and run(spec(code), tmp_path, again=("timeout", "oom")).terminal == "crash"
    again = run(spec(code), tmp_path, again=("crash",))
    assert again.ok and again.other["run"]["attempt"] == 2
    flag.unlink()
    assert run(spec(code), tmp_path, again=TERMINALS[1:]) == again and len((tmp_path / "results.jsonl").read_text().splitlines()) == 3
    with pytest.raises(ContractError, match="again must be one of 'timeout', 'oom', 'crash'; got 'ok'"): run(spec(code), tmp_path, again=("ok",))


def test_the_key_is_everything_that_decides_and_nothing_else(tmp_path):
    script, data = tmp_path / "train.py", tmp_path / "data.txt"
    script.write_text(GOOD)
    data.write_text("x")
    base = spec(config={"a": 1}, environment={"A": "1"}, files=(script,))
    others = {"command": ("true",), "config": {"a": 2}, "seed": 4, "metric_keys": ("loss", "acc"), "environment": {"A": "2"}, "files": (data,), "folder": tmp_path,
              "wall_timeout_s": 21.0, "memory_cap_mb": 513.0, "grace_s": 2.5}
    keys = {name: runner.replace(base, **{name: value}).key for name, value in others.items()} | {"base": base.key}
    script.write_text(GOOD + "\n")
    keys["content"] = base.key
    assert len(set(keys.values())) == len(keys) == 12
    script.write_text(GOOD)
    assert runner.replace(base, experiment_id="y", hypothesis_id=9, config={"a": 1.0 + 0}).key != base.key           # 1.0 is not 1 in JSON
    assert runner.replace(base, experiment_id="y", hypothesis_id=9).key == base.key == spec(config={"a": 1}, environment={"A": "1"}, files=(str(script),)).key


def test_a_file_that_changes_under_the_queue_stops_it(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(f"open({str(script)!r}, 'a').write('#\\n')\n{GOOD}")
    specs = over_seeds(spec(command=(sys.executable, str(script)), files=(script,)), range(3))
    with pytest.raises(ContractError, match="files of an experiment must not change while the queue runs; got 'x/seed=1'"):
        run_all(specs, results_file=tmp_path / "r.jsonl", workers=1)
    assert [r.seed for r in read_results(tmp_path / "r.jsonl")] == [0]


def test_an_error_of_the_caller_ends_every_run_and_keeps_the_file(tmp_path):
    class Stop(Exception): pass

    def progress(result, done, total): raise Stop
    with pytest.raises(Stop):
        run_all([spec(), *over_seeds(spec(f"import time; time.sleep({NAP}.5)", wall_timeout_s=1e7), range(3))], results_file=tmp_path / "r.jsonl", workers=4, progress=progress)
    assert [r.terminal for r in read_results(tmp_path / "r.jsonl")] == ["ok"]
    assert not [p for p in Path("/proc").glob("[0-9]*/cmdline") if f"{NAP}.5".encode() in p.read_bytes()]


def test_ablation_and_seeds():
    base = spec(config={"rate": 1, "layers": 2})
    assert [(s.experiment_id, dict(s.config)) for s in ablate(base, "rate", [1, 3])] == [("x/rate=1", {"rate": 1, "layers": 2}), ("x/rate=3", {"rate": 3, "layers": 2})]
    assert [(s.experiment_id, s.seed) for s in over_seeds(base, [5, 6])] == [("x/seed=5", 5), ("x/seed=6", 6)] and ablate(base, "rate", [1])[0].key == base.key
    with pytest.raises(ContractError, match="knob must be one of 'layers', 'rate'; got 'rat'"): ablate(base, "rat", [1])


# --- a parent that dies ---------------------------------------------------------------------------------------------------------------
PARENT = """
import sys, tempfile
tempfile.tempdir = sys.argv[4]
from invar_nb.machine.runner import ExperimentSpec, over_seeds, run_all
work = ExperimentSpec(experiment_id="x", command=(sys.executable, "-c", sys.argv[1]), seed=0, metric_keys=("loss",), config={"log": sys.argv[3], "sleep": float(sys.argv[5])}, grace_s=0.5)
print("begun", flush=True)
run_all(over_seeds(work, range(20)), results_file=sys.argv[2], workers=3)
print("done", flush=True)
"""


def parent(tmp_path, sleep=0.2):
    (tmp_path / "scratch").mkdir(exist_ok=True)
    return subprocess.Popen([sys.executable, "-c", PARENT, WORK, str(tmp_path / "r.jsonl"), str(tmp_path / "log"), str(tmp_path / "scratch"), str(sleep)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def guards(tmp_path):
    "Guards and runs of this test, by what their command lines name."
    found = []
    for p in Path("/proc").glob("[0-9]*"):
        try: mine = os.readlink(p / "cwd").startswith(str(tmp_path / "scratch"))
        except OSError: continue
        if mine and alive(p.name): found.append(p.name)
    return found


@linux
def test_killed_at_random_times_the_queue_resumes_without_loss(tmp_path):
    rng, kills = random.Random(5), 0
    straight = run_all(over_seeds(spec(WORK, config={"log": str(tmp_path / "straight.log"), "sleep": 0}), range(20)), results_file=tmp_path / "straight.jsonl")
    while True:
        known = {r.seed: r for r in read_results(tmp_path / "r.jsonl")} if (tmp_path / "r.jsonl").exists() else {}
        before = Counter((tmp_path / "log").read_text().split("\n")) if (tmp_path / "log").exists() else Counter()
        process = parent(tmp_path, sleep=0.1)
        assert process.stdout.readline() == "begun\n"
        try: process.wait(rng.uniform(0, 0.3 + 0.05 * kills))
        except subprocess.TimeoutExpired:
            process.kill()
            kills += 1
        process.communicate()
        after = Counter((tmp_path / "log").read_text().split("\n")) if (tmp_path / "log").exists() else Counter()
        assert not [s for s in known if after[f"start {s}"] > before[f"start {s}"]], "a finished experiment ran again"
        now = {r.seed: r for r in read_results(tmp_path / "r.jsonl")} if (tmp_path / "r.jsonl").exists() else {}
        assert {s: now[s] for s in known} == known, "a result was lost or changed"
        if process.returncode == 0: break
        assert kills < 100
    assert kills >= 3 and until(lambda: not guards(tmp_path) and not list((tmp_path / "scratch").iterdir()))
    assert [(now[s].terminal, dict(now[s].metrics)) for s in range(20)] == [(r.terminal, dict(r.metrics)) for r in straight]


@linux
@pytest.mark.parametrize("number, code", [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, -signal.SIGINT)])
def test_the_runs_of_a_dead_parent_end_and_their_folders_go(tmp_path, number, code):
    process = parent(tmp_path, sleep=1000)
    assert until(lambda: len(guards(tmp_path)) == 3)
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == code and ("KeyboardInterrupt" in err) == (number == signal.SIGINT)
    assert until(lambda: not guards(tmp_path)) and until(lambda: not list((tmp_path / "scratch").iterdir()))
    assert read_results(tmp_path / "r.jsonl") == []
    assert run_all([spec()], results_file=tmp_path / "r.jsonl")[0].ok


# --- the file -------------------------------------------------------------------------------------------------------------------------
def test_a_torn_tail_is_dropped_and_any_other_damage_refused(tmp_path):
    specs = over_seeds(spec(), range(3))
    results = run_all(specs, results_file=tmp_path / "r.jsonl", workers=1)
    data, torn = (tmp_path / "r.jsonl").read_bytes(), tmp_path / "torn.jsonl"
    ends = [i + 1 for i, byte in enumerate(data) if byte == 10]
    for cut in sorted({*ends, *(e - 1 for e in ends), *(e + 1 for e in ends[:-1]), *range(0, len(data), 97)}):
        torn.write_bytes(data[:cut])
        kept = max(0, sum(e <= cut for e in ends) - 1)
        assert read_results(torn) == results[:kept] and torn.read_bytes() == data[:cut]       # a reader changes nothing
        with ResultsFile(torn) as file: assert list(file.finished.values()) == results[:kept]
        assert torn.read_bytes() == data[:max([ends[0], *(e for e in ends if e <= cut)])]
    rng = random.Random(0)
    for at in rng.sample(range(len(data) - 1), 300):
        torn.write_bytes(data[:at] + bytes([data[at] ^ (1 << rng.randrange(7))]) + data[at + 1:])
        with pytest.raises(ContractError, match="torn.jsonl:[1-4]"): read_results(torn)


def test_one_writer_and_any_number_of_readers(tmp_path):
    path = tmp_path / "r.jsonl"
    run_all([spec()], results_file=path)
    with ResultsFile(path) as file:
        assert len(read_results(path)) == len(file.finished) == 1
        with pytest.raises(ContractError, match="one process at a time"): ResultsFile(path)
        with pytest.raises(ContractError, match="one process at a time"): run_all([spec()], results_file=path)


def test_files_that_are_none_are_left_alone(tmp_path):
    for name, content in (("notes.txt", b"my notes\n"), ("cut.txt", b"my no"), ("losses.jsonl", b'{"schema":"invar_nb/losses/1"}\n')):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ContractError, match="a results file begins with"): run_all([spec()], results_file=tmp_path / name)
        assert (tmp_path / name).read_bytes() == content
    with pytest.raises(ContractError, match="folder must exist"): run_all([spec()], results_file=tmp_path / "no" / "r.jsonl")
    with pytest.raises(ContractError, match="must name a file"): run_all([spec()], results_file=tmp_path)
    with pytest.raises(ContractError, match="the file must exist"): read_results(tmp_path / "nothing.jsonl")


def test_written_runs_are_read_back_as_rows(tmp_path):
    results = run_all([*over_seeds(spec(), [1, 2]), spec("1/0", seed=3)], results_file=tmp_path / "r.jsonl")
    write_runs(results, tmp_path / "arm.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "arm.jsonl").read_text().splitlines()]
    assert rows[0] == {"seed": 1, "terminal": "ok", "loss": 1.5, "detail": "it exited with code 0 and told loss"}
    back = [ExperimentResult.from_row(row) for row in rows]
    assert [(r.terminal, dict(r.metrics), r.detail) for r in back] == [(r.terminal, dict(r.metrics), r.detail) for r in results]


@pytest.mark.parametrize("more, says", [
    ({"command": "python x.py"}, "command must be a sequence of texts"), ({"command": ()}, "command must not be empty"), ({"command": ("",)}, "command must hold texts; got '' at index 0"),
    ({"command": ("a", 3)}, "command must hold texts; got 3 at index 1"), ({"command": ("a\0b",)}, "command must hold texts"), ({"command": ("\ud800",)}, "command must hold texts"),
    ({"metric_keys": "loss"}, "metric_keys must be a sequence"), ({"metric_keys": ()}, "metric_keys must not be empty"), ({"metric_keys": ("seed",)}, "none of seed"),
    ({"metric_keys": ("terminal",)}, "none of seed"), ({"metric_keys": ("a", "a")}, "must be distinct"), ({"metric_keys": ("",)}, "metric_keys must hold texts"),
    ({"seed": -1}, "seed must be a whole number"), ({"seed": 2.5}, "seed must be a whole number"), ({"seed": True}, "seed must be"), ({"hypothesis_id": "a"}, "hypothesis_id must be"),
    ({"experiment_id": ""}, "experiment_id must be"), ({"config": [1]}, "config must be a mapping"), ({"config": {"a": float("nan")}}, "numbers must be finite"), ({"config": {"a": {1}}}, "values must be JSON"),
    ({"environment": {"A": 1}}, "environment must map names to text; got 1 for 'A'"), ({"environment": {"A=B": "1"}}, "environment must map"), ({"environment": {"": "1"}}, "environment must map"),
    ({"environment": {"A": "a\0"}}, "environment must map"), ({"wall_timeout_s": 0}, "wall_timeout_s must be a finite number, more than 0"), ({"wall_timeout_s": math.inf}, "wall_timeout_s must be"),
    ({"wall_timeout_s": True}, "wall_timeout_s must be"), ({"memory_cap_mb": -1}, "memory_cap_mb must be"), ({"memory_cap_mb": "512"}, "memory_cap_mb must be"), ({"grace_s": -0.1}, "grace_s must be a finite number, at least 0"),
    ({"folder": ""}, "folder must hold texts"), ({"files": "x.py"}, "files must be a sequence")])
def test_specs_that_are_none_are_refused(more, says):
    with pytest.raises(ContractError, match="^[^\n]*$") as found: spec(**more)
    assert says in str(found.value)


def test_a_missing_file_and_foreign_specs_are_refused(tmp_path):
    with pytest.raises(ContractError, match="files must be there; got 'missing.py'"): run(spec(files=("missing.py",)), tmp_path)
    with pytest.raises(ContractError, match="ExperimentSpecs; got dict at index 1"): run_all([spec(), {}], results_file=tmp_path / "r.jsonl")
    with pytest.raises(ContractError, match="specs must be a list"): run_all(3, results_file=tmp_path / "r.jsonl")
    with pytest.raises(ContractError, match="workers must be"): run_all([spec()], results_file=tmp_path / "r.jsonl", workers=0)
    assert run_all([], results_file=tmp_path / "r.jsonl") == []


def test_a_spec_cannot_be_changed():
    config = {"a": [1]}
    one = spec(config=config)
    key = one.key
    config["a"].append(2)
    assert one.key == key and one.config["a"] == [1]
    with pytest.raises(TypeError): one.config["b"] = 1
    with pytest.raises(AttributeError): one.seed = 4
