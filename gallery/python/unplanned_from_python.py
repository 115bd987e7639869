"""
Call an unplanned program from Python
=====================================

A program without memory for its output fails when Python calls it. The C++ caller hands over
device memory. The Python bindings have no call for that, and supply host memory.
"""

# sphinx_gallery_tags = ["executorch", "cuda", "python", "unplanned", "failure"]
# sphinx_gallery_thumbnail_path = "_static/shapes/refused.svg"

import re
import shutil
import subprocess
import sys
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

backends = _get_registered_backend_names()
script = Path(sys.argv[0]).resolve().with_suffix("") / "call.py"
needs = {
    "a CUDA device": torch.cuda.is_available(),
    f"ExecuTorch's CUDA delegate (pip install {install})": "CudaBackend" in backends,
    "nvcc (from the CUDA toolkit)": shutil.which("nvcc"),
    f"the folder {script.parent.name} beside it (in the archive on its page)": script.is_file(),
}
if missing := [need for need, met in needs.items() if not met]:
    print(f"This recipe needs {' and '.join(missing)}.", file=sys.stderr)
    sys.exit(2)

# %%
# Export
# ------
#
# The ``skip`` flags keep the input and the output on the device. With both ``alloc`` flags off,
# the program reserves memory for neither, and the caller owns both. A planned program, which
# Python can call, differs in one word: ``alloc_graph_output=True``. Both come from one lowering.

import copy

from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig


class Pointwise(torch.nn.Module):
    def forward(self, x):
        return torch.relu(2 * x + 1)


exported = torch.export.export(Pointwise(), (torch.ones(4, 64),))
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

work = tempfile.TemporaryDirectory()
unplanned = Path(work.name, "unplanned")
planned = Path(work.name, "planned")
write_program(lowered, unplanned, alloc_graph_output=False)
write_program(lowered, planned, alloc_graph_output=True)

# %%
# Call
# ----
#
# ``call.py`` passes a CUDA tensor to a program, through one of the two loaders. It runs in a
# process of its own, so its failure ends there.
#
# .. literalinclude:: /../gallery/python/unplanned_from_python/call.py


# [call]
def call(folder, loader):
    paths = [folder / "model.pte", folder / "aoti_cuda_blob.ptd"]
    command = [sys.executable, script, *paths, loader, "cuda"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


# [/call]


def find(pattern, text):
    match = re.search(pattern, text)
    assert match, text
    return match.group(1)


errors, messages = {}, {}
for loader in ("_load_for_executorch", "Runtime.load_program"):
    child = call(unplanned, loader)
    errors[loader] = find(r"RuntimeError: (.*)", child.stderr)
    message = find(r"(Tensor 1 has .*)", child.stderr)
    messages[loader] = re.sub(r"pointer 0x[0-9a-f]+", "pointer 0x...", message)
    print(f"{loader}:\n    {errors[loader]}\n    {messages[loader]}")

assert errors == {
    "_load_for_executorch": "Failed to execute method forward, error: 0x12",
    "Runtime.load_program": "method->execute() failed with error 0x12",
}
assert set(messages.values()) == {
    "Tensor 1 has device_type=CUDA but its data pointer 0x... is not backed by CUDA device memory "
    "(cudaPointerGetAttributes err=0, cudaMemoryType=0)."
}

# %%
# Why
# ---
#
# The message is about tensor 1. The delegate counts its inputs, then its outputs, so with one
# input tensor 1 is the output. ExecuTorch's source says why: the bindings ask the program which
# outputs it has planned, and allocate the others themselves, in host memory. The delegate refuses
# the pointer.
#
# The planned program has its output on the device already, and both loaders call it.

for loader in ("_load_for_executorch", "Runtime.load_program"):
    child = call(planned, loader)
    assert child.stdout == "cuda:0\n", child.stderr
    print(f"{loader}: the planned program's result is on {child.stdout.strip()}")

# %%
# What this recipe proves, as values that other pages quote.

facts = {
    "load_for_executorch_error": errors["_load_for_executorch"],
    "runtime_error": errors["Runtime.load_program"],
    "message": messages["_load_for_executorch"],
    "refused_tensor": 1,
    "planned_device": "cuda:0",
}
