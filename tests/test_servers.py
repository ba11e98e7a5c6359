"Scoring through a server: a real HTTP server that answers as each engine does, from a shipped model, and that fails in every way a server can."

import json
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import anyio
import numpy as np
import pytest
from commands import main
from small_models import EPS32, torch

import invar_nb
from invar_nb.arms.pair import pair
from invar_nb.comparison.study import compare
from invar_nb.foundations.refuse import ContractError, UsageError
from invar_nb.models import servers
from invar_nb.models.load import load_model
from invar_nb.models.score import score_plan
from invar_nb.models.servers import (
    KEY_VARIABLE,
    Requests,
    as_address,
    ask_server,
    identify,
    score_served,
)
from invar_nb.models.text_plan import plan_text

TEXT = (
    "It was the best of times, it was the worst of times, it was the age of wisdom. Zürich, Łódź, 東京. "
    * 2
)
SECRET = "sk-4711-never-shown"
CLOSE = (
    16 * EPS32 * 32
)  # nats a token, between two orders of summation: the shipped models' logits are below 32
LISTED = {
    "vllm": {"id": "demo", "owned_by": "vllm", "root": "org/demo", "max_model_len": 256},
    "sglang": {"id": "demo", "owned_by": "sglang", "root": "org/demo", "max_model_len": 256},
    "openai": {"id": "demo", "owned_by": "somebody"},
}
ABOUT = {
    "vllm": {"/version": {"version": "0.11.0"}},
    "sglang": {
        "/get_model_info": {"model_path": "org/demo", "weight_version": "1"},
        "/get_server_info": {"version": "0.5.4"},
    },
    "openai": {},
}


class Truth:
    "Log-probabilities of every token after every prefix, from a shipped model in float32; no code of the scorer."

    def __init__(self, name):
        self.loaded, self.lock, self.kept = (
            load_model(Path(invar_nb.__file__).parent / "demo_models" / name, dtype="float32"),
            threading.Lock(),
            {},
        )

    def rows(self, ids):
        with self.lock, torch.no_grad():
            if (key := tuple(ids)) not in self.kept:
                self.kept[key] = torch.log_softmax(
                    self.loaded.model(torch.tensor([list(ids)])).logits[0].double(), -1
                ).numpy()
            return self.kept[key]

    def values(self, ids):
        return [
            None,
            *(float(row[i]) for row, i in zip(self.rows(ids)[:-1], ids[1:], strict=True)),
        ]


@pytest.fixture(scope="module")
def truths():
    return {name: Truth(name) for name in ("base", "tuned")}


@pytest.fixture(scope="module")
def plan(truths):
    return plan_text(truths["base"].loaded, TEXT, max_length=40, stride=20)


@pytest.fixture(scope="module")
def direct(truths, plan):
    return score_plan(truths["base"].loaded, plan)


@pytest.fixture(scope="module")
def close(truths, plan):
    "Asserts that losses agree up to some roundings of the largest logit in float32."
    with torch.no_grad():
        largest = max(
            float(
                truths["base"]
                .loaded.model(torch.tensor([ids.tolist()[:200]]))
                .logits.abs()
                .max()
            )
            for ids in plan.token_ids.values()
        )

    def check(losses, other):
        np.testing.assert_allclose(
            losses.log_loss,
            other.log_loss,
            rtol=0,
            atol=16 * np.finfo(np.float32).eps * largest,
        )

    return check


class Server(ThreadingHTTPServer):
    "Answers as `engine`; `fault(n, ids, reply)` may change reply number n, counted from 1, or say what to do in place of it."

    daemon_threads, request_queue_size = True, 64

    def __init__(self, engine, truth, fault=None):
        super().__init__(("127.0.0.1", 0), Handler)
        (
            self.engine,
            self.truth,
            self.fault,
            self.asked,
            self.paths,
            self.now,
            self.most,
            self.headers,
        ) = engine, truth, fault, [], [], 0, 0, []
        self.lock, self.pair, self.ended, self.times = (
            threading.Lock(),
            [],
            threading.Event(),
            [],
        )
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, *_):
        pass

    def answer(self, ids, body):
        "What the engine says of token ids, in the shape of its documentation."
        values = self.truth.values(ids)
        if self.engine == "sglang":
            return {
                "text": "",
                "meta_info": {
                    "prompt_tokens": len(ids),
                    "weight_version": "1",
                    "input_token_logprobs": [
                        [x, i, None] for x, i in zip(values, ids, strict=True)
                    ],
                },
            }
        choice = {"index": 0, "text": "!", "finish_reason": "length"}
        if self.engine == "vllm":
            entries = [
                x
                if x is None
                else {
                    str(i): {"logprob": x, "rank": 3, "decoded_token": "?"},
                    "0": {"logprob": -9.5, "rank": 1},
                }
                for x, i in zip(values, ids, strict=True)
            ]
            choice |= {"prompt_token_ids": ids, "prompt_logprobs": entries}
        else:
            choice["logprobs"] = {
                "tokens": [self.truth.loaded.tokenizer.decode([i]) for i in ids] + ["!"],
                "token_logprobs": [*values, -0.5],
                "top_logprobs": None,
            }
        return {
            "model": "demo",
            "object": "text_completion",
            "choices": [choice],
            "usage": {"prompt_tokens": len(ids), "completion_tokens": 1},
        }


