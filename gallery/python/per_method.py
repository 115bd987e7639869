"""
Mix methods with and without copies
===================================

One program has two methods. ``step`` keeps its tensors on the GPU, ``report`` takes and returns
host tensors. A dictionary by method name says which is which, and three mistakes are shown, two
of them silent.
"""

# sphinx_gallery_tags = ["executorch", "cuda", "python", "planned", "copies", "failure"]
# sphinx_gallery_thumbnail_path = "_static/shapes/planned.svg"

import copy
import shutil
import sys
import tempfile
import typing
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
}
if missing := [need for need, met in needs.items() if not met]:
    print(f"This recipe needs {' and '.join(missing)}.", file=sys.stderr)
    sys.exit(2)

# %%
# Lower both methods together
# ---------------------------

from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig


class Step(torch.nn.Module):
    def forward(self, x):
        return torch.relu(2 * x + 1)


class Report(torch.nn.Module):
    def forward(self, x):
        return x / (1 + x * x)


# [lower]
example_inputs = (torch.ones(4, 64),)
methods = {
    "step": torch.export.export(Step(), example_inputs),
    "report": torch.export.export(Report(), example_inputs),
}
lowered = to_edge_transform_and_lower(methods, partitioner=[CudaPartitioner([])])
# [/lower]

# %%
# Configure each by name
# ----------------------
#
# Both settings take a dictionary. A method that is not in it gets the default: copies, and memory
# for its input and output on the host.

# [config]
on_device = PropagateDeviceConfig(
    skip_h2d_for_method_inputs=True,
    skip_d2h_for_method_outputs=True,
)
plan_output = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=True)
config = ExecutorchBackendConfig(
    propagate_device_config={"step": on_device},
    memory_planning_pass={"step": plan_output},
)
program = copy.deepcopy(lowered).to_executorch(config)
# [/config]

# %%
# The emitted program says what each method does at its edges: which copy operators it has, where
# its input is, and whether it has memory for it.


def edges(program):
    found = {}
    for plan in program.executorch_program.execution_plan:
        tensor = plan.values[plan.inputs[0]].val
        info = tensor.extra_tensor_info
        found[plan.name] = {
            "copies": [one.name for one in plan.operators if one.name.startswith("et_copy::")],
            "input_on": info.device_type.name if info else "CPU",
            "input_planned": tensor.allocation_info is not None,
        }
    return found


resident = {"copies": [], "input_on": "CUDA", "input_planned": False}
default = {
    "copies": ["et_copy::_h2d_copy", "et_copy::_d2h_copy"],
    "input_on": "CPU",
    "input_planned": True,
}
for name, found in edges(program).items():
    print(f"{name}: {found}")
assert edges(program) == {"step": resident, "report": default}, edges(program)

# %%
# Call
# ----
#
# Both loaders call both methods. The values are compared with eager PyTorch in float64.

from executorch.extension.pybindings.portable_lib import _load_for_executorch
from executorch.runtime import Runtime

work = tempfile.TemporaryDirectory()
program_path, weights_path = f"{work.name}/model.pte", f"{work.name}/aoti_cuda_blob.ptd"
program.save(program_path)
program.write_tensor_data_to_file(work.name)

torch.manual_seed(0)
x = torch.randn(4, 64)
device_x = x.to("cuda")
tolerance = {"rtol": 1e-6, "atol": 1e-6}

# [call]
module = _load_for_executorch(program_path, weights_path)
stepped = module.run_method("step", [device_x])[0]
reported = module.run_method("report", [x])[0]
# [/call]
# [runtime]
loaded = Runtime.get().load_program(program_path, data_path=weights_path)
step, report = loaded.load_method("step"), loaded.load_method("report")
runtime_stepped = step.execute([device_x])[0]
runtime_reported = report.execute([x])[0]
# [/runtime]

for result in (stepped, runtime_stepped):
    assert result.device == device_x.device
    torch.testing.assert_close(result.cpu().double(), Step()(x.double()), **tolerance)
for result in (reported, runtime_reported):
    assert result.device == x.device
    torch.testing.assert_close(result.double(), Report()(x.double()), **tolerance)
print("step:", stepped.device, "report:", reported.device)

# %%
# Only ``report`` copies to and from the host.

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
    "step": count_copies(lambda: module.run_method("step", [device_x])),
    "report": count_copies(lambda: module.run_method("report", [x])),
}
for name, count in copies.items():
    print(f"{name}: {count}")
    wanted = 0 if name == "step" else 1
    assert count["HtoD"] == count["DtoH"] == wanted, copies

# %%
# A dictionary in a field
# -----------------------
#
# The fields of ``PropagateDeviceConfig`` are typed to take a dictionary as well. The exporter does
# not look into it: a dictionary that is not empty counts as true, for every method, whatever its
# values. ``report`` loses its copies too, and the default memory plan puts its input on the device:
# the program that ``planned_input_refused`` shows no caller can use.

hints = typing.get_type_hints(PropagateDeviceConfig)
assert dict in map(typing.get_origin, typing.get_args(hints["skip_h2d_for_method_inputs"]))

field_dictionary = ExecutorchBackendConfig(
    propagate_device_config=PropagateDeviceConfig(
        skip_h2d_for_method_inputs={"step": True, "report": False},
        skip_d2h_for_method_outputs={"step": True, "report": False},
    ),
    memory_planning_pass={"step": plan_output},
)
by_field = edges(copy.deepcopy(lowered).to_executorch(field_dictionary))
for name, found in by_field.items():
    print(f"{name}: {found}")
assert by_field == {"step": resident, "report": resident | {"input_planned": True}}, by_field

# %%
# A name with a typo
# ------------------
#
# A name that is no method is ignored, so ``step`` gets the default. ``lowered.methods`` has the
# names to check against.

misspelled = ExecutorchBackendConfig(
    propagate_device_config={"setp": on_device},
    memory_planning_pass={"setp": plan_output},
)
by_typo = edges(copy.deepcopy(lowered).to_executorch(misspelled))
for name, found in by_typo.items():
    print(f"{name}: {found}")
assert by_typo == {"step": default, "report": default}, by_typo

# [check]
unknown = set(misspelled.propagate_device_config) - lowered.methods
# [/check]
print("not a method:", *unknown)
assert unknown == {"setp"}

# %%
# Without device memory planning
# ------------------------------
#
# The third mistake is an error. ``enable_non_cpu_memory_planning`` is on by default. With it off,
# the exporter refuses a method that skips a copy.

without_planning = ExecutorchBackendConfig(
    propagate_device_config={"step": on_device},
    memory_planning_pass={"step": plan_output},
    enable_non_cpu_memory_planning=False,
)
try:
    copy.deepcopy(lowered).to_executorch(without_planning)
    message = "no error"
except ValueError as error:
    message = str(error)
print(message)
assert message == (
    "skip_h2d_for_method_inputs and skip_d2h_for_method_outputs are only meaningful when "
    "enable_non_cpu_memory_planning=True, since they control host/device copy insertion which "
    "only happens during device-aware memory planning. Set enable_non_cpu_memory_planning=True, "
    "or leave the skip options disabled."
)

# %%
# What this recipe proves, as values that other pages quote.

facts = {
    "step_device": str(stepped.device),
    "report_device": str(reported.device),
    "copies": copies,
    "edges": edges(program),
    "field_dictionary_edges": by_field,
    "misspelled_edges": by_typo,
    "without_planning_error": message,
    "tolerance": tolerance["atol"],
}
