"""Call programs from Python, each call in a process of its own, and print how each one ended.

python call.py PROGRAMS

PROGRAMS is a folder with a folder for each program. Every program is called with a host tensor and
with a CUDA tensor, through both loaders. Each call prints one line of JSON: which call it was, its
exit status, and what it wrote to stdout and to stderr.
"""

import itertools
import json
import os
import signal
import sys
import traceback
from pathlib import Path

# Imports ask whether there is a CUDA device. With this, asking does not initialize CUDA, which a
# process must not have done before it forks.
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"

import torch
from executorch.extension.pybindings.portable_lib import _load_for_executorch
from executorch.runtime import Runtime
from torch.profiler import ProfilerActivity, profile

LIMIT_S = 30
AT_ONCE = 12


def call(folder, loader, place):
    """Call one program, print where its result is, then which copies a second call runs."""
    paths = [str(folder / "model.pte"), str(folder / "aoti_cuda_blob.ptd")]
    x = torch.arange(-128.0, 128.0).view(4, 64)
    expected = torch.relu(2 * x + 1)
    x = x.to("cuda" if place == "device" else "cpu")

    if loader == "_load_for_executorch":
        module = _load_for_executorch(*paths)
        execute = module.forward
    else:
        method = Runtime.get().load_program(paths[0], data_path=paths[1]).load_method("forward")
        execute = method.execute

    result = execute([x])[0]
    memory = "device" if result.is_cuda else "host"
    verdict = "right" if torch.equal(result.cpu(), expected) else "wrong"
    print(json.dumps({"memory": memory, "verdict": verdict}), flush=True)

    with profile(activities=[ProfilerActivity.CUDA]) as run:
        execute([x])
        torch.cuda.synchronize()
    names = [event.name for event in run.events()]
    kinds = ("HtoD", "DtoH", "DtoD")
    copies = {kind: sum(name.startswith(f"Memcpy {kind}") for name in names) for kind in kinds}
    print(json.dumps({"copies": copies}), flush=True)


def start(folder, loader, place):
    """Fork a process for one call. It has the libraries loaded; CUDA begins in it."""
    files = [folder / f"{loader}-{place}.{stream}" for stream in ("stdout", "stderr")]
    pid = os.fork()
    if pid == 0:
        signal.alarm(LIMIT_S)
        status = 1
        try:
            for number, file in enumerate(files, 1):
                os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
            call(folder, loader, place)
            status = 0
        except Exception:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return pid, files


def wait(pid, files):
    """How a call ended: its exit status, and what it wrote."""
    _, status = os.waitpid(pid, 0)
    stdout, stderr = (file.read_text(errors="replace") for file in files)
    return {"status": os.waitstatus_to_exitcode(status), "stdout": stdout, "stderr": stderr}


folders = sorted(Path(sys.argv[1]).iterdir())
loaders = ("_load_for_executorch", "Runtime.load_program")
calls = list(itertools.product(folders, loaders, ("host", "device")))
for first in range(0, len(calls), AT_ONCE):
    started = [(one, start(*one)) for one in calls[first : first + AT_ONCE]]
    for (folder, loader, place), process in started:
        which = {"program": folder.name, "caller": loader, "input": place}
        print(json.dumps(which | wait(*process)), flush=True)
