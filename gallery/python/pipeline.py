"""
Chain two programs on the device
================================

The result of one program is the input of the next. Where both are device-resident, it stays in
device memory all the way: the chain copies nothing through the host. With the default
export every link of the chain is a copy to the host and one back.
"""

# sphinx_gallery_tags = ["executorch", "cuda", "python", "planned", "copies", "cost"]
# sphinx_gallery_thumbnail_path = "_static/shapes/planned.svg"

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
# Two models are exported, each in two ways: device-resident with a planned output, and with the
# default copies. The programs' data has one file name, whatever the model, so each program has a
# folder of its own.

import copy

from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig
from executorch.extension.pybindings.portable_lib import _load_for_executorch


class First(torch.nn.Module):
    def forward(self, x):
        return torch.relu(2 * x + 1)


class Second(torch.nn.Module):
    def forward(self, x):
        return 3 - x * x


resident = ExecutorchBackendConfig(
    propagate_device_config=PropagateDeviceConfig(
        skip_h2d_for_method_inputs=True,
        skip_d2h_for_method_outputs=True,
    ),
    memory_planning_pass=MemoryPlanningPass(
        alloc_graph_input=False,
        alloc_graph_output=True,
    ),
)
shape = (4096, 1024)
work = tempfile.TemporaryDirectory()


def save_and_load(program, name):
    folder = Path(work.name, name)
    folder.mkdir()
    program.save(f"{folder}/model.pte")
    program.write_tensor_data_to_file(folder)
    return _load_for_executorch(f"{folder}/model.pte", f"{folder}/aoti_cuda_blob.ptd")


chains = {"default": [], "resident": []}
for number, model in enumerate((First(), Second()), 1):
    exported = torch.export.export(model, (torch.ones(shape),))
    lowered = to_edge_transform_and_lower(exported, partitioner=[CudaPartitioner([])])
    default_program = copy.deepcopy(lowered).to_executorch()
    resident_program = copy.deepcopy(lowered).to_executorch(resident)
    chains["default"].append(save_and_load(default_program, f"default_{number}"))
    chains["resident"].append(save_and_load(resident_program, f"resident_{number}"))

# %%
# Chain
# -----
#
# ``forward`` takes the result of the other program as it is. The values are compared with eager
# PyTorch in float64.

torch.manual_seed(0)
host_x = torch.randn(shape)
x = host_x.to("cuda")
expected = Second()(First()(x.double()))
tolerance = {"rtol": 1e-5, "atol": 1e-5}

# [chain]
first, second = chains["resident"]
between = first.forward([x])[0]
result = second.forward([between])[0]
# [/chain]

assert between.device == result.device == x.device
torch.testing.assert_close(result.double(), expected, **tolerance)
print("in:", x.device, "between:", between.device, "out:", result.device)

# %%
# Leave out the clone in between
# ------------------------------
#
# By default ``forward`` returns a clone. The second program can read the first one's buffer
# instead. Each program runs on a CUDA stream of its own, and nothing here makes the two streams
# wait for each other, so the first program has to be done before the second one starts.

# [without_clone]
between = first.forward([x], clone_outputs=False)[0]
torch.cuda.synchronize()
result = second.forward([between], clone_outputs=False)[0]
# [/without_clone]

torch.cuda.synchronize()
torch.testing.assert_close(result.double(), expected, **tolerance)
assert between.data_ptr() == first.forward([x], clone_outputs=False)[0].data_ptr()
print("values right, read from the first program's own buffer")

# %%
# The clone, too, puts the two in order: it runs on PyTorch's default stream, which waits for the
# first program, and which the second program waits for. The recipe :doc:`streams` shows these
# rules. The profiler sees three streams here.

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile


def device_events(call):
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as run:
        call()
        torch.cuda.synchronize()
    return [event for event in run.events() if event.device_type == DeviceType.CUDA]


def streams(call):
    return {event.device_resource_id for event in device_events(call)}


first_stream = streams(lambda: first.forward([x], clone_outputs=False))
second_stream = streams(lambda: second.forward([x], clone_outputs=False))
default_stream = streams(lambda: x + 1)
assert len(first_stream) == len(second_stream) == len(default_stream) == 1, (
    first_stream,
    second_stream,
    default_stream,
)
assert len(first_stream | second_stream | default_stream) == 3
assert streams(lambda: first.forward([x])) == first_stream | default_stream
print("streams:", len(first_stream | second_stream | default_stream))

# %%
# Count the copies of the whole chain
# -----------------------------------
#
# Each program with default copies has one copy to the device and one to the host, and its result
# goes through the host before the next program. The device-resident chain has none of them. What is
# left are copies within the device: the delegate's, of each result into the planned buffer, and the
# clones.


def default_chain():
    first, second = chains["default"]
    return second.forward(first.forward([host_x]))[0]


def resident_chain():
    first, second = chains["resident"]
    return second.forward(first.forward([x]))[0]


def chain_without_clones():
    first, second = chains["resident"]
    between = first.forward([x], clone_outputs=False)
    torch.cuda.synchronize()
    return second.forward(between, clone_outputs=False)[0]


def count_copies(call):
    names = [event.name for event in device_events(call)]
    return {
        kind: sum(name.startswith(f"Memcpy {kind}") for name in names)
        for kind in ("HtoD", "DtoH", "DtoD")
    }


calls = {
    "default": default_chain,
    "resident": resident_chain,
    "resident_without_clones": chain_without_clones,
}
copies = {}
for name, call in calls.items():
    torch.testing.assert_close(call().to("cuda").double(), expected, **tolerance)
    copies[name] = count_copies(call)
    print(f"{name}: {copies[name]}")

assert copies["default"]["HtoD"] == copies["default"]["DtoH"] == 2, copies
for name in ("resident", "resident_without_clones"):
    assert copies[name]["HtoD"] == copies[name]["DtoH"] == 0, copies
assert copies["resident"]["DtoD"] == copies["resident_without_clones"]["DtoD"] + 2, copies

# %%
# Measure
# -------
#
# The tensor has 16 MiB. Each time is the median of 30 runs of the whole chain after 5 to warm up.

from statistics import median
from time import perf_counter


def milliseconds(call):
    times = []
    for _ in range(35):
        torch.cuda.synchronize()
        start = perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(1000 * (perf_counter() - start))
    return median(times[5:])


times = {name: milliseconds(call) for name, call in calls.items()}
for name, time in times.items():
    print(f"{name}: {time:.3f} ms")
assert x.nbytes == 16 * 1024**2
assert times["default"] > times["resident"], times

# %%
# What this recipe proves, as values that other pages quote.

facts = {
    "tolerance": tolerance["atol"],
    "bytes": x.nbytes,
    "between_device": str(between.device),
    "copies": copies,
    "streams": len(first_stream | second_stream | default_stream),
    "runs_per_median": 30,
    "cost_ratio": times["default"] / times["resident"],
    **{f"{name}_ms": time for name, time in times.items()},
}
