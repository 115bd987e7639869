"""
What the copies cost, by size
=============================

The latency of one call from 1 KiB to 1 GiB, with the default copies, with one of them left out, and
with none. Copies through the host grow with the tensor. What is left without them is far less at
large sizes.
"""

# sphinx_gallery_tags = ["executorch", "cuda", "python", "copies", "cost"]
# sphinx_gallery_thumbnail_number = 1

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
    "Matplotlib (pip install matplotlib)": find_spec("matplotlib"),
}
if missing := [need for need, met in needs.items() if not met]:
    print(f"This recipe needs {' and '.join(missing)}.", file=sys.stderr)
    sys.exit(2)

# %%
# Export
# ------
#
# One lowering gives four programs, which differ in the copies that they keep. The batch is dynamic,
# one row is 1 KiB, and a program takes up to a million of them.
#
# With ``alloc_graph_input=False`` a program that copies its input to the device copies it from
# where the caller has it. The default has host memory for the input, and copies it there first.

import copy

from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig
from executorch.extension.pybindings.portable_lib import _load_for_executorch


class Pointwise(torch.nn.Module):
    def forward(self, x):
        return torch.relu(2 * x + 1)


model = Pointwise()
rows = torch.export.Dim("rows", min=1, max=2**20)
exported = torch.export.export(model, (torch.ones(2**14, 256),), dynamic_shapes=({0: rows},))
lowered = to_edge_transform_and_lower(exported, partitioner=[CudaPartitioner([])])


def skipping(*, h2d, d2h):
    return ExecutorchBackendConfig(
        propagate_device_config=PropagateDeviceConfig(
            skip_h2d_for_method_inputs=h2d,
            skip_d2h_for_method_outputs=d2h,
        ),
        memory_planning_pass=MemoryPlanningPass(
            alloc_graph_input=False,
            alloc_graph_output=True,
        ),
    )


configurations = {
    "default": ExecutorchBackendConfig(),
    "input_only": skipping(h2d=True, d2h=False),
    "output_only": skipping(h2d=False, d2h=True),
    "planned": skipping(h2d=True, d2h=True),
}
work = tempfile.TemporaryDirectory()
modules = {}
for name, configuration in configurations.items():
    folder = Path(work.name, name)
    folder.mkdir()
    program = copy.deepcopy(lowered).to_executorch(configuration)
    program.save(f"{folder}/model.pte")
    program.write_tensor_data_to_file(folder)
    modules[name] = _load_for_executorch(f"{folder}/model.pte", f"{folder}/aoti_cuda_blob.ptd")

# %%
# Six ways to call it, each with its input where the program expects it:


def calls(host, device):
    default, input_only, output_only, planned = (module.forward for module in modules.values())
    return {
        "default": lambda: default([host])[0],
        "input_only": lambda: input_only([device])[0],
        "output_only": lambda: output_only([host])[0],
        "planned": lambda: planned([device])[0],
        "planned_without_clone": lambda: planned([device], clone_outputs=False)[0],
        "eager": lambda: model(device),
    }


# %%
# Count the copies
# ----------------
#
# The profiler sees the copies of each call. Eager PyTorch on the device has none.

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile


def device_events(call):
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as run:
        call()
        torch.cuda.synchronize()
    return [event for event in run.events() if event.device_type == DeviceType.CUDA]


torch.manual_seed(0)
tolerance = {"rtol": 1e-6, "atol": 1e-6}
x = torch.randn(16, 256)
copies = {}
for name, call in calls(x, x.to("cuda")).items():
    torch.testing.assert_close(call().cpu().double(), model(x.double()), **tolerance)
    events = [event.name for event in device_events(call)]
    copies[name] = {
        kind: sum(event.startswith(f"Memcpy {kind}") for event in events)
        for kind in ("HtoD", "DtoH", "DtoD")
    }
    print(f"{name}: {copies[name]}")

through_host = {name: (count["HtoD"], count["DtoH"]) for name, count in copies.items()}
assert through_host == {
    "default": (1, 1),
    "input_only": (0, 1),
    "output_only": (1, 0),
    "planned": (0, 0),
    "planned_without_clone": (0, 0),
    "eager": (0, 0),
}, copies

# %%
# Measure
# -------
#
# Each time is the median of 30 calls after 3 to warm up, and each call ends when the device is
# done. All results are compared with eager PyTorch in float64.

from statistics import median
from time import perf_counter


def milliseconds(call):
    times = []
    for _ in range(33):
        torch.cuda.synchronize()
        start = perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(1000 * (perf_counter() - start))
    return median(times[3:])


sizes = {f"{4**power} KiB": 4**power for power in range(5)}
sizes |= {f"{4**power} MiB": 2**10 * 4**power for power in range(5)}
sizes |= {"1 GiB": 2**20}

costs = []
for size, number in sizes.items():
    device = torch.randn(number, 256, device="cuda")
    host = device.cpu()
    expected = model(device.double())
    cost = {"size": size, "bytes": host.nbytes}
    for name, call in calls(host, device).items():
        torch.testing.assert_close(call().to("cuda").double(), expected, **tolerance)
        cost[f"{name}_ms"] = milliseconds(call)
    costs.append(cost)

print("size:", ", ".join(copies))
for cost in costs:
    print(f"{cost['size']}:", ", ".join(f"{cost[f'{name}_ms']:.3f} ms" for name in copies))

