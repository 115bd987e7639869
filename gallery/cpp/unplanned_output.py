"""
Write the output into the caller's device memory
================================================

A C++ caller allocates device memory for the input and the output, and the program computes from
one into the other. Nothing is copied through the host, and each result is in the buffer that the
caller chose for it.
"""

# sphinx_gallery_tags = ["executorch", "cuda", "cpp", "unplanned", "failure"]
# sphinx_gallery_thumbnail_path = "_static/shapes/unplanned.svg"

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

install = "executorch==1.5.1+cu130 --extra-index-url https://download.pytorch.org/whl/cu130"
if not (find_spec("torch") and find_spec("executorch")):
    print(
        f"This recipe needs a GPU, and ExecuTorch with CUDA (pip install {install}).",
        file=sys.stderr,
    )
    sys.exit(2)

import torch
from executorch.extension.pybindings._C import _get_registered_backend_names

cmake = shutil.which("cmake", path=sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"])
reply = subprocess.run([cmake, "--version"], capture_output=True, text=True).stdout if cmake else ""
version = tuple(int(number) for number in re.findall(r"\d+", reply))
backends = _get_registered_backend_names()
source = Path(sys.argv[0]).resolve().with_suffix("")
needs = {
    "a CUDA device": torch.cuda.is_available(),
    f"ExecuTorch's CUDA delegate (pip install {install})": "CudaBackend" in backends,
    "nvcc (from the CUDA toolkit)": shutil.which("nvcc"),
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
# The ``skip`` flags keep the input and the output on the device. With both ``alloc`` flags off,
# the program reserves memory for neither: it is unplanned. A second program with a planned output
# shows the difference further down. Both come from one lowering.
#
# The weights are written to ``aoti_cuda_blob.ptd``, whatever the model is called, so each program
# has a folder of its own.

# [lower]
from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))
model.eval().requires_grad_(False)
inputs = torch.randn(2, 4, 64)

exported = torch.export.export(model, (inputs[0],))
lowered = to_edge_transform_and_lower(exported, partitioner=[CudaPartitioner([])])
# [/lower]


# [export]
def write_program(lowered, folder, *, alloc_graph_output):
    program = copy.deepcopy(lowered).to_executorch(
        ExecutorchBackendConfig(
            propagate_device_config=PropagateDeviceConfig(
                skip_h2d_for_method_inputs=True,
                skip_d2h_for_method_outputs=True,
            ),
            memory_planning_pass=MemoryPlanningPass(
                alloc_graph_input=False,
                alloc_graph_output=alloc_graph_output,
            ),
        )
    )
    folder.mkdir()
    program.save(f"{folder}/model.pte")
    program.write_tensor_data_to_file(folder)
    return program


# [/export]

temporary = tempfile.TemporaryDirectory()
work = Path(temporary.name)
unplanned = write_program(lowered, work / "unplanned", alloc_graph_output=False)
planned = write_program(lowered, work / "planned", alloc_graph_output=True)

# %%
# An ordinary program holds an operator for each copy. These two hold none, so nothing goes through
# the host.


def operators(program):
    return {operator.name for operator in program.executorch_program.execution_plan[0].operators}


default = copy.deepcopy(lowered).to_executorch()
assert operators(default) == {"et_copy::_h2d_copy", "et_copy::_d2h_copy"}
assert operators(unplanned) == operators(planned) == set()

# %%
# Build the caller
# ----------------
#
# ``find_package(executorch)`` finds the installed Python package: headers, runtime, and delegate.
#
# .. literalinclude:: /../gallery/cpp/unplanned_output/CMakeLists.txt
#    :language: cmake
#
# The caller:
#
# .. literalinclude:: /../gallery/cpp/unplanned_output/main.cpp
#    :language: cpp

import executorch

build = work / "build"
for command in (
    [cmake, "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={executorch.__path__[0]}"],
    [cmake, "--build", build],
):
    step = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert step.returncode == 0, step.stdout + step.stderr

# %%
# Hand over the output
# --------------------
#
# The caller executes the program twice. Before each execution it names a buffer with
# ``Module::set_output``. The results' pointers are the caller's own, CUDA says that they are device
# memory, and the first result is still intact after the second execution. The values are compared
# with eager PyTorch in float64.

(work / "inputs.bin").write_bytes(inputs.numpy().tobytes())
expected = copy.deepcopy(model).double()(inputs.double())
tolerance = {"rtol": 1e-4, "atol": 1e-4}


def call(folder, *options):
    files = [folder / "model.pte", folder / "aoti_cuda_blob.ptd"]
    files += [work / "inputs.bin", work / "results.bin"]
    command = [build / "caller", *files, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def find(pattern, text):
    match = re.search(pattern, text)
    assert match, text
    return match.group(1)


handed_over = call(work / "unplanned", "--set-output")
print(handed_over.stdout)
assert handed_over.returncode == 0, handed_over.stderr
assert handed_over.stdout.splitlines() == [
    "execution 1: device memory: yes, caller's buffer: yes",
    "execution 2: device memory: yes, caller's buffer: yes",
    "both results in one buffer: no",
]

data = bytearray((work / "results.bin").read_bytes())
first, first_later, second = torch.frombuffer(data, dtype=torch.float32).view(3, 4, 64)
torch.testing.assert_close(first.double(), expected[0], **tolerance)
torch.testing.assert_close(second.double(), expected[1], **tolerance)
assert torch.equal(first_later, first)

# %%
# Without ``set_output``
# ----------------------
#
# Neither the program nor ``Module`` has memory for the output. The delegate gets a null pointer,
# and stops the process.

without = call(work / "unplanned")
assert without.returncode == -signal.SIGABRT, without.stderr
abort_message = find(r"(from_blob: .*)", without.stderr)
assert abort_message == "from_blob: data pointer cannot be nullptr"
print(signal.Signals(-without.returncode).name, abort_message, sep=": ")

# %%
# ``set_output`` on a planned program
# -----------------------------------
#
# A planned output has its memory already. The runtime refuses another buffer for it, with an error
# that the caller can handle.

refused = call(work / "planned", "--set-output")
error = find(r"set_output: error (\w+)", refused.stderr)
refused_message = find(r"(Output 0 .*)", refused.stderr)
assert error == "0x2"
assert refused_message == (
    "Output 0 is memory planned, or is a constant. Cannot override the existing data pointer."
)
print(f"error {error}: {refused_message}")

# %%
# What this recipe proves, as values that other pages quote.

facts = {
    "tolerance": tolerance["atol"],
    "max_error": (first.double() - expected[0]).abs().max().item(),
    "caller_output": handed_over.stdout.rstrip(),
    "operators": len(operators(unplanned)),
    "default_operators": sorted(operators(default)),
    "without_set_output_signal": signal.Signals(-without.returncode).name,
    "without_set_output_message": abort_message,
    "set_output_on_planned_error": error,
    "set_output_on_planned_message": refused_message,
}
