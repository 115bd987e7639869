"""
Share a tensor between delegate, host and caller
================================================

Results that only the caller uses stay on the device. A result that an operator on the host reads
too comes back on the host, and the exporter refuses to leave out the copy of an input that is also
returned. This recipe shows where each result is, and how to write the model so that
all of them stay on the device.
"""

# sphinx_gallery_tags = ["executorch", "cuda", "python", "planned", "failure"]
# sphinx_gallery_thumbnail_path = "_static/shapes/input_only.svg"

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
# Share tensors
# -------------
#
# The model returns four tensors: a result, a result that another operator reads too, that
# operator's result, and its own input, unchanged.


# [shared]
class Shared(torch.nn.Module):
    def forward(self, x):
        result = torch.relu(2 * x + 1)
        reused = 3 * x - 1
        return result, reused, torch.sigmoid(reused), x


# [/shared]

# %%
# ``CudaPartitioner`` would give every operator of this model to the delegate. Here one of them,
# ``sigmoid``, stays on the host, as it would where another partitioner claims it.

import copy

from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.backend.partitioner import Partitioner
from executorch.exir.dialects._ops import ops
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig


# [partitioner]
class SigmoidOnHost(Partitioner):
    def __init__(self):
        super().__init__()
        self.cuda = CudaPartitioner([])

    def ops_to_not_decompose(self, exported):
        return self.cuda.ops_to_not_decompose(exported)

    def partition(self, exported):
        partition = self.cuda.partition(exported)
        for node in exported.graph.nodes:
            if node.target == ops.edge.aten.sigmoid.default:
                del node.meta["delegation_tag"]
        return partition


# [/partitioner]


def lower(model, partitioner):
    exported = torch.export.export(model, (torch.ones(4, 64),))
    return to_edge_transform_and_lower(exported, partitioner=[partitioner])


def write_program(lowered, folder, *, skip_h2d, alloc_graph_input):
    program = copy.deepcopy(lowered).to_executorch(
        ExecutorchBackendConfig(
            propagate_device_config=PropagateDeviceConfig(
                skip_h2d_for_method_inputs=skip_h2d,
                skip_d2h_for_method_outputs=True,
            ),
            memory_planning_pass=MemoryPlanningPass(
                alloc_graph_input=alloc_graph_input,
                alloc_graph_output=True,
            ),
        )
    )
    folder.mkdir()
    program.save(f"{folder}/model.pte")
    program.write_tensor_data_to_file(folder)


work = tempfile.TemporaryDirectory()
shared = lower(Shared(), SigmoidOnHost())

# %%
# Two users of one input
# ----------------------
#
# The input has two users, the delegate and the model's output. Its memory has to be the host's for
# one and the device's for the other, so the exporter refuses to leave out its copy. It is the same
# where the other user is an operator on the host.


class TwoUsers(torch.nn.Module):
    def forward(self, x):
        return torch.relu(2 * x + 1), torch.sigmoid(x)


def refusal(lowered):
    try:
        write_program(lowered, Path(work.name, "refused"), skip_h2d=True, alloc_graph_input=False)
    except RuntimeError as error:
        return str(error)


export_error = refusal(shared)
print(export_error)
assert refusal(lower(TwoUsers(), SigmoidOnHost())) == export_error
assert export_error == (
    "skip_h2d_for_method_inputs=True requires placeholder 'x' to have exactly one user, but it "
    "has 2 users. The placeholder is shared by multiple consumers, so its TensorSpec cannot be "
    "safely mutated in-place to the delegate's device. Either disable skip_h2d_for_method_inputs, "
    "or ensure the placeholder is used exclusively by this delegate."
), export_error

# %%
# With the input's copy kept, the program takes a host tensor. Only the first result is on the
# device: the exporter leaves out the copy to the host where all users of a result are outputs of
# the model. The second one has another user, on the host, and the copy that this user needs is the
# one that the caller gets too.

from executorch.extension.pybindings.portable_lib import _load_for_executorch
from executorch.runtime import Runtime


