"""
Replay a program as a CUDA graph
================================

The delegate can capture what a program launches once, as a CUDA graph, and replay it in every
later call, which helps this model of many small steps. The caller's buffers may be others each
time: a replay copies the input and the output, within the device.
"""

# sphinx_gallery_tags = ["executorch", "cuda", "cpp", "unplanned", "copies", "cost"]
# sphinx_gallery_companions = ["trace_copies"]
# sphinx_gallery_thumbnail_path = "_static/shapes/unplanned.svg"

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
# The model balances the rows and the columns of a matrix in turn. It takes sixteen sums, and each
# depends on the one before.
#
# The option that switches the graph on names a method. The delegate knows the method's name from
# the compile spec, so the partitioner gets one.

from executorch.backends.cuda.cuda_backend import CudaBackend
from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig


class Balance(torch.nn.Module):
    def forward(self, x):
        for _ in range(8):
            x = x / x.sum(0, keepdim=True)
            x = x / x.sum(1, keepdim=True)
        return x


torch.manual_seed(0)
model = Balance()
inputs = torch.rand(6, 128, 128) + 0.1

temporary = tempfile.TemporaryDirectory()
work = Path(temporary.name)


# [export]
def write_program(folder, compile_specs):
    exported = torch.export.export(model, (inputs[0],))
    lowered = to_edge_transform_and_lower(exported, partitioner=[CudaPartitioner(compile_specs)])
    program = lowered.to_executorch(
        ExecutorchBackendConfig(
            propagate_device_config=PropagateDeviceConfig(
                skip_h2d_for_method_inputs=True,
                skip_d2h_for_method_outputs=True,
            ),
            memory_planning_pass=MemoryPlanningPass(
                alloc_graph_input=False,
                alloc_graph_output=False,
            ),
        )
    )
    folder.mkdir()
    program.save(f"{folder}/model.pte")
    program.write_tensor_data_to_file(folder)


method_name = CudaBackend.generate_method_name_compile_spec("forward")
write_program(work / "named", [method_name])
# [/export]

# %%
# Build the caller
# ----------------
#
# The option is set on the backend, before the program is loaded.
#
# .. literalinclude:: /../gallery/cpp/cuda_graph/main.cpp
#    :language: cpp
#
# What happens in a call is shown by a small library that is loaded in front of the CUDA runtime.
#
# .. literalinclude:: /../gallery/cpp/trace_copies/trace_copies.cpp
#    :language: cpp
#
# .. literalinclude:: /../gallery/cpp/cuda_graph/CMakeLists.txt
#    :language: cmake

import executorch

build = work / "build"
for command in (
    [cmake, "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={executorch.__path__[0]}"],
    [cmake, "--build", build],
):
    step = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert step.returncode == 0, step.stdout + step.stderr

(work / "inputs.bin").write_bytes(inputs.numpy().tobytes())
expected = torch.stack([model(x) for x in inputs.double()])
tolerance = {"rtol": 1e-4, "atol": 0}


def call(name, *flags, **environment):
    files = [work / name / "model.pte", work / name / "aoti_cuda_blob.ptd"]
    files += [work / "inputs.bin", work / "results.bin"]
    caller = subprocess.run(
        [build / "caller", *files, *flags],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | environment,
    )
    assert caller.returncode == 0, caller.stdout + caller.stderr
    data = bytearray((work / "results.bin").read_bytes())
    results = torch.frombuffer(data, dtype=torch.float32).view_as(expected).double()
    torch.testing.assert_close(results, expected, **tolerance)
    return caller.stdout


# %%
# Warm up, capture, replay
# ------------------------
#
# Without the option each execution copies the result once, from the delegate's memory to the
# caller's. With the option the first three executions are the same. The fourth captures the graph
# and launches it, and every later one only launches it, with a copy of the input before and of the
# result after. All results are right, compared with eager PyTorch in float64.


def trace(name, *flags):
    text = call(name, *flags, LD_PRELOAD=f"{build}/libtrace_copies.so")
    return text[text.index("execution 1") : text.index("results")].rstrip()


plain = trace("named")
graph = trace("named", "--cuda-graph")
print(graph)


def executions(text):
    blocks = text.split("execution ")[1:]
    return [[line.strip() for line in block.splitlines()[1:]] for block in blocks]


assert executions(plain) == [["copy DtoD"]] * 6, plain
assert executions(graph) == [
    *[["copy DtoD"]] * 3,
    ["copy DtoD", "capture", "launch", "copy DtoD"],
    *[["copy DtoD", "launch", "copy DtoD"]] * 2,
], graph

# %%
# Measure
# -------
#
# Each time is the median of 200 synchronized calls after 20 to warm up. For this model a replay
# takes less time than a plain call, its copies included.

plain_ms = float(call("named", "--time").split()[-2])
graph_ms = float(call("named", "--cuda-graph", "--time").split()[-2])
print(f"plain: {plain_ms:.3f} ms, graph: {graph_ms:.3f} ms")
assert graph_ms < plain_ms, (graph_ms, plain_ms)

# %%
# Leave the method's name out
# ---------------------------
#
# The same program without the compile spec has no method that the option could name. No call
# fails: the option is accepted, and each execution is a plain one.

write_program(work / "unnamed", [])
unnamed = trace("unnamed", "--cuda-graph")
assert unnamed == plain, unnamed
print("launches of a graph:", unnamed.count("launch"))

# %%
# What this recipe proves, as values that other pages quote.

facts = {
    "tolerance": tolerance["rtol"],
    "input_bytes": inputs[0].nbytes,
    "warm_up_executions": executions(graph).count(["copy DtoD"]),
    "trace": graph,
    "plain_copies": executions(plain)[-1].count("copy DtoD"),
    "replay_copies": executions(graph)[-1].count("copy DtoD"),
    "unnamed_launches": unnamed.count("launch"),
    "plain_ms": plain_ms,
    "graph_ms": graph_ms,
    "plain_over_graph_ratio": plain_ms / graph_ms,
    "calls_per_median": 200,
}
