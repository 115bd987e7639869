"""
See which mistakes a C++ caller is told about
=============================================

Shared memory arenas, a buffer that is too small, host memory, a wrong device label: a C++ caller
makes each mistake once. Three are refused, each at another step. The label made no difference.
"""

# sphinx_gallery_tags = ["executorch", "cuda", "cpp", "planned", "unplanned", "failure"]
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
# A planned and an unplanned program come from one lowering.

from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig


class Pointwise(torch.nn.Module):
    def forward(self, x):
        return torch.relu(2 * x + 1)


model = Pointwise()
x = torch.ones(4, 64)
exported = torch.export.export(model, (x,))
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
# The caller loads a program anew for each mistake, and prints what each step returns.
#
# .. literalinclude:: /../gallery/cpp/refused/main.cpp
#    :language: cpp
#
# .. literalinclude:: /../gallery/cpp/refused/CMakeLists.txt
#    :language: cmake

import executorch

build = work / "build"
for command in (
    [cmake, "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={executorch.__path__[0]}"],
    [cmake, "--build", build],
):
    step = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert step.returncode == 0, step.stdout + step.stderr

caller = subprocess.run(
    [
        build / "caller",
        work / "planned" / "model.pte",
        work / "unplanned" / "model.pte",
        work / "unplanned" / "aoti_cuda_blob.ptd",
    ],
    capture_output=True,
    text=True,
    timeout=60,
)
print(caller.stdout)
assert caller.returncode == 0, caller.stdout + caller.stderr
expected = f"{model(x)[0, 0].item():g}"


def find(pattern, text):
    match = re.search(pattern, text)
    assert match, text
    return match.group(1)


# %%
# ``share_memory_arenas`` with planned device memory
# --------------------------------------------------
#
# ``Module`` can let its methods share their memory arenas, but not arenas on a device. Loading a
# planned program that way fails. An unplanned program asks for none there, and runs.

arenas_error = find(r"shared arenas, planned: load (\w+)", caller.stdout)
arenas_message = find(r"(Device memory buffers are .*)", caller.stderr)
print(f"error {arenas_error}: {arenas_message}")
assert arenas_error == "0x10", caller.stdout
assert arenas_message == (
    "Device memory buffers are not yet compatible with share_memory_arenas. Please disable "
    "share_memory_arenas when using models with device-planned memory."
)
arenas_unplanned = find(r"shared arenas, unplanned: (.*)", caller.stdout)
assert arenas_unplanned == f"set_output 0x0, forward 0x0, result {expected}", caller.stderr

# %%
# A buffer that is too small
# --------------------------
#
# ``set_output`` compares the size of the tensor with that of the output as it is then. Where sizes
# are dynamic, that is the size of the last result: :doc:`/recipes/python/dynamic_shapes`.

small_error = find(r"half a buffer: set_output (\w+)", caller.stdout)
small_message = find(r"(buffer size: .*)", caller.stderr)
print(f"error {small_error}: {small_message}")
assert small_error == "0x12", caller.stdout
assert small_message == "buffer size: 512 is smaller then expected tensor size: 1024"

# %%
# Host memory
# -----------
#
# ``set_output`` takes host memory without an error. The delegate looks at the pointer when it
# executes the program, and refuses it there. Tensor 1 is the output, because the delegate counts
# its inputs first.

host_set_output, host_error = find(r"host memory: (.*)", caller.stdout).split(", ")
host_error = host_error.removeprefix("forward ")
host_message = find(r"(Tensor 1 has .*)", caller.stderr)
host_message = re.sub(r"pointer 0x[0-9a-f]+", "pointer 0x...", host_message)
print(f"{host_set_output}, then error {host_error}: {host_message}")
assert (host_set_output, host_error) == ("set_output 0x0", "0x12"), caller.stdout
assert host_message == (
    "Tensor 1 has device_type=CUDA but its data pointer 0x... is not backed by CUDA device memory "
    "(cudaPointerGetAttributes err=0, cudaMemoryType=0)."
)

# %%
# A wrong device label
# --------------------
#
# The caller's memory is on ``cuda:0``. Its tensors say ``cuda:1`` the first time. The second time
# they say nothing, which ``from_blob`` takes to mean the CPU. Both work: the label made no
# difference. This machine has one GPU, so no memory was on another one.

labels = {name: find(rf"{name}: (.*)", caller.stdout) for name in ("label cuda:1", "no label")}
for name, steps in labels.items():
    print(f"{name}: {steps}")
    assert steps == f"set_output 0x0, forward 0x0, result {expected}", (name, caller.stderr)

# %%
# What this recipe proves, as values that other pages quote.

facts = {
    "caller_output": caller.stdout.rstrip(),
    "arenas_error": arenas_error,
    "arenas_message": arenas_message,
    "arenas_unplanned": arenas_unplanned,
    "small_error": small_error,
    "small_message": small_message,
    "host_set_output": host_set_output,
    "host_error": host_error,
    "host_message": host_message,
    "label_cuda_1": labels["label cuda:1"],
    "no_label": labels["no label"],
}