def load(folder):
    return _load_for_executorch(f"{folder}/model.pte", f"{folder}/aoti_cuda_blob.ptd")


def load_method(folder):
    program = Runtime.get().load_program(
        f"{folder}/model.pte", data_path=f"{folder}/aoti_cuda_blob.ptd"
    )
    return program.load_method("forward")


torch.manual_seed(0)
x = torch.randn(4, 64)
names = ["result", "reused", "sigmoid", "input"]
expected = Shared()(x.double())
tolerance = {"rtol": 1e-5, "atol": 1e-5}


def check(results, expected):
    for result, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(result.cpu().double(), wanted, **tolerance)


def devices(results):
    return {name: str(result.device) for name, result in zip(names, results, strict=True)}


host_input = Path(work.name, "host_input")
write_program(shared, host_input, skip_h2d=False, alloc_graph_input=True)
module, method = load(host_input), load_method(host_input)

shared_devices = {}
for loader, call in {"forward": module.forward, "execute": method.execute}.items():
    results = call([x])
    check(results, expected)
    shared_devices[loader] = devices(results)
    print(f"{loader}: {shared_devices[loader]}")

assert shared_devices["forward"] == shared_devices["execute"]
assert shared_devices["forward"] == {
    "result": "cuda:0",
    "reused": "cpu",
    "sigmoid": "cpu",
    "input": "cpu",
}, shared_devices

# %%
# An input returned without memory of its own
# -------------------------------------------
#
# The program above has memory for its input, from the default ``alloc_graph_input=True``. Without
# it, the returned input is an output that has no memory either. The bindings supply memory for such
# an output, and it is the input's too: one value of the program is both. That much is read.
# Through ``Method.execute`` the program then sees zeros in place of its input, without an error,
# and computes all its results from them. ``forward`` is right.

unplanned_input = Path(work.name, "unplanned_input")
write_program(shared, unplanned_input, skip_h2d=False, alloc_graph_input=False)

check(load(unplanned_input).forward([x]), expected)
from_zeros = load_method(unplanned_input).execute([x])
check(from_zeros, Shared()(torch.zeros_like(x).double()))
first_values = {name: result[0, 0].item() for name, result in zip(names, from_zeros, strict=True)}
print("execute:", {name: f"{value:.3f}" for name, value in first_values.items()})

# %%
# Keep everything on the device
# -----------------------------
#
# Two changes make the model device-resident. Every operator goes to the delegate, so results have
# no user on the host. The input is returned as a clone, which the delegate computes, so the
# delegate is its only user. Better still, do not return it: the caller has it already.


# [resident]
class Resident(torch.nn.Module):
    def forward(self, x):
        result = torch.relu(2 * x + 1)
        reused = 3 * x - 1
        return result, reused, torch.sigmoid(reused), x.clone()


# [/resident]

resident = Path(work.name, "resident")
lowered = lower(Resident(), CudaPartitioner([]))
write_program(lowered, resident, skip_h2d=True, alloc_graph_input=False)

device_input = x.to("cuda")
module, method = load(resident), load_method(resident)
resident_devices = {}
for loader, call in {"forward": module.forward, "execute": method.execute}.items():
    results = call([device_input])
    check(results, expected)
    resident_devices[loader] = devices(results)
    print(f"{loader}: {resident_devices[loader]}")
    assert set(resident_devices[loader].values()) == {"cuda:0"}, resident_devices
    assert results[3].data_ptr() != device_input.data_ptr()

# %%
# The profiler sees no copy to or from the host.

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


copies = count_copies(lambda: module.forward([device_input], clone_outputs=False))
print(copies)
assert copies["HtoD"] == copies["DtoH"] == 0

# %%
# What this recipe proves, as values that other pages quote.

facts = {
    "tolerance": tolerance["atol"],
    "two_users_error": export_error,
    "shared_devices": shared_devices["forward"],
    "resident_devices": resident_devices["forward"],
    "resident_copies": copies,
    "execute_unplanned_input": first_values,
}