largest = costs[-1]
assert largest["bytes"] == 2**30
for name in ("input_only", "output_only"):
    assert largest["default_ms"] > largest[f"{name}_ms"] > largest["planned_ms"], largest
assert largest["default_ms"] > 10 * largest["planned_ms"], largest

# %%
# The floor
# ---------
#
# A call should not be faster than its copies. The link's bandwidth is measured with pinned host
# memory, which was faster than pageable memory. The tensors above are in pageable memory. The
# bandwidth of the device is that of a copy within it.

device = torch.empty(2**28, dtype=torch.uint8, device="cuda")
other = torch.empty_like(device)
host = {
    "pageable": torch.zeros(2**28, dtype=torch.uint8),
    "pinned": torch.zeros(2**28, dtype=torch.uint8, pin_memory=True),
}
bandwidth = {"within_device_gb_per_s": lambda: other.copy_(device)}
for memory, tensor in host.items():
    bandwidth[f"{memory}_to_device_gb_per_s"] = lambda tensor=tensor: device.copy_(tensor)
    bandwidth[f"device_to_{memory}_gb_per_s"] = lambda tensor=tensor: tensor.copy_(device)
bandwidth = {name: device.nbytes / 1e6 / milliseconds(call) for name, call in bandwidth.items()}
for name, rate in bandwidth.items():
    print(f"{name.removesuffix('_gb_per_s')}: {rate:.1f} GB/s")
assert bandwidth["pinned_to_device_gb_per_s"] > bandwidth["pageable_to_device_gb_per_s"]
assert bandwidth["device_to_pinned_gb_per_s"] > bandwidth["device_to_pageable_gb_per_s"]


def floor_ms(nbytes, *rates):
    return sum(nbytes / 1e6 / bandwidth[f"{rate}_gb_per_s"] for rate in rates)


# %%
# Plot
# ----
#
# The dashed floor is that of a default call, which copies both ways. A call with one copy has about
# half of it.

import matplotlib.pyplot as plt

gray = "#7c7c7c"  # reads on light and on dark
style = dict.fromkeys(
    ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), gray
)
style |= dict.fromkeys(("figure.facecolor", "axes.facecolor"), "none")
lines = {
    "default": ("default copies", "o", "#d55e00"),
    "input_only": ("input on the device", "v", "#b8860b"),
    "output_only": ("output on the device", "^", "#b264a6"),
    "planned": ("both on the device", "s", "#1f83c4"),
    "planned_without_clone": ("both, without clone", "D", "#009e73"),
    "eager": ("eager PyTorch", "x", gray),
}
floors = {
    "default, over the link both ways": ("pinned_to_device", "device_to_pinned"),
    "one copy within the device": ("within_device",),
}

with plt.rc_context(style):
    figure, axes = plt.subplots(figsize=(8, 5.5), layout="constrained")
    nbytes = [cost["bytes"] for cost in costs]
    for name, (label, marker, color) in lines.items():
        values = [cost[f"{name}_ms"] for cost in costs]
        axes.loglog(nbytes, values, label=label, marker=marker, color=color, markersize=5)
    for (label, rates), dashes in zip(floors.items(), ("--", ":"), strict=True):
        values = [floor_ms(size, *rates) for size in nbytes]
        axes.loglog(nbytes, values, dashes, label=f"floor: {label}", color=gray, linewidth=1)
    axes.set_ylim(bottom=0.01)
    ticks = costs[::2]
    axes.set_xticks([cost["bytes"] for cost in ticks], [cost["size"] for cost in ticks])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("size of the input, and of the output")
    axes.set_ylabel("latency of one call, ms")
    axes.grid(color=gray, alpha=0.25)
    axes.legend(frameon=False)
    figure.suptitle(
        "Latency of one call, 1 KiB to 1 GiB: at large sizes copies through the\n"
        "host cost far more than the copies that are left on the device"
    )

# %%
# What is left
# ------------
#
# A planned call without clone launches a kernel, and copies the delegate's own result into the
# planned buffer. The profiler gives the time that each takes on the device.

shares = []
for cost in costs[-4:]:
    device = torch.randn(cost["bytes"] // 1024, 256, device="cuda")
    call = calls(None, device)["planned_without_clone"]
    call()
    events = device_events(lambda call=call: [call() for _ in range(5)])
    spent_ms = {"copy": [], "kernel": []}
    for event in events:
        kind = "copy" if event.name.startswith("Memcpy DtoD") else "kernel"
        spent_ms[kind].append(event.time_range.elapsed_us() / 1000)
    assert len(spent_ms["copy"]) == 5, [event.name for event in events]
    share = {
        "size": cost["size"],
        "bytes": cost["bytes"],
        "call_ms": cost["planned_without_clone_ms"],
        "copy_ms": sum(spent_ms["copy"]) / 5,
        "kernel_ms": sum(spent_ms["kernel"]) / 5,
    }
    share["kernels_per_call"] = len(spent_ms["kernel"]) / 5
    share["copy_ratio"] = share["copy_ms"] / share["call_ms"]
    shares.append(share)
    parts = ", ".join(f"{part} {share[f'{part}_ms']:.3f} ms" for part in ("copy", "kernel", "call"))
    print(f"{share['size']}: {parts}")

# %%
# What this recipe proves, as values that other pages quote.

facts = {
    "copies": copies,
    "costs": costs,
    "bandwidth": bandwidth,
    "delegate_copy": shares,
    "calls_per_median": 30,
    "tolerance": tolerance["atol"],
    "largest_cost_ratio": largest["default_ms"] / largest["planned_ms"],
}
