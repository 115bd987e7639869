"""
Count what the default copies
=============================

An ordinary export takes host tensors and returns host tensors. The program copies its input to
the GPU and its output back in every call. This recipe counts the copies, and measures what they
cost for tensors of different size.
"""

# sphinx_gallery_tags = ["executorch", "cuda", "python", "copies", "cost"]
# sphinx_gallery_thumbnail_path = "_static/shapes/default.svg"

import shutil
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
needs = {
    "a CUDA device": torch.cuda.is_available(),
    f"ExecuTorch's CUDA delegate (pip install {install})": "CudaBackend" in backends,
    "nvcc (from the CUDA toolkit)": shutil.which("nvcc"),
}
if missing := [need for need, met in needs.items() if not met]:
    print(f"This recipe needs {' and '.join(missing)}.", file=sys.stderr)
    sys.exit(2)

# %%
# Export
# ------
#
# ``to_executorch()`` without a configuration keeps the copies. The batch is dynamic, so that one
# program takes every size that is measured here.

import copy

from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import to_edge_transform_and_lower


class Pointwise(torch.nn.Module):
    def forward(self, x):
        return torch.relu(2 * x + 1)


model = Pointwise()
columns, max_rows = 1024, 16384
rows = torch.export.Dim("rows", min=1, max=max_rows)

# [export]
example_inputs = (torch.ones(max_rows, columns),)
exported = torch.export.export(model, example_inputs, dynamic_shapes=({0: rows},))
lowered = to_edge_transform_and_lower(exported, partitioner=[CudaPartitioner([])])
program = copy.deepcopy(lowered).to_executorch()
# [/export]

# %%
# Call
# ----
#
# The program is written to a folder of its own, with its data beside it. The values are compared
# with eager PyTorch in float64.

from executorch.extension.pybindings.portable_lib import _load_for_executorch

work = tempfile.TemporaryDirectory()


def save_and_load(program, name):
    folder = Path(work.name, name)
    folder.mkdir()
    program.save(f"{folder}/model.pte")
    program.write_tensor_data_to_file(folder)
    return _load_for_executorch(f"{folder}/model.pte", f"{folder}/aoti_cuda_blob.ptd")


torch.manual_seed(0)
x = torch.randn(4, columns)

# [call]
module = save_and_load(program, "default")
result = module.forward([x])[0]
# [/call]

tolerance = {"rtol": 1e-6, "atol": 1e-6}
assert result.device == torch.device("cpu")
torch.testing.assert_close(result.double(), model(x.double()), **tolerance)
print("in:", x.device, "out:", result.device)

# %%
# Count the copies
# ----------------
#
# The profiler sees the program's copies: the input to the device, the output to the host, and one
# within the device.

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
assert copies["HtoD"] == 1
assert copies["DtoH"] == 1

# %%
# Measure the cost
# ----------------
#
# The same lowered model without the copies shows what they add: its planned program takes and
# returns CUDA tensors. Each time is the median of 30 calls after 5 to warm up.

from statistics import median
from time import perf_counter

from executorch.exir import ExecutorchBackendConfig
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig

planned_program = copy.deepcopy(lowered).to_executorch(
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
planned_module = save_and_load(planned_program, "planned")


def milliseconds(module, x):
    times = []
    for _ in range(35):
        torch.cuda.synchronize()
        start = perf_counter()
        module.forward([x])
        torch.cuda.synchronize()
        times.append(1000 * (perf_counter() - start))
    return median(times[5:])


costs = []
for size, number in {"4 KiB": 1, "4 MiB": 1024, "64 MiB": max_rows}.items():
    host = torch.randn(number, columns)
    device = host.to("cuda")
    planned_result = planned_module.forward([device])[0]
    assert planned_result.device == device.device
    torch.testing.assert_close(module.forward([host])[0], planned_result.cpu(), **tolerance)
    cost = {
        "size": size,
        "bytes": host.nbytes,
        "default_ms": milliseconds(module, host),
        "planned_ms": milliseconds(planned_module, device),
    }
    cost["cost_ratio"] = cost["default_ms"] / cost["planned_ms"]
    costs.append(cost)
    print("{size}: default {default_ms:.3f} ms, planned {planned_ms:.3f} ms".format(**cost))

assert costs[-1]["default_ms"] > costs[-1]["planned_ms"]

# %%
# What this recipe proves, as values that other pages quote.

facts = {
    "input_device": str(x.device),
    "output_device": str(result.device),
    "copies": copies,
    "costs": costs,
    "calls_per_median": 30,
    "tolerance": tolerance["atol"],
}
