"""The package held against llama.cpp on SmolLM2-135M. `make real` fetches, builds and quantises; without its folder these are skipped.

Each check takes what the engine printed or wrote, and ours from another route. What differs is bounded by a reason, not by a guess.
"""

import json
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import real
from test_shell import shell

pytest.importorskip("torch")
from invar_nb import compare, load_model, score_text
from invar_nb.models.text_plan import plan_text
from invar_nb.readers.llama_cpp import read_logit_arm, read_logit_pair, read_perplexity_log

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not real.is_ready(), reason="needs the folder that `make real` fills"),
]

TOKENS_OF_CHUNK = real.N_CTX - 1 - real.N_CTX // 2  # scored ones
N_TOKENS = real.N_CHUNKS * TOKENS_OF_CHUNK
STEP = 16 / 65535 / 2  # nats: what a log-probability of 16 bits may be off
PRINTED = 0.5e-6  # of six decimals
QUANTISED = [name for name in real.CHECKED if name != "F16"]
HALF_PRECISION = 2e-3  # nats of a chunk's mean: what activations in 16 bits may cost


def printed(pattern: str, name: str) -> float:
    "A number in a log of the engine."
    return float(re.search(pattern, real.log(name).read_text(errors="replace"))[1])


def show(what: str, engine: object, ours: object, reason: str) -> None:
    "A row of the table that `make real` prints."
    with open(real.TABLE, "a") as file:
        print(json.dumps([what, str(engine), str(ours), reason]), file=file)


@pytest.mark.parametrize("name", real.CHECKED)
def test_perplexity_of_the_log(name):
    final = printed(r"Final estimate: PPL = ([0-9.]+)", name)
    arm = read_perplexity_log(real.log(name))
    show(f"perplexity, {name}: its log", final, f"{arm.perplexity:.4f}", "4 decimals printed")
    assert abs(arm.perplexity - final) <= 0.5e-4 + arm.perplexity * PRINTED
    assert arm.tokens.sum() == N_TOKENS


@pytest.mark.parametrize("name", real.CHECKED)
def test_perplexity_of_the_logits_is_cut_at_16_nats(name):
    "A chunk without a token at the cut-off has the log's loss to the step of 16 bits; every other one is cheaper, never dearer."
    log, logits = read_perplexity_log(real.log(name)), read_logit_arm(real.logits(name))
    excess = (log.log_loss - logits.log_loss) * TOKENS_OF_CHUNK
    cut = logits.provenance["source"]["tokens_at_cut_off"]
    k = np.arange(1, real.N_CHUNKS + 1)
    rounding = TOKENS_OF_CHUNK * (STEP + PRINTED * (2 * k - 1))
    engine, ours = f"{log.perplexity:.4f}", f"{logits.perplexity:.4f}"
    reason = f"{cut} tokens at the cut-off, {excess.sum():.1f} nats beyond it"
    show(f"perplexity, {name}: its logits", engine, ours, reason)
    assert (excess >= -rounding).all()
    assert (excess > rounding).sum() <= cut
    assert cut  # the text has such tokens


@pytest.mark.parametrize("name", QUANTISED)
def test_divergence_and_first_choices(name):
    "The engine has the second model's logits uncut, and breaks ties by order."
    study = compare(read_logit_pair(real.logits("F16"), real.logits(name)))
    kl = study["kl_divergence"].value.delta
    same = 100 - 100 * study["top1_changed"].value.delta
    engine_kl = printed(r"Mean\s+KLD:\s+([0-9.]+)", f"{name}.divergence")
    engine_same = printed(r"Same top p:\s+([0-9.]+)", f"{name}.divergence")
    uncut = "the engine does not cut the second model"
    show(f"mean KL divergence, {name}", engine_kl, f"{kl:.6f}", uncut)
    ties = "tokens that 16 bits cannot tell apart"
    show(f"same first choice, {name}", f"{engine_same:.3f} %", f"{same:.3f} %", ties)
    assert abs(kl - engine_kl) <= 2 * STEP + 1e-3 * engine_kl
    assert abs(same - engine_same) <= 100 * 2 / N_TOKENS


