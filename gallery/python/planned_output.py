"""
Keep the output on the GPU from Python
======================================

Pass a CUDA tensor in and get a CUDA tensor back, without a copy through the host. The input stays
in the caller's memory. The output is planned: the program has a buffer for it on the device.
"""

# sphinx_gallery_tags = ["executorch", "cuda", "python", "planned"]
# sphinx_gallery_companions = ["unplanned_from_python"]
# sphinx_gallery_thumbnail_path = "_static/shapes/planned.svg"

import copy
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
# These settings make the shape:
#
# - The two ``skip`` flags remove the copies between host and device at the edges of the program.
# - ``alloc_graph_input=False`` lets the program read the caller's tensor in place.
# - ``alloc_graph_output=True`` gives the output a buffer. The delegate computes on the GPU, so
#   the buffer is planned there.
#
# The weights are written to ``aoti_cuda_blob.ptd``, whatever the model is called, so each export
# needs a folder of its own.

# [imports]
from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig

# [/imports]


# [export]
def export_planned(model, example_inputs, folder):
    exported = torch.export.export(model, example_inputs)
    lowered = to_edge_transform_and_lower(exported, partitioner=[CudaPartitioner([])])
    program = lowered.to_executorch(
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
    folder.mkdir()
    program.save(f"{folder}/model.pte")
    program.write_tensor_data_to_file(folder)
    return f"{folder}/model.pte", f"{folder}/aoti_cuda_blob.ptd"


# [/export]

# [program]
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))
model.eval().requires_grad_(False)
inputs = torch.randn(2, 4, 64)

work = tempfile.TemporaryDirectory()
program_path, weights_path = export_planned(model, (inputs[0],), Path(work.name, "mlp"))
# [/program]

# %%
# Call
# ----
#
# Both loaders of the Python runtime take the weights as a second file. The result is a CUDA
# tensor. It is compared with eager PyTorch in float64.

# [loaders]
from executorch.extension.pybindings.portable_lib import _load_for_executorch
from executorch.runtime import Runtime

# [/loaders]

x = inputs.to("cuda")
expected = copy.deepcopy(model).to("cuda").double()(x.double())
tolerance = {"rtol": 1e-4, "atol": 1e-4}

# [call]
module = _load_for_executorch(program_path, weights_path)
result = module.forward([x[0]])[0]
# [/call]
assert result.device == x.device
torch.testing.assert_close(result.double(), expected[0], **tolerance)
print("_load_for_executorch:", result.device, result.dtype)

# [runtime]
program = Runtime.get().load_program(program_path, data_path=weights_path)
method = program.load_method("forward")
result = method.execute([x[0]])[0]
# [/runtime]
assert result.device == x.device
torch.testing.assert_close(result.double(), expected[0], **tolerance)
print("Runtime.load_program:", result.device, result.dtype)

# %%
# Count the copies
# ----------------
#
# The profiler sees the program's copies. None of them is to or from the host. Of the copies within
# the device, one is the clone that the bindings return.

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


copies = {
    "forward": count_copies(lambda: module.forward([x[0]])),
    "forward_without_clone": count_copies(lambda: module.forward([x[0]], clone_outputs=False)),
    "execute": count_copies(lambda: method.execute([x[0]])),
}
for name, count in copies.items():
    print(f"{name}: {count}")
    assert count["HtoD"] == count["DtoH"] == 0
    assert count["DtoD"] > 0
assert copies["forward"]["DtoD"] == copies["forward_without_clone"]["DtoD"] + 1

# %%
# Know whose buffer it is
# -----------------------
#
# With ``clone_outputs=False`` the result is the program's own buffer, without a copy. The next
# execution overwrites it, so use the result before that.

first = module.forward([x[0]], clone_outputs=False)[0]
before = first.clone()
second = module.forward([x[1]], clone_outputs=False)[0]

assert first.data_ptr() == second.data_ptr()
torch.testing.assert_close(before.double(), expected[0], **tolerance)
torch.testing.assert_close(first.double(), expected[1], **tolerance)
print("the first result, then:", [f"{value:.3f}" for value in before[0, :3]])
print("the first result, now: ", [f"{value:.3f}" for value in first[0, :3]])

# %%
# By default each call returns a copy of its own. ``Method.execute`` always does.

results = [module.forward([x[0]])[0], module.forward([x[1]])[0]]
results += [method.execute([x[0]])[0], method.execute([x[1]])[0]]
assert len({result.data_ptr() for result in results}) == 4
for result, wanted in zip(results, [*expected, *expected], strict=True):
    torch.testing.assert_close(result.double(), wanted, **tolerance)
print("four calls, four buffers, all values right")

# %%
# Use another data type
# ---------------------
#
# The same export works for bfloat16. A pointwise model in bfloat16 rounds once, so its
# values are within 2\ :sup:`-8` of float64.


class Pointwise(torch.nn.Module):
    def forward(self, x):
        return torch.relu(2 * x + 1)


half_input = inputs[0].to(torch.bfloat16)
half_paths = export_planned(Pointwise(), (half_input,), Path(work.name, "pointwise"))
half_x = half_input.to("cuda")
half_module = _load_for_executorch(*half_paths)
half_result = half_module.forward([half_x])[0]

assert half_result.device == half_x.device
assert half_result.dtype == torch.bfloat16
half_expected = Pointwise()(half_x.double())
torch.testing.assert_close(half_result.double(), half_expected, rtol=2**-8, atol=0)
print("_load_for_executorch:", half_result.device, half_result.dtype)

# %%
# Pass a host tensor by mistake
# -----------------------------
#
# The program has no copy that could bring a host tensor to the device. The delegate looks at the
# pointer and refuses it. The failing call is in a process of its own: ``call.py``.

command = [sys.executable, script, program_path, weights_path, "_load_for_executorch", "cpu"]
child = subprocess.run(command, capture_output=True, text=True, timeout=60)


def find(pattern, text):
    match = re.search(pattern, text)
    assert match, text
    return match.group(1)


error = find(r"RuntimeError: (.*)", child.stderr)
message = find(r"(Tensor 0 has .*)", child.stderr)
message = re.sub(r"pointer 0x[0-9a-f]+", "pointer 0x...", message)
print(error)
print(message)
assert error == "Failed to execute method forward, error: 0x12"
assert "is not backed by CUDA device memory" in message

# %%
# What this recipe proves, as values that other pages quote.

facts = {
    "device": str(result.device),
    "copies": copies,
    "tolerance": tolerance["atol"],
    "max_error": (results[0].double() - expected[0]).abs().max().item(),
    "clone_outputs_false_same_buffer": first.data_ptr() == second.data_ptr(),
    "bfloat16_tolerance": 2**-8,
    "host_tensor_error": error,
    "host_tensor_message": message,
}
