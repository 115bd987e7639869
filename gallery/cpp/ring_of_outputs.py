"""
Keep results with two output buffers in turn
============================================

A result has to outlive the next execution when something still reads it. A C++ caller keeps two
buffers and hands them over in turn, so a result stays where it is while the next one is computed.
The alternative is to copy each result out of the program's own buffer.
"""

# sphinx_gallery_tags = ["executorch", "cuda", "cpp", "unplanned", "planned", "lifetime", "cost"]
# sphinx_gallery_companions = ["trace_copies"]
# sphinx_gallery_thumbnail_path = "_static/shapes/unplanned.svg"

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
tracer = source.with_name("trace_copies")
needs = {
    "a CUDA device": torch.cuda.is_available(),
    f"ExecuTorch's CUDA delegate (pip install {install})": "CudaBackend" in backends,
    "nvcc (from the CUDA toolkit)": shutil.which("nvcc"),
    "a C++ compiler": any(map(shutil.which, ("c++", "g++", "clang++"))),
    "CMake 3.28 or newer (pip install cmake)": version >= (3, 28),
    f"the folders {source.name} and {tracer.name} beside it (in the archive on its page)": (
        source.is_dir() and tracer.is_dir()
    ),
}
if missing := [need for need, met in needs.items() if not met]:
    print(f"This recipe needs {' and '.join(missing)}.", file=sys.stderr)
    sys.exit(2)

# %%
# Export
# ------
#
# The two ways need two programs. The ring takes an unplanned one, and the copy one that has a
# buffer of its own. Both come from one lowering, and their input and output are 64 MiB each.

from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig


class Pointwise(torch.nn.Module):
    def forward(self, x):
        return torch.relu(2 * x + 1)


model = Pointwise()
side = 4096
exported = torch.export.export(model, (torch.ones(side, side),))
lowered = to_edge_transform_and_lower(exported, partitioner=[CudaPartitioner([])])


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


# [/export]

temporary = tempfile.TemporaryDirectory()
work = Path(temporary.name)
write_program(lowered, work / "unplanned", alloc_graph_output=False)
write_program(lowered, work / "planned", alloc_graph_output=True)

# %%
# Build the caller
# ----------------
#
# ``ExecuteInto`` is the ring's call, ``ExecuteAndCopy`` the other one. Each keeps the last two
# results.
#
# .. literalinclude:: /../gallery/cpp/ring_of_outputs/main.cpp
#    :language: cpp
#
# The copies are counted by a small library that is loaded in front of the CUDA runtime.
#
# .. literalinclude:: /../gallery/cpp/trace_copies/trace_copies.cpp
#    :language: cpp
#
# .. literalinclude:: /../gallery/cpp/ring_of_outputs/CMakeLists.txt
#    :language: cmake

import executorch

build = work / "build"
for command in (
    [cmake, "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={executorch.__path__[0]}"],
    [cmake, "--build", build],
):
    step = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert step.returncode == 0, step.stdout + step.stderr

# %%
# Keep each result
# ----------------
#
# The caller executes the program three times, and reads the newest result and the one before. With
# the ring and with the copy, every result is intact after the next execution. The values are
# compared with eager PyTorch.

programs = {"ring": "unplanned", "copy": "planned"}


def call(mode, *options, **environment):
    folder = work / programs[mode]
    files = [folder / "model.pte", folder / "aoti_cuda_blob.ptd"]
    caller = subprocess.run(
        [build / "caller", *files, mode, *options],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | environment,
    )
    assert caller.returncode == 0, caller.stdout + caller.stderr
    return caller.stdout


one, two, three = (f"{value:g}" for value in model(torch.tensor([1.0, 2.0, 3.0])).tolist())
traces = {mode: call(mode, LD_PRELOAD=f"{build}/libtrace_copies.so") for mode in programs}
for mode, trace in traces.items():
    lines = [line for line in trace.splitlines() if not line.startswith(" ")]
    print(f"{mode}:", "; ".join(lines))
    assert lines == [
        "execution 1",
        f"result 1: {one}",
        "execution 2",
        f"result 2: {two}",
        f"result 1: {one}",
        "execution 3",
        f"result 3: {three}",
        f"result 2: {two}",
    ], trace

# %%
# Count the copies
# ----------------
#
# The delegate computes into a buffer of its own, and copies from there to the output, within the
# device. With the ring that is the only copy between device buffers, and the result is in place.
# Keeping a planned result takes a second one.

copies = {}
for mode, trace in traces.items():
    counts = {execution.count("copy DtoD") for execution in trace.split("execution ")[1:]}
    assert len(counts) == 1, trace
    copies[mode] = counts.pop()
    print(f"{mode}: {copies[mode]} DtoD per execution")
assert copies == {"ring": 1, "copy": 2}, traces

# %%
# Measure
# -------
#
# Each time is the median of 100 synchronized calls after 10 to warm up. The last is of a planned
# program whose result is overwritten. The recipe asserts nothing about times.

times = [line for mode in programs for line in call(mode, "--time").splitlines() if " ms" in line]
ring_ms, copy_ms, overwrite_ms = (float(time.removesuffix(" ms")) for time in times)
print(f"ring: {ring_ms:.3f} ms")
print(f"copy: {copy_ms:.3f} ms, without the copy {overwrite_ms:.3f} ms")

# %%
# What this recipe proves, as values that other pages quote.

facts = {
    "bytes": torch.ones(side, side).nbytes,
    "buffers": 2,
    "copies": copies,
    "ring_ms": ring_ms,
    "copy_ms": copy_ms,
    "overwrite_ms": overwrite_ms,
    "copy_over_ring_ratio": copy_ms / ring_ms,
    "calls_per_median": 100,
}