class Handler(BaseHTTPRequestHandler):
    protocol_version, wbufsize = "HTTP/1.1", -1  # one packet a reply

    def log_message(self, *_):
        pass

    def do_GET(self):
        s = self.server
        s.headers.append(dict(self.headers))
        found = {
            "/v1/models": {"object": "list", "data": [LISTED[s.engine]]},
            **ABOUT[s.engine],
        }.get(self.path)
        self.send(404 if found is None else 200, json.dumps(found or {"detail": "Not Found"}))

    def do_POST(self):
        s, body = self.server, json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ids = body["input_ids"] if "input_ids" in body else body["prompt"]
        with s.lock:
            s.asked.append(tuple(ids))
            s.paths.append(self.path)
            s.headers.append(dict(self.headers))
            s.times.append(time.monotonic())
            n, s.now = len(s.asked), s.now + 1
            s.most = max(s.most, s.now)
        reply = s.answer(ids, body)
        reply = s.fault(n, ids, reply) if s.fault else reply
        if reply == "swap":
            reply = self.swapped(ids, body)
        if reply == "hang":
            s.ended.wait(20)
        with s.lock:
            s.now -= 1
        if reply in ("cut", "gone"):
            self.send(200, json.dumps(s.answer(ids, body)), cut=reply)
        elif reply == "drip":
            self.send(200, " " * 40, slowly=True)
        elif isinstance(reply, tuple):
            self.send(*reply)
        elif reply != "hang":
            self.send(200, json.dumps(reply))

    def swapped(self, ids, body):
        "Two requests that are under way together get each other's answers."
        s, mine = self.server, [ids, None, threading.Event()]
        with s.lock:
            other = s.pair.pop() if s.pair else None
            if other is None:
                s.pair.append(mine)
        if other is None:
            mine[2].wait(1)
            return s.answer(mine[1] or ids, body)
        other[1] = ids
        other[2].set()
        return s.answer(other[0], body)

    def send(self, status, text, headers=(), cut=None, slowly=False):
        data = text.encode()
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        for byte in data if slowly else ():  # each in time, the whole never
            if self.server.ended.wait(0.1):
                return
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
        if not slowly:
            self.wfile.write(data[: len(data) // 2 if cut == "cut" else 0] if cut else data)
        if cut:
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True


def ask(server, plan, kind=None, journal=None, progress=None, tokenizer=True, **more):
    tokenizer = server.truth.loaded.tokenizer if tokenizer else None
    return score_served(
        f"{kind or server.engine}:{server.url}",
        plan,
        tokenizer=tokenizer,
        journal=journal,
        progress=progress,
        requests=Requests(**dict(backoff=0.01, retries=3, timeout=20, concurrency=4) | more),
    )


def window_ids(plan):
    return [
        tuple(int(i) for i in plan.token_ids[w.document_id][w.start : w.stop])
        for w in plan.windows
    ]


# --- what four engines say ------------------------------------------------------------------------------------------------------------
@pytest.mark.processor
@pytest.mark.parametrize("engine", LISTED)
def test_every_engine_gives_what_direct_scoring_gives(engine, truths, plan, direct, close):
    with Server(engine, truths["base"]) as server:
        losses = ask(server, plan, kind="openai")  # told apart by asking
        close(losses, direct)
        for name in ("window_ids", "data_id", "document_ids", "split", "weight_unit"):
            assert getattr(losses, name) == getattr(direct, name)
        for name in ("tokens", "n_bytes"):
            assert (getattr(losses, name) == getattr(direct, name)).all()
        p = losses.provenance
        assert (
            p["engine"] == engine
            and p["server"] == server.url
            and losses.model == "demo"
            and 0 <= p["noise_floor"] <= p["noise_floor_token"] < 1e-4
        )
        assert p["tokenizer_digest"] == direct.provenance[
            "tokenizer_digest"
        ] and "Authorization" not in {k for h in server.headers for k in h}
        assert server.most <= 4 and set(server.paths) == {servers.DIALECTS[engine].path}
        assert Counter(server.asked) == Counter(
            {**dict.fromkeys(window_ids(plan), 1), **passages(plan)}
        )


def passages(plan):
    "What the probe asks: the first window without its last token 4 times and at the end, three others twice."
    return {ids[:-1]: 5 if k == 0 else 2 for k, ids in enumerate(window_ids(plan)[:4])}


def test_the_noise_floor_is_the_spread_of_four_answers(truths, plan):
    "The passage moves by 0.003 nats a token in answer 2, by 0.2 at one token in another: mean and token floor are these spreads."

    def shaken(n, ids, reply):
        entries = reply["choices"][0]["prompt_logprobs"]
        if n == 2:
            entries[1:] = [
                {k: v | {"logprob": v["logprob"] - 0.003} for k, v in e.items()}
                for e in entries[1:]
            ]
        return reply

    with Server("vllm", truths["base"], shaken) as server:
        p = ask(server, plan).provenance
    assert p["noise_floor"] == pytest.approx(0.003, abs=1e-9) and p[
        "noise_floor_token"
    ] == pytest.approx(0.003, abs=1e-9)


# --- faults ---------------------------------------------------------------------------------------------------------------------------
def values(reply):
    return reply["choices"][0]["prompt_logprobs"]


def at(n, what):
    return lambda k, ids, reply: what if k in n else reply


def always(what):
    return lambda k, ids, reply: what


def change(act):
    "Every reply changed in place."

    def fault(n, ids, reply):
        act(reply["choices"][0], ids)
        return reply

    return fault


def put(value, k=3):
    return change(
        lambda c, ids: c["prompt_logprobs"].__setitem__(k, {str(ids[k]): {"logprob": value}})
    )


def renamed(n, ids, reply):
    return reply | ({"model": "other"} if n > 15 else {})


SOME = range(3, 40, 7)
FAULTS = {  # fault -> code of the refusal, "same" for the right file, or ConnectionError
    "missing": (change(lambda c, ids: c.pop("prompt_logprobs")), "missing"),
    "null": (change(lambda c, ids: c.update(prompt_logprobs=None)), "missing"),
    "generated only": (
        change(
            lambda c, ids: c.update(prompt_logprobs=None, logprobs={"token_logprobs": [-1.7]})
        ),
        "missing",
    ),
    "zeros": (
        change(
            lambda c, ids: c.update(
                prompt_logprobs=[None, *({str(i): {"logprob": 0.0}} for i in ids[1:])]
            )
        ),
        "zeros",
    ),
    "ids not echoed": (change(lambda c, ids: c.pop("prompt_token_ids")), "no_ids"),
    "an id altered": (
        change(lambda c, ids: c.update(prompt_token_ids=[*ids[:5], 1, *ids[6:]])),
        "ids",
    ),
    "one too many": (
        change(lambda c, ids: c["prompt_logprobs"].append({"5": {"logprob": -1.0}})),
        "count",
    ),
    "one too few": (change(lambda c, ids: c["prompt_logprobs"].pop()), "count"),
    "first not null": (put(-1.0, 0), "first"),
    "of another token": (
        change(lambda c, ids: c["prompt_logprobs"].__setitem__(4, {"251": {"logprob": -1.0}})),
        "no_number",
    ),
    "changed prefix": (
        change(
            lambda c, ids: c.update(
                prompt_token_ids=[1, *ids],
                prompt_logprobs=[
                    None,
                    {str(ids[0]): {"logprob": -3.0}},
                    *c["prompt_logprobs"][1:],
                ],
            )
        ),
        "ids",
    ),
    "replies swapped": (lambda n, ids, reply: "swap" if n > 10 else reply, "ids"),
    "two answers": (
        lambda n, ids, reply: reply | {"choices": reply["choices"] * 2},
        "choices",
    ),
    "NaN": (put(float("nan")), "no_number"),
    "positive": (put(0.5), "no_number"),
    "minus infinity": (put(-9999.0), "no_number"),
    "a text": (put("-1.0"), "no_number"),
    "true": (put(True), "no_number"),
    "a page": (always((200, "<html><body>Welcome to the gateway</body></html>")), "not_json"),
    "a list": (always((200, "[1, 2]")), "not_json"),
    "another name": (renamed, "changed"),
    "400": (always((400, '{"error": {"message": "prompt_logprobs is disabled"}}')), "status"),
    "401": (always((401, "no")), "key"),
    "302": (always((302, "", {"Location": "http://127.0.0.1:1/"})), "status"),
    "429 at times": (at(SOME, (429, "slow down", {"Retry-After": "0.05"})), "same"),
    "500 at times": (at(SOME, (500, "oops")), "same"),
    "503 at times": (at(SOME, (503, "loading")), "same"),
    "cut at times": (at(SOME, "cut"), "same"),
    "gone at times": (at(SOME, "gone"), "same"),
    "cut JSON at times": (at(SOME, (200, '{"choices": [{"ind')), "same"),
    "hang once": (at([14], "hang"), "same"),
    "drip once": (at([14], "drip"), "same"),
    "429": (always((429, "slow down")), ConnectionError),
    "500": (always((500, "oops")), ConnectionError),
    "cut": (always("cut"), ConnectionError),
    "hang": (always("hang"), ConnectionError),
    "drip": (always("drip"), ConnectionError),
    "a day to wait": (always((429, "later", {"Retry-After": "86400"})), ConnectionError),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_server_gives_the_right_file_or_a_refusal_by_name(
    name, truths, plan, direct, close, tmp_path
):
    fault, expected = FAULTS[name]
    options = dict(
        timeout=0.4 if name.split()[0] in ("hang", "drip") else 20,
        retries=1 if name in ("hang", "drip") else 3,
        journal=tmp_path / "journal",
    )
    with Server("vllm", truths["base"], fault) as server:
        if expected == "same":
            close(ask(server, plan, **options), direct)
            assert len(server.asked) > len(plan.windows) + 11
            return
        with pytest.raises(ContractError if isinstance(expected, str) else expected) as caught:
            ask(server, plan, **options)
        if isinstance(expected, str):
            assert caught.value.code == expected, caught.value
        assert "\n" not in str(caught.value) and str(caught.value).startswith("score_served: ")
        if name in ("400", "401", "302", "a page", "a day to wait"):
            assert len(server.asked) == 1  # final at once
        if name == "400":
            assert "prompt_logprobs is disabled" in str(caught.value)
        if name in ("429", "500", "cut"):
            assert len(server.asked) == 4


OTHER = {  # engine, change of the reply -> code
    "sglang missing": (
        "sglang",
        lambda r, ids: r["meta_info"].pop("input_token_logprobs"),
        "missing",
    ),
    "sglang ids": (
        "sglang",
        lambda r, ids: r["meta_info"]["input_token_logprobs"][4].__setitem__(1, 3),
        "ids",
    ),
    "sglang count": (
        "sglang",
        lambda r, ids: r["meta_info"]["input_token_logprobs"].pop(),
        "count",
    ),
    "sglang zeros": (
        "sglang",
        lambda r, ids: [
            e.__setitem__(0, 0.0) for e in r["meta_info"]["input_token_logprobs"][1:]
        ],
        "zeros",
    ),
    "sglang version": (
        "sglang",
        lambda r, ids: r["meta_info"].update(weight_version=str(ids[:3])),
        "changed",
    ),
    "sglang shape": (
        "sglang",
        lambda r, ids: r["meta_info"]["input_token_logprobs"].__setitem__(3, 0.5),
        "ids",
    ),
    "echo missing": (
        "openai",
        lambda r, ids: r["choices"][0].update(logprobs=None),
        "missing",
    ),
    "echo ignored": (
        "openai",
        lambda r, ids: r["choices"][0].update(
            logprobs={"content": [{"id": 10, "logprob": -1.7}]}
        ),
        "missing",
    ),
    "echo generated only": (
        "openai",
        lambda r, ids: r["choices"][0].update(
            logprobs={"tokens": ["!"], "token_logprobs": [-1.7]}
        ),
        "count",
    ),
    "echo tokens": (
        "openai",
        lambda r, ids: r["choices"][0]["logprobs"]["tokens"].__setitem__(2, "Q"),
        "ids",
    ),
    "echo texts gone": (
        "openai",
        lambda r, ids: r["choices"][0]["logprobs"].pop("tokens"),
        "no_ids",
    ),
    "echo ids": (
        "openai",
        lambda r, ids: r["choices"][0].update(prompt_token_ids=[1, *ids[1:]]),
        "ids",
    ),
    "echo token ids": (
        "openai",
        lambda r, ids: r["choices"][0]["logprobs"]["tokens"].__setitem__(2, "token_id:1"),
        "ids",
    ),
}


@pytest.mark.parametrize("name", OTHER)
def test_other_engines_are_refused_by_name_too(name, truths, plan):
    engine, act, code = OTHER[name]

    def fault(n, ids, reply):
        act(reply, ids)
        return reply

    with (
        Server(engine, truths["base"], fault) as server,
        pytest.raises(ContractError) as caught,
    ):
        ask(server, plan)
    assert caught.value.code == code, caught.value


def test_a_report_warns_of_another_engine_with_the_measured_floor(truths, plan, direct):
    def noisy(n, ids, reply):
        if n == 2:
            values(reply)[5][str(ids[5])]["logprob"] -= 0.39
        return reply

    with Server("vllm", truths["base"], noisy) as server:
        served = ask(server, plan)
    with Server("vllm", truths["tuned"]) as server:
        other = ask(server, plan)
    with Server("sglang", truths["base"]) as server:
        third = ask(server, plan)
    warnings = lambda a, b: " ".join(
        line
        for line in compare(pair(a, b), tier="aggressive").report().document()["doubts"]
        if "repeated" in line
    )
    assert served.provenance["noise_floor"] == pytest.approx(0.39 / 38, abs=1e-6)
    mixed = warnings(direct, served)
    assert (
        "(transformers and vllm 0.11.0)" in mixed
        and "moved by 0.01 nats per token" in mixed
        and "control" in mixed
    )
    assert "(vllm 0.11.0 and sglang 0.5.4)" in warnings(served, third)
    assert (
        warnings(served, other) == ""
        and "as small as the noise" in warnings(served, served)
        and warnings(direct, direct) == ""
    )


# --- resuming -------------------------------------------------------------------------------------------------------------------------
CHILD = """import pickle, sys
from invar_nb.models.servers import Requests, score_served
assert "torch" not in sys.modules
plan = pickle.load(open(sys.argv[2], "rb"))
score_served(sys.argv[1], plan, journal=sys.argv[3], requests=Requests(concurrency=2, backoff=0.01))
"""


def test_a_killed_run_asks_for_no_finished_window_again(truths, plan, direct, close, tmp_path):
    "10 requests are the probe's; windows 11 to 15 are answered at once, the others after .3 s."
    (tmp_path / "plan").write_bytes(pickle.dumps(plan))
    half = threading.Event()

    def slow(n, ids, reply):
        if n > 15:
            half.set()
            time.sleep(0.3)
        return reply

    with Server("vllm", truths["base"], slow) as server:
        child = subprocess.Popen(
            [
                sys.executable,
                "-c",
                CHILD,
                f"vllm:{server.url}",
                tmp_path / "plan",
                tmp_path / "kept",
            ]
        )
        assert half.wait(60)
        time.sleep(0.4)
        child.send_signal(signal.SIGKILL)
        child.wait()
        time.sleep(0.4)
        first, server.fault = server.asked[:], None
        server.asked.clear()
        close(ask(server, plan, journal=tmp_path / "kept"), direct)
        assert (
            not set(first[10:14]) & set(server.asked)
            and len(server.asked) <= len(plan.windows) - 4 + 2
        )  # the first passage before and after
        assert set(window_ids(plan)) <= {*first, *server.asked}


def test_a_journal_is_of_one_server_and_one_plan(truths, plan, tmp_path):
    with (
        Server("vllm", truths["base"]) as one,
        Server("vllm", truths["base"]) as two,
        Server("sglang", truths["base"]) as three,
    ):
        ask(one, plan, journal=tmp_path / "j")
        other = plan_text(truths["base"].loaded, TEXT[:90], max_length=40, stride=20)
        for server, what, field in (
            (two, plan, "url"),
            (three, plan, "engine"),
            (one, other, "data_id"),
        ):
            with pytest.raises(ContractError) as caught:
                ask(server, what, journal=tmp_path / "j")
            assert caught.value.code == "key" and field in str(caught.value)


# --- the key, and servers that mean harm ------------------------------------------------------------------------------------------------
def test_the_key_is_sent_and_shown_nowhere(truths, plan, tmp_path, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, SECRET)
    with Server("vllm", truths["base"]) as server:
        losses = ask(server, plan, journal=tmp_path / "j")
        assert {h.get("Authorization") for h in server.headers} == {f"Bearer {SECRET}"}
        shown = [
            repr(losses),
            json.dumps(losses.provenance),
            repr(as_address(f"vllm:{server.url}")),
            (tmp_path / "j").read_bytes().decode("latin-1"),
        ]
        for status in (400, 401, 500):
            server.fault = always(
                (status, f'{{"error": "Incorrect API key provided: {SECRET}"}}')
            )
            with pytest.raises((ContractError, ConnectionError)) as caught:
                ask(server, plan, retries=0)
            shown += [str(caught.value), repr(caught.value), str(vars(caught.value))]
            assert "[key]" in shown[-3]
        assert SECRET not in " ".join(shown)


def test_a_key_is_masked_as_it_is_and_as_json_and_urls_spell_it(
    truths, plan, tmp_path, monkeypatch
):
    key = 'sk-4711/Never+<"&\\x =z'
    monkeypatch.setenv(KEY_VARIABLE, key)
    monkeypatch.setitem(LISTED["vllm"], "id", f"{key}-7b")  # JSON escapes it
    with Server("vllm", truths["base"]) as server:
        losses = ask(server, plan, journal=tmp_path / "j")
        assert losses.provenance["model"] == "[key]-7b"
        assert b"4711" not in (tmp_path / "j").read_bytes()
        for spelling in (key, json.dumps(key)[1:-1], quote(key, safe="")):
            for status in (400, 401, 500, 200):
                server.fault = always((status, f"Wrong: {spelling}!"))
                with pytest.raises((ContractError, ConnectionError)) as caught:
                    ask(server, plan, retries=0)
                assert "Wrong: [key]!" in str(caught.value), spelling


MODELS = json.dumps({"object": "list", "data": [LISTED["vllm"]]}).encode()


def http_ok(body, *more):
    return b"\r\n".join(
        [b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(body), *more, b"", body]
    )


HOSTILE = {  # what the server sends (an iterator: piece by piece, without end), and what is raised
    "key in the status line": (
        b"HTTP/1.1 Bearer " + SECRET.encode() + b"\r\n\r\n",
        ConnectionError,
    ),
    "key in a header": (
        b"HTTP/1.1 200 OK\r\n" + SECRET.encode() + b"\r\n\r\n",
        ConnectionError,
    ),
    "key as a name": (
        http_ok(json.dumps({"data": [{"id": SECRET}, {"id": "b"}]}).encode()),
        ContractError,
    ),
    "key as no JSON": (http_ok(SECRET.encode()), ContractError),
    "key in a redirect": (
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/"
        + SECRET.encode()
        + b"\r\nContent-Length: 0\r\n\r\n",
        ContractError,
    ),
    "100 Continue for ever": (
        iter(lambda: b"HTTP/1.1 100 Continue\r\n\r\n", b""),
        ConnectionError,
    ),
    "a header that drips": (iter(lambda: b"x", b""), ConnectionError),
    "a body that drips": ([b"HTTP/1.1 200 OK\r\n\r\n", *[b" "] * 10**4], ConnectionError),
    "too many bytes": (http_ok(b"[" + b" " * 2**21 + b"]"), ContractError),
    "deep": (http_ok(b"[" * 100_000 + b"]" * 100_000), ContractError),
    "no list": (http_ok(b'{"data": 5}'), ContractError),
    "true": (http_ok(b'{"data": true}'), ContractError),
    "silent": (b"", ConnectionError),
    "gzip": (http_ok(b"\x1f\x8b\x08", b"Content-Encoding: gzip"), ContractError),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_servers_end_in_time_and_show_no_key(name, monkeypatch):
    sends, error = HOSTILE[name]
    monkeypatch.setenv(KEY_VARIABLE, SECRET)

    def serve(listener):
        while True:
            try:
                link, _ = listener.accept()
            except OSError:
                return
            with link:
                try:
                    link.recv(2**16)
                    for piece in [sends] if isinstance(sends, bytes) else sends:
                        link.sendall(piece)
                        if not isinstance(sends, bytes):
                            time.sleep(0.02)
                except OSError:
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        began = time.monotonic()
        with pytest.raises(error) as caught:
            ask_server(
                f"openai:http://127.0.0.1:{listener.getsockname()[1]}",
                Requests(timeout=0.5, retries=1, backoff=0.01),
            )
        assert (
            time.monotonic() - began < 5
            and SECRET not in str(caught.value) + repr(caught.value)
            and "\n" not in str(caught.value)
        )
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("key", ["sk-x\nline2", "sk-\x07x", "sk-é", "sk-\u2028x", "sk-4711"])
def test_a_key_that_cannot_be_sent_or_masked_is_refused_unrepeated(key, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, key)
    with pytest.raises(UsageError) as caught:
        ask_server("openai:http://127.0.0.1:1")
    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_model_len": "4096"},
        {"max_model_len": [1]},
        {"owned_by": 5},
        {"root": 7},
        {"parent": {}},
    ],
)
def test_facts_of_another_type_are_none(wrong):
    assert identify({"/v1/models": {"data": [{"id": "a", **wrong}]}}.get).max_length is None


@pytest.mark.parametrize(
    "address",
    [
        "openai:http://me:SECRET@host/v1",
        "vllm:https://SECRET@host",
        "vllm:http://host/v1?api_key=SECRET",
        "vllm:ftp://SECRET",
        "openai:http://[SECRET",
        "vllm:http://host:SECRET",
        "vllm:http://a..SECRET",
        f"vllm:http://{'SECRET' * 50}",
        "llamacpp:http://host",
    ],
)
def test_an_address_with_a_secret_is_refused_unrepeated(address, plan):
    with pytest.raises(UsageError) as caught:
        score_served(address.replace("SECRET", SECRET), plan)
    assert SECRET not in str(caught.value) + repr(caught.value) and not isinstance(
        caught.value.__context__, ValueError
    )


# --- waiting, fitting, stopping ----------------------------------------------------------------------------------------------------------
def test_retry_after_is_obeyed(truths, plan):
    with Server("vllm", truths["base"], at([1], (429, "", {"Retry-After": "0.5"}))) as server:
        ask(server, plan, backoff=0.001)
        assert server.times[1] - server.times[0] > 0.49


def test_tries_wait_longer_each_time(monkeypatch):
    waited = []
    assert as_address("vllm:https://h/base/v1").url == "https://h/base" and not any(
        map(servers.is_address, ("org/vllm", "vllm:h", "http://h"))
    )
    monkeypatch.setattr(
        servers, "random", type("half", (), {"uniform": staticmethod(lambda a, b: b)})
    )

    async def wait(seconds):
        waited.append(seconds)

    monkeypatch.setattr(anyio, "sleep", wait)
    with (
        servers.Connection(
            as_address("vllm:http://127.0.0.1:1"), Requests(timeout=1, retries=8, backoff=0.5)
        ) as link,
        pytest.raises(ConnectionError, match="after 9 tries"),
    ):
        link.portal.call(link.ask, "/v1/completions", {"prompt": [1]})
    assert waited == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_what_does_not_fit_is_refused_before_any_work(truths, plan):
    with Server("vllm", truths["base"]) as server:
        for options, code in ((dict(longest=39), "too_long"), (dict(kind="sglang"), "engine")):
            with pytest.raises(ContractError) as caught:
                ask(server, plan, **options)
            assert caught.value.code == code
        with pytest.raises(ContractError, match="at most 255 tokens"):
            ask(server, plan_text(truths["base"].loaded, TEXT * 3, max_length=256, stride=128))
        assert not server.asked
    with (
        Server("openai", truths["base"]) as server,
        pytest.raises(ContractError, match="tokenizer"),
    ):
        ask(server, plan, tokenizer=False)


def test_an_interrupt_ends_requests_that_are_under_way(truths, plan):
    def hang(n, ids, reply):
        return "hang" if n > 12 else reply  # 10 are the probe's

    def stop(done, total):
        raise KeyboardInterrupt

    with Server("vllm", truths["base"], hang) as server:
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            ask(server, plan, progress=stop)
        assert time.monotonic() - began < 10


# --- the shell ------------------------------------------------------------------------------------------------------------------------
BASE = Path(invar_nb.__file__).parent / "demo_models" / "base"


def test_the_limit_of_a_server_is_said_before_a_model_is_scored(truths, tmp_path, capsys):
    (text := tmp_path / "text.txt").write_text(TEXT * 3, encoding="utf-8")
    with Server("vllm", truths["base"]) as server:
        for arms in ((BASE, f"openai:{server.url}"), (f"openai:{server.url}", BASE)):
            assert (
                main(
                    [
                        "compare",
                        *map(str, arms),
                        "--text",
                        str(text),
                        "--max-length",
                        "256",
                        "--out",
                        str(tmp_path / "r"),
                    ]
                )
                == 3
            )
            err = capsys.readouterr().err
            assert (
                "at most 255 tokens" in err
                and "Choose --max-length 255 or less" in err
                and "scoring" not in err
                and not server.asked
            )


def test_a_server_that_cannot_be_scored_is_refused_for_that_before_anything_else(
    truths, tmp_path, capsys, monkeypatch
):
    "The user of llama-server was sent for a tokenizer, and refused after that."
    (text := tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    monkeypatch.setitem(LISTED, "openai", {"id": "demo", "owned_by": "llamacpp"})
    with Server("openai", truths["base"]) as server:
        assert (
            main(
                [
                    "score",
                    f"openai:{server.url}",
                    "--text",
                    str(text),
                    "--out",
                    str(tmp_path / "l.jsonl"),
                ]
            )
            == 3
        )
    assert "Score the GGUF file itself" in capsys.readouterr().err


def test_the_shell_scores_a_server_and_compares_it_with_a_checkpoint(
    truths, tmp_path, capsys, monkeypatch
):
    (text := tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    common = ["--text", str(text), "--max-length", "40", "--json"]

    def run(*arguments, code):
        capsys.readouterr()
        assert main([*map(str, arguments), *common]) == code
        out, err = capsys.readouterr()
        assert SECRET not in out + err
        return json.loads(out.splitlines()[-1]), err

    monkeypatch.setenv(KEY_VARIABLE, SECRET)
    with Server("vllm", truths["base"]) as server:
        address = f"openai:{server.url}/v1"
        scored, _ = run(
            "score",
            address,
            "--tokenizer",
            BASE,
            "scoring.concurrency=2",
            "--out",
            tmp_path / "served.jsonl",
            code=0,
        )
        local, _ = run(
            "score", BASE, "--dtype", "float32", "--out", tmp_path / "local.jsonl", code=0
        )
        assert (
            scored["perplexity"] == pytest.approx(local["perplexity"], rel=CLOSE)
            and scored["data_id"] == local["data_id"]
        )
        assert SECRET not in (tmp_path / "served.jsonl").read_text() and not list(
            tmp_path.glob(".*journal*")
        )
        report, _ = run(
            "compare",
            address,
            BASE,
            "--dtype",
            "float32",
            "--out",
            tmp_path / "report",
            code=0,
        )  # the checkpoint's tokenizer
        assert any(
            "different engines (vllm 0.11.0 and transformers)" in line
            for line in report["doubts"]
        )
        assert main(["verify", str(tmp_path / "report")]) == 0 and SECRET not in "".join(
            p.read_text() for p in (tmp_path / "report").iterdir() if p.suffix != ".parquet"
        )
        for argument, code, said in (
            (address, 2, "--tokenizer"),
            (f"vllm:http://me:{SECRET}@localhost", 2, KEY_VARIABLE),
            (f"http://me:{SECRET}@localhost", 2, KEY_VARIABLE),
            (f"vllm:http://localhost/?key={SECRET}", 2, KEY_VARIABLE),
            (f"vllm:{SECRET}@localhost", 2, "openai:URL"),
        ):
            _, err = run(
                "score",
                argument,
                *(["--tokenizer", str(BASE)] if argument != address else []),
                "--out",
                tmp_path / "x.jsonl",
                code=code,
            )
            assert said in err
        server.fault = always((400, f"no prompt_logprobs for {SECRET}"))
        _, err = run(
            "score", address, "--tokenizer", BASE, "--out", tmp_path / "x.jsonl", code=3
        )
        assert "no prompt_logprobs for [key]" in err
    _, err = run("compare", BASE, address, "--out", tmp_path / "none", code=5)
    assert "scoring" not in err  # the server is asked before a checkpoint is scored
    _, err = run("score", address, "--tokenizer", BASE, "--out", tmp_path / "x.jsonl", code=5)
    assert (
        "run again to resume" in err
        and "defect" not in err
        and not (tmp_path / "x.jsonl").exists()
    )
