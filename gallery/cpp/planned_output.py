"""
Use the program's own output buffer from C++
============================================

A planned program has a device buffer for its output. A C++ caller supplies the input in device
memory, and reads the result from that buffer before the next execution overwrites it.
"""

# sphinx_gallery_tags = ["executorch", "cuda", "cpp", "planned"]
# sphinx_gallery_companions = ["unplanned_output"]
# sphinx_gallery_thumbnail_path = "_static/shapes/planned.svg"

import copy
import os
import re
import shutil
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
source = Path(sys.argv[0]).resolve().with_name("unplanned_output")
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
# The ``skip`` flags keep the input and the output on the device, ``alloc_graph_input=False`` leaves
# the input to the caller, and ``alloc_graph_output=True`` plans the output. It is the same program
# that a Python caller uses.

from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))
model.eval().requires_grad_(False)
inputs = torch.randn(2, 4, 64)

temporary = tempfile.TemporaryDirectory()
work = Path(temporary.name)

# [export]
exported = torch.export.export(model, (inputs[0],))
lowered = to_edge_transform_and_lower(exported, partitioner=[CudaPartitioner([])])
program = lowered.to_executorch(
    ExecutorchBackendConfig(
        propagate_device_config=PropagateDeviceConfig(
            skip_h2d_for_method_inputs=True,
            skip_d2h_for_method_outputs=True,
        ),
        memory_planning_pass=MemoryPlanningPass(
            alloc_graph_input=False,
            alloc_graph_output=True,
        ),
    )
)
program.save(f"{work}/model.pte")
program.write_tensor_data_to_file(work)
# [/export]

# %%
# Build the caller
# ----------------
#
# The sources are those of :doc:`unplanned_output`. Without ``--set-output`` the caller only
# executes the program, and takes the result from where it is.

import executorch

build = work / "build"
for command in (
    [cmake, "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={executorch.__path__[0]}"],
    [cmake, "--build", build],
):
    step = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert step.returncode == 0, step.stdout + step.stderr

# %%
# Call
# ----
#
# Two executions give two results at one address, in device memory that is not the caller's. The
# values are compared with eager PyTorch in float64: after the second execution, the pointer of the
# first result leads to the second.

(work / "inputs.bin").write_bytes(inputs.numpy().tobytes())
files = ["model.pte", "aoti_cuda_blob.ptd", "inputs.bin", "results.bin"]
command = [build / "caller", *(work / name for name in files)]
caller = subprocess.run(command, capture_output=True, text=True, timeout=60)
print(caller.stdout)
assert caller.returncode == 0, caller.stderr
assert caller.stdout.splitlines() == [
    "execution 1: device memory: yes, caller's buffer: no",
    "execution 2: device memory: yes, caller's buffer: no",
    "both results in one buffer: yes",
]

expected = copy.deepcopy(model).double()(inputs.double())
tolerance = {"rtol": 1e-4, "atol": 1e-4}
data = bytearray((work / "results.bin").read_bytes())
first, first_later, second = torch.frombuffer(data, dtype=torch.float32).view(3, 4, 64)
torch.testing.assert_close(first.double(), expected[0], **tolerance)
torch.testing.assert_close(second.double(), expected[1], **tolerance)
assert torch.equal(first_later, second)
print("the first result, then:", [f"{value:.3f}" for value in first[0, :3]])
print("the first result, now: ", [f"{value:.3f}" for value in first_later[0, :3]])

# %%
# What this recipe proves, as values that other pages quote.

facts = {
    "tolerance": tolerance["atol"],
    "max_error": (first.double() - expected[0]).abs().max().item(),
    "caller_output": caller.stdout.rstrip(),
    "overwritten": torch.equal(first_later, second),
}
