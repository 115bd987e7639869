"""
Run a program on your own stream
================================

The delegate runs a program on a stream that it makes itself. ``CallerStreamGuard`` puts the
program on the caller's stream instead, in order with the rest of the caller's work. The host then
waits for that stream before it reads the result.
"""

# sphinx_gallery_tags = ["executorch", "cuda", "cpp", "unplanned", "streams", "failure"]
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
# Nothing in the program depends on the stream. Only a CUDA graph, which the last section tries,
# asks for something: the option that switches it on names a method, and the delegate knows the
# method's name from the compile spec.

from executorch.backends.cuda.cuda_backend import CudaBackend
from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig


class Pointwise(torch.nn.Module):
    def forward(self, x):
        return torch.relu(2 * x + 1)


model = Pointwise()
x = torch.ones(4, 64)

temporary = tempfile.TemporaryDirectory()
work = Path(temporary.name)

# [export]
method_name = CudaBackend.generate_method_name_compile_spec("forward")
exported = torch.export.export(model, (x,))
lowered = to_edge_transform_and_lower(exported, partitioner=[CudaPartitioner([method_name])])
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
program.save(f"{work}/model.pte")
program.write_tensor_data_to_file(work)
# [/export]

# %%
# Build the caller
# ----------------
#
# ``CallerStreamGuard`` comes with the target ``executorch::extension_cuda``.
#
# .. literalinclude:: /../gallery/cpp/caller_stream/CMakeLists.txt
#    :language: cmake
#
# To show the order of events, the caller holds its stream up with a host function, and calls the
# program in the meantime: first without a guard, then with one.
#
# .. literalinclude:: /../gallery/cpp/caller_stream/main.cpp
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
# Call
# ----
#
# Without a guard the program does not wait for the caller's stream. It is done while that stream is
# held up, and the default stream's copy finds the result.
#
# With a guard the program is queued on the caller's stream. ``forward`` returns before the work is
# done, and a copy that does not wait for the stream is too early: it finds the zeros that were
# there before. What is queued on the stream behind the program finds the result, and so does the
# host after ``cudaStreamSynchronize``.

caller = subprocess.run(
    [build / "caller", work / "model.pte", work / "aoti_cuda_blob.ptd"],
    capture_output=True,
    text=True,
    timeout=60,
)
print(caller.stdout)
assert caller.returncode == 0, caller.stdout + caller.stderr
expected = f"{model(x)[0, 0].item():g}"
assert caller.stdout.splitlines()[:5] == [
    f"without a guard: result {expected} while the caller's stream is held up",
    "with a guard: forward has returned, the work is queued",
    "with a guard: result 0 while the caller's stream is held up",
    f"with a guard: result {expected} after synchronizing",
    f"with a guard: the next step on the stream saw {expected}",
], caller.stdout + caller.stderr

# %%
# Use a CUDA graph or a stream of your own
# ----------------------------------------
#
# The delegate can capture a CUDA graph and replay it, but not on a stream of the caller's. A
# program that is loaded with the option is refused while a guard is active, and runs without one.


def find(pattern, text):
    match = re.search(pattern, text)
    assert match, text
    return match.group(1)


error = find(r"CUDA graph, with a guard: (\w+)", caller.stdout)
message = find(r"(CUDA graph is not supported .*)", caller.stderr)
print(f"error {error}: {message}")
assert error == "0x10", caller.stdout + caller.stderr
assert message == "CUDA graph is not supported together with a caller-provided CUDA stream."
assert caller.stdout.splitlines()[5:] == [
    "CUDA graph, with a guard: 0x10",
    "CUDA graph, without a guard: 0x0",
], caller.stdout + caller.stderr

# %%
# What this recipe proves, as values that other pages quote.

facts = {
    "caller_output": caller.stdout.rstrip(),
    "result": expected,
    "cuda_graph_error": error,
    "cuda_graph_message": message,
}
