"""
Keep only the output on the GPU
===============================

The input comes from the host, and the GPU goes on with the result: the program takes a host tensor
and returns a CUDA tensor. One copy through the host is left, of the input.
"""

# sphinx_gallery_tags = ["executorch", "cuda", "python", "copies", "planned", "failure"]
# sphinx_gallery_companions = ["unplanned_from_python"]
# sphinx_gallery_thumbnail_path = "_static/shapes/output_only.svg"

import copy
import re
import shutil
import signal
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
script = Path(sys.argv[0]).resolve().with_name("unplanned_from_python") / "call.py"
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
# ``skip_d2h_for_method_outputs`` removes the copy of the output. With ``alloc_graph_output`` on,
# its default, the output is planned on the device. ``alloc_graph_input=False`` lets the copy read
# the caller's tensor.
#
# Two more programs come from the same lowering: one with the default memory plan, and one that
# lacks the ``skip`` flag and turns ``alloc_graph_output`` off.

from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig


class Pointwise(torch.nn.Module):
    def forward(self, x):
        return torch.relu(2 * x + 1)


model = Pointwise()
exported = torch.export.export(model, (torch.ones(4, 64),))
lowered = to_edge_transform_and_lower(exported, partitioner=[CudaPartitioner([])])
work = tempfile.TemporaryDirectory()


def write_program(config, name):
    program = copy.deepcopy(lowered).to_executorch(config)
    folder = Path(work.name, name)
    folder.mkdir()
    program.save(f"{folder}/model.pte")
    program.write_tensor_data_to_file(folder)
    return program, (f"{folder}/model.pte", f"{folder}/aoti_cuda_blob.ptd")


# [export]
config = ExecutorchBackendConfig(
    propagate_device_config=PropagateDeviceConfig(skip_d2h_for_method_outputs=True),
    memory_planning_pass=MemoryPlanningPass(alloc_graph_input=False),
)
# [/export]
program, paths = write_program(config, "output_only")

default_plan = ExecutorchBackendConfig(
    propagate_device_config=PropagateDeviceConfig(skip_d2h_for_method_outputs=True),
)
_, default_plan_paths = write_program(default_plan, "default_plan")

without_skip = ExecutorchBackendConfig(
    memory_planning_pass=MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False),
)
without_skip_program, without_skip_paths = write_program(without_skip, "without_skip")

# %%
# Call
# ----
#
# The result is a CUDA tensor, and its values are those of eager PyTorch in float64.

from executorch.extension.pybindings.portable_lib import _load_for_executorch

torch.manual_seed(0)
x = torch.randn(4, 64)
tolerance = {"rtol": 1e-6, "atol": 1e-6}

# [call]
module = _load_for_executorch(*paths)
result = module.forward([x])[0]
# [/call]
assert result.device == torch.device("cuda:0")
torch.testing.assert_close(result.cpu().double(), model(x.double()), **tolerance)
print("in:", x.device, "out:", result.device)

# %%
# Count the copies
# ----------------
#
# One copy comes from the host, none goes there.

from torch.profiler import ProfilerActivity, profile


def copy_names(call):
    with profile(activities=[ProfilerActivity.CUDA]) as run:
        call()
        torch.cuda.synchronize()
    return [event.name for event in run.events() if event.name.startswith("Memcpy")]


names = copy_names(lambda: module.forward([x]))
copies = {
    kind: sum(name.startswith(f"Memcpy {kind}") for name in names)
    for kind in ("HtoD", "DtoH", "DtoD")
}
print(copies)
assert copies["HtoD"] == 1, names
assert copies["DtoH"] == 0, names

# %%
# Leave the input to the caller
# -----------------------------
#
# With the default memory plan the program works as well, but it first copies the input to host
# memory of its own. The profiler shows it when the caller's tensor is pinned: with
# ``alloc_graph_input=False`` the copy to the device starts from the pinned memory.

default_plan_module = _load_for_executorch(*default_plan_paths)
pinned = x.pin_memory()
sources = {}
for name, loaded in {"caller": module, "default_plan": default_plan_module}.items():
    torch.testing.assert_close(loaded.forward([pinned])[0], result, rtol=0, atol=0)
    names = copy_names(lambda loaded=loaded: loaded.forward([pinned]))
    (sources[name],) = (event for event in names if event.startswith("Memcpy HtoD"))
    print(f"{name}: {sources[name]}")

assert sources == {
    "caller": "Memcpy HtoD (Pinned -> Device)",
    "default_plan": "Memcpy HtoD (Pageable -> Device)",
}, sources

# %%
# ``alloc_graph_output=False`` needs the ``skip`` flag
# ----------------------------------------------------
#
# With the flag, ``alloc_graph_output=False`` makes the output unplanned, for a C++ caller. Without
# the flag, the copy to the host is the output of the program, and what loses its memory is the
# delegate's result: the device memory holds the input alone.


def device_bytes(program):
    (plan,) = program.executorch_program.execution_plan
    devices = plan.non_const_buffer_device or []
    return sum(plan.non_const_buffer_sizes[device.buffer_idx] for device in devices)


print("with the flag:", device_bytes(program), "bytes of device memory")
print("without:", device_bytes(without_skip_program), "bytes")
assert device_bytes(program) == x.nbytes + result.nbytes
assert device_bytes(without_skip_program) == x.nbytes

# %%
# The delegate gets a null pointer for its result, and stops the process. The call is in a process
# of its own: ``call.py``.

command = [sys.executable, script, *without_skip_paths, "_load_for_executorch", "cpu"]
child = subprocess.run(command, capture_output=True, text=True, timeout=60)


def find(pattern, text):
    match = re.search(pattern, text)
    assert match, text
    return match.group(1)


assert child.returncode == -signal.SIGABRT, (child.returncode, child.stdout, child.stderr)
abort_signal = signal.Signals(-child.returncode).name
abort_message = find(r"(from_blob: .*)", child.stderr)
assert abort_message == "from_blob: data pointer cannot be nullptr"
print(abort_signal, abort_message, sep=": ")

# %%
# What this recipe proves, as values that other pages quote.

facts = {
    "input_device": str(x.device),
    "output_device": str(result.device),
    "copies": copies,
    "pinned_sources": sources,
    "tolerance": tolerance["atol"],
    "device_bytes": device_bytes(program),
    "device_bytes_without_skip": device_bytes(without_skip_program),
    "without_skip_signal": abort_signal,
    "without_skip_message": abort_message,
}
