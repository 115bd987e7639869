"""
Pass a tensor that the program cannot use
=========================================

A program whose input stays on the device takes a CUDA tensor of its own data type and shape, and
contiguous. This recipe passes others, and records each error. One is not refused: a channels-last
tensor is misread.
"""

# sphinx_gallery_tags = ["executorch", "cuda", "python", "planned", "failure"]
# sphinx_gallery_thumbnail_path = "_static/shapes/planned.svg"

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
script = Path(sys.argv[0]).resolve().with_suffix("") / "try_inputs.py"
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
# The program is planned, with a static shape.

from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig


class Pointwise(torch.nn.Module):
    def forward(self, x):
        return torch.relu(2 * x + 1)


model = Pointwise()
exported = torch.export.export(model, (torch.ones(2, 3, 4, 4),))
program = to_edge_transform_and_lower(exported, partitioner=[CudaPartitioner([])]).to_executorch(
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
work = tempfile.TemporaryDirectory()
paths = f"{work.name}/model.pte", f"{work.name}/aoti_cuda_blob.ptd"
program.save(paths[0])
program.write_tensor_data_to_file(work.name)

# %%
# Pass what is refused
# --------------------
#
# ``try_inputs.py`` passes each tensor through both loaders, in a process of its own. It collects
# the exception, and what the runtime logs.
#
# .. literalinclude:: /../gallery/python/host_tensor_refused/try_inputs.py

# How the log names the reason. Where it says nothing, the exception does.
reasons = {
    "host": r"(Tensor 0 has .*)",
    "pinned_host": r"(Tensor 0 has .*)",
    "float64": r"(Input 0 has .*)",
    "other_shape": r"(Attempted to .*)",
    "other_rank": r"(Attempted to .*)",
    "transposed": None,
    "meta": None,
}
command = [sys.executable, script, *paths, *reasons, "device"]
child = subprocess.run(command, capture_output=True, text=True, timeout=60)
assert child.stdout, (child.returncode, child.stderr)
attempts = json.loads(child.stdout.splitlines()[-1])
loaders = "_load_for_executorch", "Runtime.load_program"
assert list(attempts) == list(loaders)


def find(pattern, text):
    match = re.search(pattern, text)
    assert match, (text, child.stderr)
    return match.group(1)


refused = {}
for name, reason in reasons.items():
    errors = [attempts[loader][name]["error"] for loader in loaders]
    messages = [
        find(reason, attempts[loader][name]["log"]) if reason else attempts[loader][name]["error"]
        for loader in loaders
    ]
    messages = [re.sub(r"pointer 0x[0-9a-f]+", "pointer 0x...", message) for message in messages]
    assert messages[0] == messages[1], messages
    refused[name] = {
        "load_for_executorch_error": errors[0],
        "runtime_error": errors[1],
        "message": messages[0],
    }
    print(name, *dict.fromkeys([*errors, messages[0]]), sep="\n    ")

# %%
# A CUDA tensor after all of them is taken, by both: a refused call leaves the program usable.

for loader in loaders:
    after = attempts[loader]["device"]
    assert after["error"] is None, after
    assert after["right"], after
    print(f"{loader}: values right")

# %%
# Three places refuse. The bindings look at the layout and at the device type, and raise before the
# runtime logs anything. The runtime looks at the data type and the shape while the inputs are set.
# Only the delegate looks at the pointer, when the method executes. A host tensor gets as far as
# that, pinned or not: the last number in the message is CUDA's word for the memory, 0 for
# unregistered and 1 for pinned.

assert not any(
    attempts[loader][name]["log"] for loader in loaders for name in ("transposed", "meta")
)
errors = {name: entry["load_for_executorch_error"] for name, entry in refused.items()}
assert errors == {
    "host": "Failed to execute method forward, error: 0x12",
    "pinned_host": "Failed to execute method forward, error: 0x12",
    "float64": "Failed to execute method forward, error: 0x12",
    "other_shape": "Failed to execute method forward, error: 0x10",
    "other_rank": "Failed to execute method forward, error: 0x10",
    "transposed": refused["transposed"]["message"],
    "meta": refused["meta"]["message"],
}, errors
errors = {name: entry["runtime_error"] for name, entry in refused.items()}
assert errors == {
    "host": "method->execute() failed with error 0x12",
    "pinned_host": "method->execute() failed with error 0x12",
    "float64": "method->set_inputs() for method 'forward' failed with error 0x12",
    "other_shape": "method->set_inputs() for method 'forward' failed with error 0x10",
    "other_rank": "method->set_inputs() for method 'forward' failed with error 0x10",
    "transposed": refused["transposed"]["message"],
    "meta": refused["meta"]["message"],
}, errors
not_device = (
    "Tensor 0 has device_type=CUDA but its data pointer 0x... is not backed by CUDA device memory "
    "(cudaPointerGetAttributes err=0, cudaMemoryType={})."
)
messages = {name: entry["message"] for name, entry in refused.items()}
assert messages == {
    "host": not_device.format(0),
    "pinned_host": not_device.format(1),
    "float64": "Input 0 has unexpected scalar type: expected Float but was Double.",
    "other_shape": (
        "Attempted to resize a static tensor. "
        "Expected shape (2, 3, 4, 4), but received (4, 3, 4, 4)."
    ),
    "other_rank": "Attempted to change the tensor rank which is immutable: old=4, new=3",
    "transposed": "Input 0 for method forward should be contiguous or channels-last.",
    "meta": (
        "Input 0 for method forward is on device meta, "
        "and only CPU and CUDA tensors can be passed to a method."
    ),
}, messages

# %%
# What is not refused
# -------------------
#
# A four-dimensional tensor in channels-last layout passes every check. The program reads its memory
# as if it were contiguous, and returns values in the wrong places, without an error. Call
# ``contiguous()`` where the layout is not known.

from executorch.extension.pybindings.portable_lib import _load_for_executorch

module = _load_for_executorch(*paths)
torch.manual_seed(0)
x = torch.randn(2, 3, 4, 4).to("cuda")
channels_last = x.to(memory_format=torch.channels_last)
tolerance = {"rtol": 1e-6, "atol": 1e-6}

misread = module.forward([channels_last])[0]
in_memory_order = channels_last.permute(0, 2, 3, 1).reshape(x.shape)
torch.testing.assert_close(misread.double(), model(in_memory_order.double()), **tolerance)
assert not torch.allclose(misread.double(), model(x.double()), **tolerance)

# [contiguous]
result = module.forward([channels_last.contiguous()])[0]
# [/contiguous]
torch.testing.assert_close(result.double(), model(x.double()), **tolerance)

wrong = (misread != result).sum().item()
print(f"channels-last: {wrong} of {result.numel()} values wrong, contiguous(): all right")

# %%
# What this recipe proves, as values that other pages quote.

facts = {
    **refused,
    "usable_after_refusal": all(attempts[loader]["device"]["right"] for loader in loaders),
    "channels_last_error": None,
    "channels_last_wrong_values": wrong,
    "values": result.numel(),
    "tolerance": tolerance["atol"],
}
