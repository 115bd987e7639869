"""
Keep only the input on the GPU
==============================

The input is on the GPU already, and the result is needed on the host: the program reads the
caller's CUDA tensor and returns a host tensor. One copy through the host is left, of the output.
"""

# sphinx_gallery_tags = ["executorch", "cuda", "python", "copies", "failure"]
# sphinx_gallery_companions = ["unplanned_from_python"]
# sphinx_gallery_thumbnail_path = "_static/shapes/input_only.svg"

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
# ``skip_h2d_for_method_inputs`` removes the copy of the input, and ``alloc_graph_input=False`` lets
# the program read the caller's tensor. ``alloc_graph_output`` stays on, its default: the program
# then has memory for the delegate's result on the device, and for the copy of it on the host.
#
# The second program, with ``alloc_graph_output=False``, is the one to avoid.

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


# [export]
def write_program(lowered, folder, *, alloc_graph_output):
    program = copy.deepcopy(lowered).to_executorch(
        ExecutorchBackendConfig(
            propagate_device_config=PropagateDeviceConfig(skip_h2d_for_method_inputs=True),
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

work = tempfile.TemporaryDirectory()
right, wrong = Path(work.name, "right"), Path(work.name, "wrong")
right_program = write_program(lowered, right, alloc_graph_output=True)
wrong_program = write_program(lowered, wrong, alloc_graph_output=False)

# %%
# Call
# ----
#
# The result is a host tensor, and its values are those of eager PyTorch in float64.

from executorch.extension.pybindings.portable_lib import _load_for_executorch

torch.manual_seed(0)
x = torch.randn(4, 64).to("cuda")
tolerance = {"rtol": 1e-6, "atol": 1e-6}

# [call]
module = _load_for_executorch(f"{right}/model.pte", f"{right}/aoti_cuda_blob.ptd")
result = module.forward([x])[0]
# [/call]
assert result.device == torch.device("cpu")
torch.testing.assert_close(result.double(), model(x.cpu().double()), **tolerance)
print("in:", x.device, "out:", result.device)

# %%
# Count the copies
# ----------------
#
# One copy goes to the host, none comes from there.

from torch.profiler import ProfilerActivity, profile


def count_copies(call):
    with profile(activities=[ProfilerActivity.CUDA]) as run:
        call()
        torch.cuda.synchronize()
    names = [event.name for event in run.events()]
    return {
        kind: sum(name.startswith(f"Memcpy {kind}") for name in names)
        for kind in ("HtoD", "DtoH", "DtoD")
    }


copies = count_copies(lambda: module.forward([x]))
print(copies)
assert copies["HtoD"] == 0, copies
assert copies["DtoH"] == 1, copies

# %%
# Do not set ``alloc_graph_output=False``
# ---------------------------------------
#
# It reads like "leave the output to the caller", and does something else here. The output of the
# program is the host copy, and its memory stays planned. What loses its memory is the delegate's
# result: the wrong program plans no device memory at all.


def device_bytes(program):
    (plan,) = program.executorch_program.execution_plan
    devices = plan.non_const_buffer_device or []
    return sum(plan.non_const_buffer_sizes[device.buffer_idx] for device in devices)


for name, program in {"right": right_program, "wrong": wrong_program}.items():
    (plan,) = program.executorch_program.execution_plan
    output_planned = plan.values[plan.outputs[0]].val.allocation_info is not None
    print(f"{name}: output planned: {output_planned}, device memory: {device_bytes(program)} bytes")
    assert output_planned

assert device_bytes(right_program) == result.nbytes
assert device_bytes(wrong_program) == 0

# %%
# The delegate gets a null pointer for its result, and stops the process. The call is in a process
# of its own:
#
# .. literalinclude:: /../gallery/python/unplanned_from_python/call.py


def call(folder):
    paths = [folder / "model.pte", folder / "aoti_cuda_blob.ptd"]
    command = [sys.executable, script, *paths, "_load_for_executorch", "cuda"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def find(pattern, text):
    match = re.search(pattern, text)
    assert match, text
    return match.group(1)


child = call(wrong)
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
    "tolerance": tolerance["atol"],
    "device_bytes": device_bytes(right_program),
    "device_bytes_without_output": device_bytes(wrong_program),
    "without_output_signal": abort_signal,
    "without_output_message": abort_message,
}
