"""
See what the exporter writes
============================

Four settings decide where a program's input and output are and who owns them: two ``skip`` flags
and two ``alloc`` flags. This recipe exports one model with all 16 combinations, and reads from each
program what is planned, on which device, and what is copied. It needs no GPU.
"""

# sphinx_gallery_tags = ["executorch", "anywhere", "planned", "unplanned", "copies"]

import sys
from importlib.util import find_spec

if not (find_spec("torch") and find_spec("executorch")):
    print("This recipe needs ExecuTorch (pip install executorch==1.5.1).", file=sys.stderr)
    sys.exit(2)
if not find_spec("matplotlib"):
    print("This recipe needs Matplotlib (pip install matplotlib).", file=sys.stderr)
    sys.exit(2)

# %%
# Stand in for the CUDA delegate
# ------------------------------
#
# The CUDA exporter compiles the model for a GPU. Planning and copies depend on one entry of what it
# hands on: ``target_device``. A partitioner that gives the whole model to an empty delegate with
# that entry needs no GPU. :doc:`/recipes/python/configuration_matrix` checks placement and copies
# of what the CUDA exporter writes.

import copy
import itertools

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import tag_constant_data
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig


class EmptyBackend(BackendDetails):
    @staticmethod
    def preprocess(exported_program, compile_specs):
        return PreprocessResult(processed_bytes=b"")


class TagOnlyPartitioner(Partitioner):
    def partition(self, exported_program):
        for node in exported_program.graph.nodes:
            if node.op == "call_function":
                node.meta["delegation_tag"] = "all"
        tag_constant_data(exported_program)
        spec = DelegationSpec("EmptyBackend", [CompileSpec("target_device", b"cuda:0")])
        return PartitionResult(exported_program, {"all": spec})


class Pointwise(torch.nn.Module):
    def forward(self, x):
        return torch.relu(2 * x + 1)


x = torch.ones(4, 64)
exported = torch.export.export(Pointwise(), (x,))
lowered = to_edge_transform_and_lower(exported, partitioner=[TagOnlyPartitioner()])

# %%
# Export with every setting
# -------------------------
#
# All 16 programs come from one lowering. ``to_executorch`` changes what it lowers, so each gets a
# copy.


# [export]
def emit(skip_h2d, skip_d2h, alloc_input, alloc_output):
    program = copy.deepcopy(lowered).to_executorch(
        ExecutorchBackendConfig(
            propagate_device_config=PropagateDeviceConfig(
                skip_h2d_for_method_inputs=skip_h2d,
                skip_d2h_for_method_outputs=skip_d2h,
            ),
            memory_planning_pass=MemoryPlanningPass(
                alloc_graph_input=alloc_input,
                alloc_graph_output=alloc_output,
            ),
        )
    )
    return program.executorch_program.execution_plan[0]


# [/export]

plans = {flags: emit(*flags) for flags in itertools.product((False, True), repeat=4)}
assert len(plans) == 16

# %%
# Read a program
# --------------
#
# A plan holds the method's values, the instructions that use them, and the arenas. A tensor with
# ``allocation_info`` has its place in an arena, so it is planned. The arenas of a device are listed
# in ``non_const_buffer_device``, all others are on the host. The table names the settings that are
# on.


def placement(tensor):
    extra = tensor.extra_tensor_info
    device = "device" if extra and extra.device_type.name == "CUDA" else "host"
    return ("planned, " if tensor.allocation_info else "unplanned, ") + device


def read(plan):
    (source,), (target,) = plan.inputs, plan.outputs
    copies, result = [], None
    for instruction in (each.instr_args for each in plan.chains[0].instructions):
        if hasattr(instruction, "delegate_index"):
            result = instruction.args[-1]
        else:
            name = plan.operators[instruction.op_index].name
            copies.append(name.removeprefix("et_copy::_").removesuffix("_copy"))
    on_device = {entry.buffer_idx for entry in plan.non_const_buffer_device or []}
    sizes = dict(enumerate(plan.non_const_buffer_sizes))
    return {
        "input": placement(plan.values[source].val),
        "output": placement(plan.values[target].val),
        "copies": ", ".join(copies) or "none",
        "delegate_result": "output" if result == target else placement(plan.values[result].val),
        "host_arena_bytes": sum(size for index, size in sizes.items() if index not in on_device),
        "device_arena_bytes": sum(size for index, size in sizes.items() if index in on_device),
    }


def which_are_on(flags, labels):
    on = [label for flag, label in zip(flags, labels, strict=True) if flag]
    return on[0] if len(on) == 1 else "both" if on else "none"


settings = []
names = (
    "skip_h2d_for_method_inputs",
    "skip_d2h_for_method_outputs",
    "alloc_graph_input",
    "alloc_graph_output",
)
for flags, plan in plans.items():
    summary = {
        "skip": which_are_on(flags[:2], ("h2d", "d2h")),
        "alloc": which_are_on(flags[2:], ("input", "output")),
    }
    settings.append(dict(zip(names, flags, strict=True)) | summary | read(plan))

print("skip  alloc   input              output             copies")
for row in settings:
    print("{skip:5} {alloc:7} {input:18} {output:18} {copies}".format(**row))

# %%
# What each setting does
# ----------------------
#
# - A ``skip`` flag moves its end of the program to the device, and drops the copy.
# - ``alloc_graph_input`` plans the input, wherever it is.
# - ``alloc_graph_output`` plans the output, but only an output on the device can be without: while
#   the copy to the host is kept, the output is planned even with ``False``.

