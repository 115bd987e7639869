"""
Plan no memory for the input
============================

Both ``skip`` flags with the default memory plan make a program that nobody can call. This recipe
shows why, and the setting that is missing.
"""

# sphinx_gallery_tags = ["executorch", "cuda", "python", "planned", "failure"]
# sphinx_gallery_companions = ["host_tensor_refused"]
# sphinx_gallery_thumbnail_path = "_static/shapes/planned_input.svg"

import copy
import json
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
script = Path(sys.argv[0]).resolve().with_name("host_tensor_refused") / "try_inputs.py"
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
# The default memory plan reserves memory for the input too. Since the delegate reads the input on
# the GPU, that memory is planned there. The second program has the missing setting,
# ``alloc_graph_input=False``. Both come from one lowering.

from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig


class Pointwise(torch.nn.Module):
    def forward(self, x):
        return torch.relu(2 * x + 1)


model = Pointwise()
exported = torch.export.export(model, (torch.ones(2, 3, 4, 4),))
lowered = to_edge_transform_and_lower(exported, partitioner=[CudaPartitioner([])])
work = tempfile.TemporaryDirectory()


def write_program(config, name):
    program = copy.deepcopy(lowered).to_executorch(config)
    folder = Path(work.name, name)
    folder.mkdir()
    program.save(f"{folder}/model.pte")
    program.write_tensor_data_to_file(folder)
    return program, (f"{folder}/model.pte", f"{folder}/aoti_cuda_blob.ptd")


skip_both = PropagateDeviceConfig(
    skip_h2d_for_method_inputs=True,
    skip_d2h_for_method_outputs=True,
)
# [wrong]
wrong = ExecutorchBackendConfig(propagate_device_config=skip_both)
# [/wrong]
# [right]
right = ExecutorchBackendConfig(
    propagate_device_config=skip_both,
    memory_planning_pass=MemoryPlanningPass(alloc_graph_input=False),
)
# [/right]
wrong_program, wrong_paths = write_program(wrong, "wrong")
right_program, right_paths = write_program(right, "right")

for name, program in {"wrong": wrong_program, "right": right_program}.items():
    (plan,) = program.executorch_program.execution_plan
    tensor = plan.values[plan.inputs[0]].val
    planned = tensor.allocation_info is not None
    device = tensor.extra_tensor_info.device_type.name
    print(f"{name}: input planned: {planned}, device: {device}")
    assert planned == (name == "wrong")
    assert device == "CUDA"

# %%
# Call the wrong one
# ------------------
#
# The runtime copies the caller's tensor into the planned memory, and knows only the copy from host
# to host. The destination is on the device, so it refuses, whatever the caller passes and through
# either loader. ``try_inputs.py`` makes the calls in a process of its own.

command = [sys.executable, script, *wrong_paths, "device", "host"]
child = subprocess.run(command, capture_output=True, text=True, timeout=60)
assert child.stdout, (child.returncode, child.stderr)
attempts = json.loads(child.stdout.splitlines()[-1])


def find(pattern, text):
    match = re.search(pattern, text)
    assert match, (text, child.stderr)
    return match.group(1)


errors, messages = {}, {}
for loader, tensors in attempts.items():
    for name, tried in tensors.items():
        message = find(r"(Planned-buffer copy .*)", tried["log"])
        assert messages.setdefault(name, message) == message, messages
        assert errors.setdefault(loader, tried["error"]) == tried["error"], errors

for lines in (errors, messages):
    for name, line in lines.items():
        print(f"{name}: {line}")

assert errors == {
    "_load_for_executorch": "Failed to execute method forward, error: 0x10",
    "Runtime.load_program": "method->set_inputs() for method 'forward' failed with error 0x10",
}, errors
refusal = (
    "Planned-buffer copy needs host memory on both sides: dst device 1, src device {}. Export with "
    "MemoryPlanningPass(alloc_graph_input=False) to share the caller's memory."
)
assert messages == {"device": refusal.format(1), "host": refusal.format(0)}, messages

# %%
# Call the right one
# ------------------
#
# The setting that the message names is all that differs.

from executorch.extension.pybindings.portable_lib import _load_for_executorch

torch.manual_seed(0)
x = torch.randn(2, 3, 4, 4).to("cuda")
module = _load_for_executorch(*right_paths)
result = module.forward([x])[0]
tolerance = {"rtol": 1e-6, "atol": 1e-6}
assert result.device == x.device
torch.testing.assert_close(result.double(), model(x.double()), **tolerance)
print("in:", x.device, "out:", result.device)

# %%
# What this recipe proves, as values that other pages quote.

facts = {
    "load_for_executorch_error": errors["_load_for_executorch"],
    "runtime_error": errors["Runtime.load_program"],
    "device_message": messages["device"],
    "host_message": messages["host"],
    "right_device": str(result.device),
    "tolerance": tolerance["atol"],
}
