"""Kernels for the pages in the tests: forked from one process that has imported what is not ours (NumPy, SciPy, PyTorch, ...).

    python tools/warm.py serve SOCKET         the process that forks; ends when its standard input does
    python tools/warm.py kernel SOCKET FILE   stands for one forked kernel: ends with it, and takes it along when killed

Nothing of invar_nb is imported before the fork: each kernel loads it anew. `make fresh`, which stores outputs, starts every interpreter from nothing."""

import json
import os
import signal
import socket
import sys

# Nothing here starts a thread, which a fork would not take along (PyArrow does, so pandas is not here).
IMPORTS = (
    "numpy",
    "scipy.stats",
    "scipy.signal",
    "scipy.optimize",
    "msgspec",
    "jinja2",
    "matplotlib.figure",  # its inline backend looks for a kernel as it is imported
    "IPython.core.pylabtools",
    "pytest",
    "typer.rich_utils",
    "torch",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.gpt2.modeling_gpt2",
)


def serve(address):
    "Import what pages need, then fork a kernel for each connection, until stdin closes."
    import atexit
    import gc
    import importlib
    import select
    import warnings
    import weakref
    from contextlib import suppress

    sys.modules["debugpy"] = (
        None  # a tenth of a second in each kernel, for a debugger that no page starts
    )
    from ipykernel import debugger, kernelapp  # noqa: F401

    with suppress(ImportError), warnings.catch_warnings(action="ignore"):
        importlib.import_module("tqdm.auto")  # misses widgets
    for name in IMPORTS:
        with suppress(ImportError):
            importlib.import_module(name)
    assert not any(name.split(".")[0] == "invar_nb" for name in sys.modules)
    for last in list(weakref.finalize._registry):
        last.atexit = False  # what a kernel does at its end is for what it made
    if dynamo := sys.modules.get("torch._dynamo.utils"):
        atexit.unregister(dynamo.dump_compile_times)
    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    print("ready", flush=True)
    while listener in select.select([listener, sys.stdin], [], [])[0]:
        door, _ = listener.accept()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if os.fork() == 0:
            return kernel(door, kernelapp)
        door.close()


def kernel(door, kernelapp):
    """Become the kernel that was asked for; this runs in the forked process and never returns.

    When the one who asked goes away, the kernel and all that it started are killed.
    """
    import atexit
    import threading

    message, fds, _, _ = socket.recv_fds(door, 1 << 20, 2)
    ask = json.loads(message)
    os.setsid()
    os.chdir(ask["cwd"])
    os.environ.clear()
    os.environ.update(ask["env"])
    with open(os.devnull) as empty:
        os.dup2(empty.fileno(), 0)
    for to, fd in enumerate(fds, 1):
        os.dup2(fd, to)
    threading.Thread(
        target=lambda: door.recv(1) or os.killpg(0, signal.SIGKILL), daemon=True
    ).start()
    sys.argv[:] = [
        "ipykernel_launcher",
        "-f",
        ask["file"],
        f"--IPKernelApp.parent_handle={os.getppid()}",
    ]
    try:
        kernelapp.launch_new_instance()
    finally:  # to take all the modules down would copy their memory first
        atexit._run_exitfuncs()
        os._exit(0)


def ask(address, file):
    "Ask the server for a kernel and wait for its end; this process stands in for the kernel."
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(address)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the kernel is asked to end, too
        socket.send_fds(
            s,
            [json.dumps(dict(file=file, cwd=os.getcwd(), env=dict(os.environ))).encode()],
            [1, 2],
        )
        s.recv(1)


if __name__ == "__main__":
    del sys.path[0]
    serve(sys.argv[2]) if sys.argv[1] == "serve" else ask(*sys.argv[2:])