for row in settings:
    skip_h2d, skip_d2h, alloc_input, alloc_output = (row[name] for name in names)
    kept = ["h2d"] * (not skip_h2d) + ["d2h"] * (not skip_d2h)
    assert row["copies"] == (", ".join(kept) or "none"), row
    assert row["input"].endswith("device" if skip_h2d else "host"), row
    assert row["output"].endswith("device" if skip_d2h else "host"), row
    assert row["input"].startswith("planned") == alloc_input, row
    assert row["output"].startswith("planned") == (alloc_output or not skip_d2h), row

# %%
# The trap
# --------
#
# With the copy to the host kept, the delegate's result is a tensor of its own, between delegate and
# copy. ``alloc_graph_output=False`` takes the memory of that one away. No caller can supply it: it
# is neither an input nor an output. Four of the 16 programs are like this.

for row in settings:
    if row["skip_d2h_for_method_outputs"]:
        assert row["delegate_result"] == "output", row
    elif row["alloc_graph_output"]:
        assert row["delegate_result"] == "planned, device", row
    else:
        assert row["delegate_result"] == "unplanned, device", row

trapped = [row for row in settings if row["delegate_result"] == "unplanned, device"]
assert len(trapped) == 4
print("the delegate's result has no memory:")
for row in trapped:
    print("    skip {skip}, alloc {alloc}".format(**row))

# %%
# What is reserved
# ----------------
#
# A tensor of this model has 1024 bytes. The default reserves three of them: one on the host, and
# two on the device. The unplanned shape reserves nothing.

by_name = {(row["skip"], row["alloc"]): row for row in settings}
default, planned = by_name["none", "both"], by_name["both", "output"]
unplanned = by_name["both", "none"]
for name, row in {"default": default, "planned": planned, "unplanned": unplanned}.items():
    print(f"{name}: host {row['host_arena_bytes']}, device {row['device_arena_bytes']} bytes")

assert x.nbytes == 1024
assert (default["host_arena_bytes"], default["device_arena_bytes"]) == (1024, 2048)
assert (planned["host_arena_bytes"], planned["device_arena_bytes"]) == (0, 1024)
assert (unplanned["host_arena_bytes"], unplanned["device_arena_bytes"]) == (0, 0)

# %%
# All 16 at a glance
# ------------------
#
# Each panel shows one program: the host above, the device below, and whose memory each tensor is
# in.

import matplotlib.pyplot as plt

HOST, DEVICE = 1, 0
PLANNED = {"facecolor": "#9ecae1", "edgecolor": "#222222"}
UNPLANNED = {"facecolor": "white", "edgecolor": "#222222"}
NOWHERE = {"facecolor": "white", "edgecolor": "#d62728", "linestyle": "--", "linewidth": 2}
DELEGATE = {"facecolor": "#cccccc", "edgecolor": "#222222"}


def draw(axes, row):
    source = DEVICE if row["input"].endswith("device") else HOST
    target = DEVICE if row["output"].endswith("device") else HOST
    boxes = [("input", 0, source, PLANNED if row["input"].startswith("planned") else UNPLANNED)]
    if "h2d" in row["copies"]:
        boxes.append(("copy", 1.1, DEVICE, PLANNED))
    boxes.append(("delegate", 2.4, DEVICE, DELEGATE))
    if "d2h" in row["copies"]:
        has_memory = row["delegate_result"].startswith("planned")
        boxes.append(("result", 3.7, DEVICE, PLANNED if has_memory else NOWHERE))
    boxes.append(("output", 4.8, target, PLANNED if row["output"].startswith("pl") else UNPLANNED))
    axes.axhspan(-0.6, 0.5, color="#eef6ee")
    for (_, left, before, _), (_, right, after, _) in itertools.pairwise(boxes):
        arrow = {"arrowstyle": "->", "color": "#444444"}
        axes.annotate("", (right, after), (left, before), arrowprops=arrow | {"shrinkB": 17})
    for label, left, height, style in boxes:
        box = {"boxstyle": "square" if style is DELEGATE else "round", **style}
        axes.text(left, height, label, ha="center", va="center", fontsize=10, bbox=box)
    axes.set(xlim=(-0.6, 5.4), ylim=(-0.6, 1.6), xticks=[], yticks=[])


figure, panels = plt.subplots(4, 4, figsize=(16, 8), layout="constrained")
for axes, row in zip(panels.flat, settings, strict=True):
    draw(axes, row)
for axes, row in zip(panels[0], settings[:4], strict=True):
    axes.set_title("alloc_graph_input={}\nalloc_graph_output={}".format(*map(row.get, names[2:])))
for axes, row in zip(panels[:, 0], settings[::4], strict=True):
    flags = "skip_h2d={}\nskip_d2h={}".format(*map(row.get, names[:2]))
    axes.set_ylabel(flags, rotation=0, ha="right", va="center", fontsize="large")
for axes in panels[:, -1]:
    axes.set_yticks([DEVICE, HOST], ["device", "host"])
    axes.yaxis.tick_right()
legend = {
    "planned: the program's": PLANNED,
    "unplanned: the caller's": UNPLANNED,
    "no memory": NOWHERE,
}
handles = [plt.Rectangle((0, 0), 1, 1, label=label, **style) for label, style in legend.items()]
figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize="large")
plt.show()

# %%
# What this recipe proves, as values that other pages quote.

facts = {"settings": settings, "tensor_bytes": x.nbytes, "trapped": len(trapped)}
