"""
Run batches of different sizes
==============================

A program with a dynamic dimension takes sizes up to its upper bound. A planned output has a
buffer of the upper bound's size, and each result is at its start. An unplanned output goes to the
caller's buffer, which should have that size too.
"""

# sphinx_gallery_tags = ["executorch", "cuda", "cpp", "python", "planned", "unplanned", "failure"]
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
# ``torch.export.Dim`` names the dimension and bounds it. The example input can have any size within
# the bounds. A planned and an unplanned program come from one lowering.

from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig


class Pointwise(torch.nn.Module):
    def forward(self, x):
        return torch.relu(2 * x + 1)


# [export]
rows = torch.export.Dim("rows", min=1, max=8)
exported = torch.export.export(Pointwise(), (torch.ones(4, 64),), dynamic_shapes=({0: rows},))
# [/export]
lowered = to_edge_transform_and_lower(exported, partitioner=[CudaPartitioner([])])
temporary = tempfile.TemporaryDirectory()
work = Path(temporary.name)


def write_program(name, *, alloc_graph_output):
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
    folder = work / name
    folder.mkdir()
    program.save(f"{folder}/model.pte")
    program.write_tensor_data_to_file(folder)
    return program


# %%
# The program says how much memory it plans on the device: eight rows of 64 floats for the planned
# output, nothing for the unplanned one.


def device_arenas(program):
    plan = program.executorch_program.execution_plan[0]
    return [
        plan.non_const_buffer_sizes[one.buffer_idx] for one in plan.non_const_buffer_device or ()
    ]


arenas = {
    "planned": device_arenas(write_program("planned", alloc_graph_output=True)),
    "unplanned": device_arenas(write_program("unplanned", alloc_graph_output=False)),
}
print(arenas)
assert arenas == {"planned": [8 * 64 * 4], "unplanned": []}, arenas

# %%
# Call the planned program
# ------------------------
#
# The result has the rows of the input, and is always at the same address. The values are compared
# with eager PyTorch in float64.

from executorch.extension.pybindings.portable_lib import _load_for_executorch

torch.manual_seed(0)
host_x = torch.randn(9, 64)
x = host_x.to("cuda")
expected = Pointwise()(host_x.double())
tolerance = {"rtol": 1e-6, "atol": 1e-6}

module = _load_for_executorch(
    str(work / "planned" / "model.pte"), str(work / "planned" / "aoti_cuda_blob.ptd")
)
assert module.method_meta("forward").output_tensor_meta(0).sizes() == (8, 64)

addresses, shapes = set(), []
for number in (8, 3, 1):
    # [call]
    result = module.forward([x[:number]], clone_outputs=False)[0]
    # [/call]
    assert result.device == x.device
    torch.testing.assert_close(result.cpu().double(), expected[:number], **tolerance)
    addresses.add(result.data_ptr())
    shapes.append(list(result.shape))
    print(f"{number} rows in: {' x '.join(map(str, result.shape))} out")

assert shapes == [[8, 64], [3, 64], [1, 64]]
assert len(addresses) == 1

# %%
# More rows than the upper bound
# ------------------------------
#
# Nine rows are refused. It is an exception, and the program can be
# called again. ``redirect_stderr`` catches what the runtime logs.

import contextlib
import io

log = io.StringIO()
try:
    with contextlib.redirect_stderr(log):
        module.forward([x])
except RuntimeError as exception:
    error = str(exception)
else:
    error = "none"


def find(pattern, text):
    match = re.search(pattern, text)
    assert match, text
    return match.group(1)


message = find(r"(Attempted to resize .*)", log.getvalue())
print(error)
print(message)
assert error == "Failed to execute method forward, error: 0x10", error
assert message == (
    "Attempted to resize a bounded tensor with a maximum capacity of 512 elements to 576 elements."
), message

again = module.forward([x[:3]])[0]
torch.testing.assert_close(again.cpu().double(), expected[:3], **tolerance)

# %%
# Call the unplanned program from C++
# -----------------------------------
#
# The caller has one device buffer, for as many rows as the upper bound, and hands it over before
# each execution. The result's shape is in the tensor that ``forward`` returns.
#
# .. literalinclude:: /../gallery/python/dynamic_shapes/main.cpp
#    :language: cpp

import executorch

build = work / "build"
for command in (
    [cmake, "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={executorch.__path__[0]}"],
    [cmake, "--build", build],
):
    step = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert step.returncode == 0, step.stdout + step.stderr

(work / "inputs.bin").write_bytes(host_x.numpy().tobytes())
files = [work / "unplanned" / "model.pte", work / "unplanned" / "aoti_cuda_blob.ptd"]
files += [work / "inputs.bin", work / "results.bin"]
caller = subprocess.run([build / "caller", *files], capture_output=True, text=True, timeout=60)
print(caller.stdout)
assert caller.returncode == 0, caller.stderr
assert caller.stdout.splitlines() == [
    "buffer of 3 rows at first: error 0x12",
    "8 rows in: 8 x 64 out, caller's buffer: yes",
    "3 rows in: 3 x 64 out, caller's buffer: yes",
    "1 rows in: 1 x 64 out, caller's buffer: yes",
    "buffer of 1 row at last: error 0x0",
    "9 rows in: error 0x10",
], caller.stderr

results = torch.frombuffer(bytearray((work / "results.bin").read_bytes()), dtype=torch.float32)
wanted = torch.cat([expected[:8], expected[:3], expected[:1]])
torch.testing.assert_close(results.view(-1, 64).double(), wanted, **tolerance)

# %%
# ``set_output`` compares the buffer with the shape that the output has at that time: the upper
# bound at first, then the shape of the execution before. After one row it accepts a buffer of one
# row, even if the next input has eight. So it is up to the caller: a buffer of the upper bound's
# size is always large enough.

small_message = find(r"(buffer size: .*)", caller.stderr)
cpp_message = find(r"(Attempted to resize .*)", caller.stderr)
print(small_message)
print(cpp_message)
assert small_message == "buffer size: 768 is smaller then expected tensor size: 2048"
assert cpp_message == message

# %%
# What this recipe proves, as values that other pages quote.

facts = {
    "tolerance": tolerance["atol"],
    "planned_arenas": arenas["planned"],
    "unplanned_arenas": arenas["unplanned"],
    "shapes": shapes,
    "addresses": len(addresses),
    "too_many_rows_error": error,
    "too_many_rows_message": message,
    "caller_output": caller.stdout.rstrip(),
    "small_buffer_message": small_message,
}
