"""
Hand the result to CuPy, JAX and PyTorch
========================================

The result is a PyTorch tensor in device memory. CuPy, JAX and PyTorch take it without a copy, by
DLPack or the CUDA array interface. Who may keep it, and until when, depends on whose memory it is:
a clone is the caller's, and the program's own buffer is overwritten by the next execution.
"""

# sphinx_gallery_tags = ["executorch", "cuda", "python", "planned", "interop"]
# sphinx_gallery_thumbnail_path = "_static/shapes/planned.svg"

import shutil
import sys
import tempfile
from importlib.util import find_spec

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
    "CuPy (pip install cupy-cuda13x)": find_spec("cupy"),
    "JAX (pip install jax[cuda13])": find_spec("jax"),
}
if missing := [need for need, met in needs.items() if not met]:
    print(f"This recipe needs {' and '.join(missing)}.", file=sys.stderr)
    sys.exit(2)

# %%
# Export
# ------
#
# The program is device-resident with a planned output.

from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig
from executorch.extension.pybindings.portable_lib import _load_for_executorch


class Pointwise(torch.nn.Module):
    def forward(self, x):
        return torch.relu(2 * x + 1)


exported = torch.export.export(Pointwise(), (torch.ones(4, 64),))
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
program.save(f"{work.name}/model.pte")
program.write_tensor_data_to_file(work.name)
module = _load_for_executorch(f"{work.name}/model.pte", f"{work.name}/aoti_cuda_blob.ptd")

torch.manual_seed(0)
x = torch.randn(2, 4, 64).to("cuda")
expected = Pointwise()(x.cpu().double())
tolerance = {"rtol": 1e-6, "atol": 1e-6}


def check(array, expected):
    torch.testing.assert_close(torch.as_tensor(array).double(), expected, **tolerance)


# %%
# To CuPy
# -------
#
# ``cupy.from_dlpack`` takes the tensor by DLPack, ``cupy.asarray`` by its
# ``__cuda_array_interface__``. Both arrays are at the tensor's own address.

import cupy

result = module.forward([x[0]])[0]

# [cupy]
by_dlpack = cupy.from_dlpack(result)
by_interface = cupy.asarray(result)
# [/cupy]

assert result.__cuda_array_interface__["data"][0] == result.data_ptr()
addresses = {by_dlpack.data.ptr, by_interface.data.ptr, result.data_ptr()}
assert len(addresses) == 1
check(cupy.asnumpy(by_dlpack), expected[0])
check(cupy.asnumpy(by_interface), expected[0])
print("CuPy by DLPack:", by_dlpack.shape, by_dlpack.dtype)
print("CuPy by the CUDA array interface:", by_interface.shape, by_interface.dtype)

# %%
# The profiler sees no copy of any kind.

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


copies = count_copies(lambda: (cupy.from_dlpack(result), cupy.asarray(result)))
print(copies)
assert set(copies.values()) == {0}

# %%
# From CuPy
# ---------
#
# A CuPy array becomes the program's input the same way. ``torch.from_dlpack`` and
# ``torch.as_tensor`` make a tensor of it without a copy.

source = cupy.asarray(x[1].cpu().numpy())

# [from_cupy]
from_dlpack = torch.from_dlpack(source)
from_interface = torch.as_tensor(source, device="cuda")
# [/from_cupy]

assert from_dlpack.data_ptr() == from_interface.data_ptr() == source.data.ptr
for tensor in (from_dlpack, from_interface):
    check(module.forward([tensor])[0].cpu(), expected[1])
print("program called with a CuPy array:", from_dlpack.device, from_interface.device)

# %%
# To PyTorch
# ----------
#
# The result is a PyTorch tensor already. ``torch.from_dlpack`` gives a second tensor on the same
# memory.

again = torch.from_dlpack(result)
assert again.data_ptr() == result.data_ptr()
check(again.cpu(), expected[0])
print("PyTorch by DLPack:", again.device)

# %%
# How long the array is valid
# ---------------------------
#
# By default ``forward`` returns a clone. An array made by DLPack keeps the clone's memory, even
# when the tensor itself is gone and the program runs again.

address = result.data_ptr()
del result, again, by_interface
for _ in range(3):
    other = module.forward([x[1]])[0]
    assert other.data_ptr() != address
    check(other.cpu(), expected[1])
check(cupy.asnumpy(by_dlpack), expected[0])
print("after three more calls, the array of a clone is what it was")

# %%
# With ``clone_outputs=False`` the array is the program's own buffer, and the next execution
# overwrites it. DLPack keeps the tensor alive, but the tensor does not own the memory.

shared = cupy.from_dlpack(module.forward([x[0]], clone_outputs=False)[0])
before = cupy.asnumpy(shared)
module.forward([x[1]], clone_outputs=False)
after = cupy.asnumpy(shared)
check(before, expected[0])
check(after, expected[1])
print("the array of the program's buffer, then:", [f"{value:.3f}" for value in before[0, :3]])
print("the array of the program's buffer, now: ", [f"{value:.3f}" for value in after[0, :3]])

# %%
# To JAX
# ------
#
# JAX arrays are immutable, so JAX gets a clone, never the program's own buffer. The setting below
# keeps JAX from reserving device memory for itself when it starts.

import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import jax
import numpy

result = module.forward([x[0]])[0]

# [jax]
jax_array = jax.dlpack.from_dlpack(result)
# [/jax]

(jax_device,) = jax_array.devices()
assert jax_device.platform == "gpu", (jax_device, jax.devices())
assert torch.from_dlpack(jax_array).data_ptr() == result.data_ptr()
check(numpy.array(jax_array), expected[0])
print("JAX by DLPack:", jax_array.shape, jax_array.dtype, jax_device.platform)

# %%
# What this recipe proves, as values that other pages quote.

facts = {
    "tolerance": tolerance["atol"],
    "copies": copies,
    "cupy_same_address": len(addresses) == 1,
    "program_buffer_overwritten": bool((before != after).any()),
    "jax_platform": jax_device.platform,
}