@pytest.mark.parametrize("name", QUANTISED)
def test_the_printed_ratio_has_a_cut_baseline(name):
    "The engine divides the perplexity of an uncut run by that of a base file that is cut."
    ratio = printed(r"Mean PPL\(Q\)/PPL\(base\)\s*:\s*([0-9.]+)", f"{name}.divergence")
    log, base_log = (read_perplexity_log(real.log(each)) for each in (name, "F16"))
    direct = log.perplexity / base_log.perplexity
    cut = log.perplexity / read_logit_arm(real.logits("F16")).perplexity
    reason = f"only its baseline is cut: {cut:.4f} expected"
    show(f"ratio of perplexities, {name}", f"{ratio:.4f}", f"{direct:.4f}", reason)
    assert abs(np.log(ratio / cut)) <= STEP + 2 * PRINTED * real.N_CHUNKS
    assert ratio > direct * 1.001  # too high, by what is below the cut-off


@pytest.mark.parametrize("name", QUANTISED)
def test_change_of_probability(name):
    study = compare(read_logit_pair(real.logits("F16"), real.logits(name)))
    ours = 100 * study["probability_change"].value.delta
    engine = printed(r"Mean\s+Δp:\s+(-?[0-9.]+)", f"{name}.divergence")
    show(f"mean change of p, {name}", f"{engine:.3f} %", f"{ours:.3f} %", "3 decimals printed")
    assert abs(ours - engine) <= 0.5e-3 + 100 * STEP


@pytest.fixture(scope="module")
def models():
    return {name: load_model(real.model(name)) for name in ("F16", "Q4_K_M")}


def test_tokens_and_chunks(models):
    "Every token of every chunk, and no token before the text, since the file asks for none."
    plan = plan_text(models["F16"], real.text_file().read_text(), windowing="llama.cpp")
    (tokens,) = plan.token_ids.values()
    tokens = np.asarray(tokens)[: real.N_CHUNKS * real.N_CTX]
    engine = real.tokens_of(real.logits("F16"))
    equal = int((tokens == engine).sum())
    show("tokens of the text", len(engine), equal, "equal, place by place")
    assert equal == len(engine)
    assert [w.score_from % real.N_CTX for w in plan.windows] == [257] * len(plan.windows)


@pytest.mark.parametrize("name", ["F16", "Q4_K_M"])
def test_the_gguf_scored_by_transformers(models, name):
    "The same weights in single precision. The engine's F16 kernels round activations to 16 bits, those of Q4_K_M to 8: a part of what it costs that the weights alone do not show."
    text = real.text_file().read_text()
    scored = score_text(models[name], text, windowing="llama.cpp")
    logs = {each: read_perplexity_log(real.log(each)) for each in ("F16", name)}
    ours = scored.log_loss[: real.N_CHUNKS]
    difference = logs[name].log_loss - ours
    engine, perplexity = logs[name].perplexity, np.exp(ours.mean())
    reason = f"activations: {100 * np.expm1(difference.mean()):+.2f} % of perplexity"
    show(f"perplexity, {name}: GGUF", f"{engine:.4f}", f"{perplexity:.4f}", reason)
    if name == "F16":
        assert np.abs(difference).max() <= HALF_PRECISION
    else:
        cost = np.log(engine / logs["F16"].perplexity)  # of the type, as the engine has it
        assert abs(difference.mean()) <= cost / 4


def test_a_real_llama_server_is_refused_and_the_gguf_is_named(tmp_path):
    "It gives no log-probabilities of a prompt: no losses are made of what it says."
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [real.program("llama-server"), "-m", real.model("Q4_0"), "--port", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([*map(str, command), "-c", "512"], **quiet)
    try:
        wait_for(f"{address}/health")
        text, losses = tmp_path / "t.txt", tmp_path / "l.jsonl"
        text.write_text("The rows are sorted by name. " * 40)
        code, _, error = shell("score", f"openai:{address}", "--text", text, "--out", losses)
        show("llama-server", "no log-probabilities of a prompt", f"exit {code}", "refused")
        assert code == 3 and "Score the GGUF file itself" in error
    finally:
        server.terminate()
        server.wait()


def wait_for(address: str, seconds: int = 120) -> None:
    for _ in range(seconds):
        try:
            urllib.request.urlopen(address, timeout=2)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(1)
        else:
            return
    raise TimeoutError(address)
