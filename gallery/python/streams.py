"""
Read the result on your own CUDA stream
=======================================

A program whose tensors stay on the device runs on a CUDA stream of its own, and ``forward`` returns
before the GPU is done. Work on PyTorch's default stream is in order with the program. A
``torch.cuda.Stream`` has to wait for it: this recipe shows what goes wrong otherwise, and the waits
that make it right.
"""

# sphinx_gallery_tags = ["executorch", "cuda", "python", "planned", "streams"]
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
# The program is device-resident with a planned output. It is loaded twice.

from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig
from executorch.extension.pybindings.portable_lib import _load_for_executorch


class Pointwise(torch.nn.Module):
    def forward(self, x):
        return torch.relu(2 * x + 1)


shape = (1024, 1024)
exported = torch.export.export(Pointwise(), (torch.ones(shape),))
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
work = tempfile.TemporaryDirectory()
paths = [str(Path(work.name, name)) for name in ("model.pte", "aoti_cuda_blob.ptd")]
program.save(paths[0])
program.write_tensor_data_to_file(work.name)
module = _load_for_executorch(*paths)
other_module = _load_for_executorch(*paths)

torch.manual_seed(0)
x = torch.randn(2, *shape).to("cuda")
expected = Pointwise()(x.double())


def is_result(tensor, number):
    return torch.allclose(tensor.double(), expected[number], rtol=1e-6, atol=1e-6)


for one in (module, other_module):  # the first call of each loads the method
    assert is_result(one.forward([x[0]])[0], 0)
    assert not is_result(one.forward([x[0]])[0], 1)

# %%
# Which stream
# ------------
#
# The profiler numbers the streams that kernels and copies run on. A loaded program has a stream of
# its own, whatever stream is current in PyTorch. The clone that ``forward`` returns by default is
# PyTorch's work: it runs on the current stream. A C++ caller can choose the program's stream:
# :doc:`../cpp/caller_stream`.

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile


def streams(call):
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as run:
        call()
        torch.cuda.synchronize()
    events = [event for event in run.events() if event.device_type == DeviceType.CUDA]
    return {event.device_resource_id for event in events}


def on(stream, call):
    with torch.cuda.stream(stream):
        return call()


side = torch.cuda.Stream()
default_stream = streams(lambda: x + 1)
side_stream = streams(lambda: on(side, lambda: x + 1))
program_stream = streams(lambda: module.forward([x[0]], clone_outputs=False))
other_stream = streams(lambda: other_module.forward([x[0]], clone_outputs=False))
found = (default_stream, side_stream, program_stream, other_stream)
assert [len(one) for one in found] == [1, 1, 1, 1], found
assert len(set().union(*found)) == 4, found

assert streams(lambda: module.forward([x[0]])) == program_stream | default_stream
in_side_context = streams(lambda: on(side, lambda: module.forward([x[0]], clone_outputs=False)))
assert in_side_context == program_stream, (in_side_context, found)
clone_in_side_context = streams(lambda: on(side, lambda: module.forward([x[0]])))
assert clone_in_side_context == program_stream | side_stream, (clone_in_side_context, found)
print("a stream each: PyTorch's default, a side stream, two loaded programs")
print("in a side stream's context: the program on its own stream, the clone on the side stream")

# %%
# When the result is there
# ------------------------
#
# To show what is not in order, the default stream gets long work: the program waits
# for that work before it starts, and ``forward`` returns long before. ``torch.cuda._sleep``
# spins on the GPU for a number of clock cycles.
#
# The result is the program's own buffer, which still holds what the execution before wrote. A side
# stream does not wait for the program, so here it reads that.

cycles = 200_000_000
read = torch.empty_like(x[0])

previous = module.forward([x[0]], clone_outputs=False)[0]
torch.cuda.synchronize()

# [wrong]
torch.cuda._sleep(cycles)
result = module.forward([x[1]], clone_outputs=False)[0]
returned_early = not torch.cuda.default_stream().query()
with torch.cuda.stream(side):  # wrong: nothing makes the side stream wait
    read.copy_(result)
# [/wrong]

torch.cuda.synchronize()
read_too_early = is_result(read, 0)
assert returned_early
assert read_too_early, ("new result", is_result(read, 1))
assert is_result(result, 1)
print("read without waiting: the result of the execution before")

# %%
# ``side.wait_stream(torch.cuda.default_stream())`` is the wait that it takes: the default stream is
# in order with the program. Nothing stalls the host.

# [wait]
torch.cuda._sleep(cycles)
result = module.forward([x[0]], clone_outputs=False)[0]
side.wait_stream(torch.cuda.default_stream())
with torch.cuda.stream(side):
    read.copy_(result)
# [/wait]

host_not_stalled = not side.query()
torch.cuda.synchronize()
assert host_not_stalled
assert is_result(read, 0), ("old result", is_result(read, 1))
print("read after wait_stream: right")

# %%
# ``torch.cuda.synchronize()`` does it for all streams, and stalls the host until the GPU is done.

# [synchronize]
torch.cuda._sleep(cycles)
result = module.forward([x[1]], clone_outputs=False)[0]
torch.cuda.synchronize()
with torch.cuda.stream(side):
    read.copy_(result)
# [/synchronize]

torch.cuda.synchronize()
assert is_result(read, 1)
print("read after synchronize: right")

# %%
# A call in a side stream's context
# ---------------------------------
#
# The clone runs on the current stream. In a side stream's context it does not wait for the program,
# so here the caller gets a clone of the old contents. Call programs in the context of the default
# stream.

torch.cuda._sleep(cycles)
with torch.cuda.stream(side):  # wrong: the clone runs on the side stream
    cloned = module.forward([x[0]])[0]
torch.cuda.synchronize()
cloned_too_early = is_result(cloned, 1)
assert cloned_too_early, ("new result", is_result(cloned, 0))

torch.cuda._sleep(cycles)
cloned = module.forward([x[1]])[0]
assert is_result(cloned, 1), ("old result", is_result(cloned, 0))
print("cloned on the side stream: the result of the execution before")
print("cloned on the default stream: right")

# %%
# An input from another stream
# ----------------------------
#
# It is the same the other way around. The program does not wait for a side stream that still writes
# its input, and computes from what was there before. Make the default stream wait for the side
# stream, and the program does, too.

source = x[0].clone()
torch.cuda.synchronize()
with torch.cuda.stream(side):
    torch.cuda._sleep(cycles)
    source.copy_(x[1])
result = module.forward([source])[0]  # wrong: nothing makes the program wait
torch.cuda.synchronize()
input_read_too_early = is_result(result, 0)
assert input_read_too_early, ("new input", is_result(result, 1))
print("input not waited for: the result of the input before")

source.copy_(x[0])
torch.cuda.synchronize()
# [input]
with torch.cuda.stream(side):
    torch.cuda._sleep(cycles)
    source.copy_(x[1])
torch.cuda.default_stream().wait_stream(side)
result = module.forward([source])[0]
# [/input]
assert is_result(result, 1), ("old input", is_result(result, 0))
print("input waited for: right")

# %%
# What this recipe proves, as values that other pages quote.

facts = {
    "streams": len(set().union(*found)),
    "forward_returns_early": returned_early,
    "read_too_early": read_too_early,
    "cloned_too_early": cloned_too_early,
    "input_read_too_early": input_read_too_early,
}
