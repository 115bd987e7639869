"""
Know how long a result lives
============================

A planned program has one buffer for its output. This recipe shows which results are copies of the
buffer and which are the buffer itself, what overwrites it, what frees it, and what a copy costs.
"""

# sphinx_gallery_tags = ["executorch", "cuda", "python", "planned", "lifetime", "cost"]
# sphinx_gallery_thumbnail_path = "_static/shapes/planned.svg"

import inspect
import json
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
script = Path(sys.argv[0]).resolve().with_suffix("") / "after_delete.py"
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
# The program is planned, and its batch is dynamic, so that one program takes every size that is
# measured here. Its output buffer has the size of the largest.

from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig


class Pointwise(torch.nn.Module):
    def forward(self, x):
        return torch.relu(2 * x + 1)


model = Pointwise()
columns, max_rows = 1024, 65536
rows = torch.export.Dim("rows", min=1, max=max_rows)
example_inputs = (torch.ones(max_rows, columns),)
exported = torch.export.export(model, example_inputs, dynamic_shapes=({0: rows},))
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
# Ask who owns a result
# ---------------------
#
# Memory that PyTorch owns is in PyTorch's own count. A result of ``forward`` is there: the bindings
# clone the output. With ``clone_outputs=False`` nothing is added, since the memory is the
# program's. ``Method.execute`` has no such argument, and always clones.

from executorch.extension.pybindings.portable_lib import _load_for_executorch
from executorch.runtime import Method, Runtime

module = _load_for_executorch(*paths)
loaded = Runtime.get().load_program(paths[0], data_path=paths[1])
method = loaded.load_method("forward")
torch.manual_seed(0)
x = torch.randn(2, 1024, columns).to("cuda")
expected = model(x.double())
tolerance = {"rtol": 1e-6, "atol": 1e-6}

calls = {
    "forward": lambda: module.forward([x[0]]),
    "forward_without_clone": lambda: module.forward([x[0]], clone_outputs=False),
    "execute": lambda: method.execute([x[0]]),
}
torch_owns = {}
for name, call in calls.items():
    before = torch.cuda.memory_allocated()
    result = call()[0]
    torch_owns[name] = torch.cuda.memory_allocated() - before
    assert result.device == x.device
    torch.testing.assert_close(result.double(), expected[0], **tolerance)
    print(f"{name}: {result.nbytes} bytes, {torch_owns[name]} of them PyTorch's")
    del result

size = x[0].nbytes
assert torch_owns == {"forward": size, "forward_without_clone": 0, "execute": size}
assert "clone_outputs" not in inspect.signature(Method.execute).parameters

# %%
# What overwrites it
# ------------------
#
# Every call of the module computes into the one buffer, with a clone or without. The result that
# was not cloned changes under its owner.

alias = module.forward([x[0]], clone_outputs=False)[0]
clone = module.forward([x[0]])[0]
torch.testing.assert_close(alias.double(), expected[0], **tolerance)

module.forward([x[1]])
torch.testing.assert_close(alias.double(), expected[1], **tolerance)
torch.testing.assert_close(clone.double(), expected[0], **tolerance)
overwritten = not torch.equal(alias, clone)
print("the alias has the second result, the clone has the first")

# %%
# Each loaded module has a buffer of its own, even when both come from one file.

other = _load_for_executorch(*paths)
other_alias = other.forward([x[0]], clone_outputs=False)[0]
assert other_alias.data_ptr() != alias.data_ptr()
torch.testing.assert_close(other_alias.double(), expected[0], **tolerance)
torch.testing.assert_close(alias.double(), expected[1], **tolerance)
print("two modules, two buffers")

# %%
# Keep it
# -------
#
# The first safe pattern is a copy. The default makes one of the whole output. Where a part is
# enough, clone the part.

# [keep]
kept = []
for part in x:
    result = module.forward([part], clone_outputs=False)[0]
    kept.append(result[:1].clone())
# [/keep]

for part, wanted in zip(kept, expected, strict=True):
    torch.testing.assert_close(part.double(), wanted[:1], **tolerance)
print("kept parts of two results:", [list(part.shape) for part in kept])

# %%
# Use it in time
# --------------
#
# The second safe pattern takes no copy: give all work that reads the result to the GPU before the
# next call. On PyTorch's default stream the order of the code is the order of the work.

# [use]
sums = []
for part in x:
    result = module.forward([part], clone_outputs=False)[0]
    sums.append(result.sum())
# [/use]

for total, wanted in zip(sums, expected, strict=True):
    torch.testing.assert_close(total.double(), wanted.sum(), rtol=1e-4, atol=0)
print("two sums, both right")

# %%
# When the module is deleted
# --------------------------
#
# The buffer goes with the module. ``after_delete.py`` keeps one result of each kind, deletes the
# module and the method, and asks the driver what each pointer leads to. It runs in a process of its
# own.
#
# .. literalinclude:: /../gallery/python/buffer_lifetime/after_delete.py

command = [sys.executable, script, *paths]
child = subprocess.run(command, capture_output=True, text=True, timeout=60)
lines = child.stdout.splitlines()
assert len(lines) >= 2, (child.returncode, child.stdout, child.stderr)
after_delete, reading = json.loads(lines[-2]), lines[-1]

for name in calls:
    before, after = after_delete["before"][name], after_delete["after"][name]
    print(f"{name}: device memory before the deletion: {before}, after it: {after}")
print("reading the alias:", reading)

assert after_delete["before"] == dict.fromkeys(calls, True), after_delete
assert after_delete["after"] == {
    "forward": True,
    "forward_without_clone": False,
    "execute": True,
}, after_delete
assert after_delete["clones_intact"], after_delete
assert after_delete["freed_bytes"] >= 4 * max_rows * columns, after_delete
assert reading == "CUDA error: invalid argument"

# %%
# What the clone costs
# --------------------
#
# Each time is the median of 30 calls after 5 to warm up. The recipe asserts nothing about times.

from functools import partial
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


costs = []
for label, number in {"4 KiB": 1, "4 MiB": 1024, "256 MiB": max_rows}.items():
    data = torch.randn(number, columns, device="cuda")
    cost = {
        "size": label,
        "bytes": data.nbytes,
        "with_clone_ms": milliseconds(partial(module.forward, [data])),
        "without_clone_ms": milliseconds(partial(module.forward, [data], clone_outputs=False)),
    }
    cost["clone_ms"] = cost["with_clone_ms"] - cost["without_clone_ms"]
    costs.append(cost)
    print(
        "{size}: {with_clone_ms:.3f} ms with the clone, {without_clone_ms:.3f} ms without".format(
            **cost
        )
    )

# %%
# What this recipe proves, as values that other pages quote.

facts = {
    "result_bytes": size,
    "torch_owns": torch_owns,
    "alias_overwritten": overwritten,
    "two_modules_two_buffers": other_alias.data_ptr() != alias.data_ptr(),
    "device_memory_before_delete": after_delete["before"],
    "device_memory_after_delete": after_delete["after"],
    "reading_after_delete": reading,
    "costs": costs,
    "calls_per_median": 30,
    "tolerance": tolerance["atol"],
}
