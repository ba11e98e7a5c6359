"""Shards on a real Ray: workers are killed and a machine is removed in mid-run, the merged file has the bytes of one process.

tests/test_ray.py runs these with a Python that has Ray (an optional extra of 600 MB). The order in which workers and shards are handed out is tested without Ray on the
page models/13_shards."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest
import ray
from test_shell import MODELS, ROOT

from invar_nb.files.merge import Target, merge_parts, part_names
from invar_nb.foundations.refuse import ContractError, UsageError
from invar_nb.models.shards import score_on_ray
from invar_nb.shell import settings as g

BASE = os.path.join(MODELS, "base")
ALONE = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": ROOT,
    "RAY_USAGE_STATS_ENABLED": "0",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    "A text and the losses of one process."
    here = tmp_path_factory.mktemp("ray")
    (here / "text.txt").write_text(
        "".join(f"The sentence after number {i} counts to {i * i}.\n" for i in range(400))
    )
    command = [
        sys.executable,
        "-m",
        "invar_nb",
        "score",
        BASE,
        "--text",
        "text.txt",
        "--max-length",
        "64",
        "--batch-tokens",
        "64",
        "-q",
        "--out",
        "one.jsonl",
    ]
    assert subprocess.run(command, cwd=here, env=ALONE).returncode == 0
    return here


@pytest.fixture
def cluster(monkeypatch):
    "Two machines of one core each, on this one; a lost machine is noticed in some seconds."
    from ray.cluster_utils import Cluster

    for name in ("OMP_NUM_THREADS", "PYTHONPATH", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.setenv(name, ALONE[name])
    health = {
        "health_check_initial_delay_ms": 1000,
        "health_check_period_ms": 500,
        "health_check_failure_threshold": 3,
    }
    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": health}
    )
    made.spare = [made.add_node(num_cpus=1) for _ in range(2)]
    made.wait_for_nodes()
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


def preparing(run, log, pause):
    "What a worker does to be ready: the model, the plan, and a scorer that is slow and says which batch it has scored."
    job = g.Scoring(text=[str(run / "text.txt")], max_length=64, batch_tokens=64)
    plain, log = dataclasses.replace(job), str(log)

    def prepare():
        from invar_nb.models.batches import Scorer
        from invar_nb.shell.work import load_work

        class Slow(Scorer):
            def score(self, batch, *more):
                found = super().score(batch, *more)
                time.sleep(pause)
                with open(log, "a") as file:
                    file.write(f"{self.windows[batch[0]].window_id} {os.getpid()}\n")
                return found

        work = load_work(BASE, plain)
        scorer = work.scorer
        slow = Slow(**{f.name: getattr(scorer, f.name) for f in dataclasses.fields(scorer)})
        return dataclasses.replace(work, scorer=slow)

    return prepare


def started(prepare, parts, log, n, **options):
    "The run in a thread of its own, once it has scored n batches; (thread, what it gave or raised)."
    found = {}

    def act():
        try:
            found["shards"] = score_on_ray(prepare, parts, **options)
        except ContractError as error:
            found["error"] = error

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    until = time.monotonic() + 120
    while len(lines(log)) < n and thread.is_alive() and time.monotonic() < until:
        time.sleep(0.05)
    return thread, found


def lines(log):
    return log.read_text().split("\n")[:-1] if log.exists() else []


def finished(thread, found, run, parts, log, lost):
    thread.join(240)
    assert not thread.is_alive() and "shards" in found, found
    merge_parts(parts, parts.parent / "all.jsonl")
    assert (parts.parent / "all.jsonl").read_bytes() == (run / "one.jsonl").read_bytes()
    assert not [path for path in parts.iterdir() if path.name.startswith(".")]
    times = Counter(line.split()[0] for line in lines(log))
    again = sum(times.values()) - len(times)
    print(f"{len(times)} batches, {again} scored twice, {found['shards']} shards")
    assert again <= lost, times


def test_a_removed_machine_costs_its_unfinished_batches(run, tmp_path, cluster):
    "At most what was scored and not yet on the disk: half a second, and the batch in flight."
    log, parts = tmp_path / "log", tmp_path / "parts"
    thread, found = started(preparing(run, log, 0.2), parts, log, 20, workers=2)
    workers, until = lambda: {line.split()[1] for line in lines(log)}, time.monotonic() + 60
    while len(workers()) < 2 and thread.is_alive() and time.monotonic() < until:
        time.sleep(0.05)  # the second one may take seconds to start
    assert len(workers()) == 2, "both machines were to work"
    cluster.remove_node(cluster.spare[0], allow_graceful=False)
    finished(thread, found, run, parts, log, lost=8)


def test_killed_workers_are_replaced(run, tmp_path, cluster):
    log, parts = tmp_path / "log", tmp_path / "parts"
    thread, found = started(preparing(run, log, 0.1), parts, log, 10, workers=2)
    for n in (10, 20, 30):
        while len(lines(log)) < n and thread.is_alive():
            time.sleep(0.05)
        os.kill(int(lines(log)[-1].split()[1]), signal.SIGKILL)
    finished(thread, found, run, parts, log, lost=24)


def test_a_killed_command_goes_on(run):
    "A cluster of this machine, in a process of its own: what was in place before the kill is not scored again."
    (run / "long.txt").write_text((run / "text.txt").read_text() * 4)
    command = [
        sys.executable,
        "-m",
        "invar_nb",
        "score",
        BASE,
        "--text",
        "long.txt",
        "--max-length",
        "64",
        "--batch-tokens",
        "64",
        "-q",
    ]
    cluster, parts = [*command, "--engine", "ray", "--workers", "2"], Target(run / "parts")
    times = lambda: {
        name: (parts.root / name).stat().st_mtime_ns for name in part_names(parts)
    }
    process, until = (
        subprocess.Popen(
            [*cluster, "--out", "parts"], cwd=run, env=ALONE, start_new_session=True
        ),
        time.monotonic() + 120,
    )
    while len(part_names(parts)) < 5 and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = times()
    assert 5 <= len(before) < 128
    assert subprocess.run([*cluster, "--out", "parts"], cwd=run, env=ALONE).returncode == 0
    assert {name: when for name, when in times().items() if name in before} == before and len(
        times()
    ) == 128
    assert not [path for path in parts.root.iterdir() if path.name.startswith(".")]
    merge_parts(parts, run / "merged.jsonl")
    assert (
        subprocess.run([*command, "--out", "long.jsonl"], cwd=run, env=ALONE).returncode == 0
    )
    assert (run / "merged.jsonl").read_bytes() == (run / "long.jsonl").read_bytes()


def test_the_command_writes_the_file_of_one_process(run):
    command = [
        sys.executable,
        "-m",
        "invar_nb",
        "score",
        BASE,
        "--text",
        "text.txt",
        "--max-length",
        "64",
        "--batch-tokens",
        "64",
        "-q",
        "--engine",
        "ray",
    ]
    assert subprocess.run([*command, "--out", "ray.jsonl"], cwd=run, env=ALONE).returncode == 0
    assert (run / "ray.jsonl").read_bytes() == (run / "one.jsonl").read_bytes() and not (
        run / ".ray.jsonl.parts"
    ).exists()


def test_what_cannot_be_done_is_refused(run, tmp_path, cluster):
    with pytest.raises(UsageError, match="3 workers, 2 cores"):
        score_on_ray(preparing(run, tmp_path / "log", 0), tmp_path / "parts", workers=3)

    def broken():
        raise ContractError("the model is damaged", code="damaged")

    with pytest.raises(ContractError, match="the model is damaged") as found:
        score_on_ray(broken, tmp_path / "parts", workers=2)
    assert found.value.code == "damaged"
