"""
Rehearse on the host
====================

A program can leave the memory of its output to the caller. This recipe shows how that works with
host memory, so it needs no GPU: export a program without memory for its output, call it from
Python, and call it from C++ with a buffer handed over by ``Module::set_output``.
"""

# sphinx_gallery_tags = ["executorch", "cpp", "anywhere", "planned", "unplanned", "failure"]
# sphinx_gallery_thumbnail_path = "_static/shapes/host.svg"

import copy
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path

if not (find_spec("torch") and find_spec("executorch")):
    print("This recipe needs ExecuTorch (pip install executorch==1.5.1).", file=sys.stderr)
    sys.exit(2)

cmake = shutil.which("cmake", path=sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"])
reply = subprocess.run([cmake, "--version"], capture_output=True, text=True).stdout if cmake else ""
version = tuple(int(number) for number in re.findall(r"\d+", reply))
source = Path(sys.argv[0]).resolve().with_suffix("")
needs = {
    "a C++ compiler": any(map(shutil.which, ("c++", "g++", "clang++"))),
    "CMake 3.28 or newer (pip install cmake)": version >= (3, 28),
    f"the folder {source.name} beside it (in the archive on its page)": source.is_dir(),
}
if missing := [need for need, met in needs.items() if not met]:
    print(f"This recipe needs {' and '.join(missing)}.", file=sys.stderr)
    sys.exit(2)

# %%
# Export
# ------
#
# The memory plan decides who owns the output. With ``alloc_graph_output=True``, the default, the
# program reserves memory for it: the output is planned. With ``alloc_graph_output=False`` it is
# unplanned, and the caller has to supply the memory. ``alloc_graph_input=False`` does the same for
# the input, so the program reads it where the caller has it.

import executorch
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass


# [export]
def export(model, example_inputs, path, *, alloc_graph_output):
    lowered = to_edge_transform_and_lower(torch.export.export(model, example_inputs))
    plan = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=alloc_graph_output)
    program = lowered.to_executorch(ExecutorchBackendConfig(memory_planning_pass=plan))
    program.save(str(path))


# [/export]

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))
model.eval().requires_grad_(False)
inputs = torch.randn(2, 4, 64)

folder = tempfile.TemporaryDirectory()
work = Path(folder.name)
export(model, (inputs[0],), work / "unplanned.pte", alloc_graph_output=False)
export(model, (inputs[0],), work / "planned.pte", alloc_graph_output=True)

# %%
# Call it from Python
# -------------------
#
# The Python bindings see that the output has no memory and supply host memory of their own, so
# the unplanned program just works. The same bindings do the same for a CUDA program, where host
# memory is the wrong kind.
#
# Values are compared with eager PyTorch in float64.

from executorch.extension.pybindings.portable_lib import _load_for_executorch

expected = copy.deepcopy(model).double()(inputs.double())
tolerance = {"rtol": 1e-5, "atol": 1e-5}

for name in ("unplanned", "planned"):
    # [python]
    module = _load_for_executorch(str(work / f"{name}.pte"))
    result = module.forward([inputs[0]])[0]
    # [/python]
    planned = module.method_meta("forward").output_tensor_meta(0).is_memory_planned()
    assert planned == (name == "planned")
    torch.testing.assert_close(result.double(), expected[0], **tolerance)
    print(f"{name}.pte: output planned: {planned}, values right")

# %%
# Build the C++ caller
# --------------------
#
# ``find_package(executorch)`` finds the installed Python package: headers, runtime, and kernels.
#
# .. literalinclude:: /../gallery/anywhere/host_rehearsal/CMakeLists.txt
#    :language: cmake
#
# The caller:
#
# .. literalinclude:: /../gallery/anywhere/host_rehearsal/main.cpp
#    :language: cpp

for command in (
    [cmake, "-S", source, "-B", work, f"-DCMAKE_PREFIX_PATH={executorch.__path__[0]}"],
    [cmake, "--build", work],
):
    build = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert build.returncode == 0, build.stdout + build.stderr

# %%
# Hand over the output in C++
# ---------------------------
#
# The caller executes the program twice, with one buffer for each result. Each result is in the
# buffer that ``set_output`` named before the execution, and the first one is still intact after
# the second execution.

(work / "inputs.bin").write_bytes(inputs.numpy().tobytes())


def call(name, *options):
    files = [work / f"{name}.pte", work / "inputs.bin", work / "results.bin"]
    command = [work / "caller", *files, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def find(pattern, text):
    match = re.search(pattern, text)
    assert match, text
    return match.group(1)


def read_results():
    data = bytearray((work / "results.bin").read_bytes())
    return torch.frombuffer(data, dtype=torch.float32).view(3, 4, 64).double()


caller = call("unplanned", "--set-output")
print(caller.stdout)
assert caller.returncode == 0, caller.stderr
assert caller.stdout.count("in the caller's buffer: yes") == 2

first, first_later, second = read_results()
torch.testing.assert_close(first, expected[0], **tolerance)
torch.testing.assert_close(second, expected[1], **tolerance)
assert torch.equal(first_later, first)

# %%
# Without ``set_output``
# ----------------------
#
# ``Module`` supplies no memory in place of the caller. The output has none, and the process dies.

without = call("unplanned")
assert without.returncode == -signal.SIGSEGV
print("unplanned.pte without set_output:", signal.Signals(-without.returncode).name)

# %%
# ``set_output`` on a planned program
# -----------------------------------
#
# A planned output has its memory already, and the runtime refuses another one. Without
# ``set_output`` the same caller works: both results are in the program's own buffer, so the second
# execution overwrites the first result.

refused = call("planned", "--set-output")
message = find(r"(Output 0 .*)", refused.stderr)
error = find(r"set_output: error (\w+)", refused.stderr)
assert error == "0x2"
print(f"set_output: error {error}: {message}\n")

own = call("planned")
print(own.stdout)
assert own.returncode == 0, own.stderr
assert own.stdout.endswith("both results in one buffer: yes\n")

first, first_later, second = read_results()
torch.testing.assert_close(first, expected[0], **tolerance)
torch.testing.assert_close(second, expected[1], **tolerance)
assert torch.equal(first_later, second)

# %%
# What this recipe proves, as values that other pages quote.

facts = {
    "tolerance": tolerance["atol"],
    "set_output_in_callers_buffer": "in the caller's buffer: yes" in caller.stdout,
    "without_set_output_signal": signal.Signals(-without.returncode).name,
    "set_output_on_planned_error": error,
    "set_output_on_planned_message": message,
    "planned_results_share_a_buffer": own.stdout.endswith("one buffer: yes\n"),
}
