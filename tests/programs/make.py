"""Write the small programs beside this file, with the ExecuTorch that is installed.

    python tests/programs/make.py FOLDER

The README says with which versions that was done.
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import tag_constant_data
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

try:
    from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig
except ImportError:  # a version from before device support
    PropagateDeviceConfig = None


class StandIn(BackendDetails):
    @staticmethod
    def preprocess(exported_program, compile_specs):
        return PreprocessResult(processed_bytes=b"eight by")


class TagOnlyPartitioner(Partitioner):
    def partition(self, exported_program):
        for node in exported_program.graph.nodes:
            if node.op == "call_function":
                node.meta["delegation_tag"] = "all"
        tag_constant_data(exported_program)
        spec = DelegationSpec("StandIn", [CompileSpec("target_device", b"cuda:0")])
        return PartitionResult(exported_program, {"all": spec})


class Pointwise(torch.nn.Module):
    def forward(self, x):
        return torch.relu(2 * x + 1)


class Counter(torch.nn.Module):
    """Has a constant, and a buffer that changes."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("count", torch.ones(4))

    def forward(self, x):
        self.count.add_(1)
        return self.linear(x) + self.count


def lower(model, example, partitioner):
    exported = torch.export.export(model.eval(), (example,))
    return to_edge_transform_and_lower(exported, partitioner=partitioner)


def write(folder, name, lowered, **settings):
    program = copy.deepcopy(lowered).to_executorch(ExecutorchBackendConfig(**settings))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.pte").write_bytes(program.buffer)
    if hasattr(program, "write_tensor_data_to_file") and settings.get("external_constants"):
        program.write_tensor_data_to_file(str(folder))


def main(folder):
    torch.manual_seed(0)
    delegated = lower(Pointwise(), torch.ones(4, 64), [TagOnlyPartitioner()])
    write(folder, "default", delegated)
    # An initial value that is not zero is stored only where it is asked for.
    initial = [InitializedMutableBufferPass(["count"])]
    write(folder, "host", lower(Counter(), torch.ones(1, 4), None), passes=initial)
    linear = lower(torch.nn.Linear(4, 4), torch.ones(1, 4), None)
    write(folder, "external", linear, external_constants=True)
    if PropagateDeviceConfig:
        skips = PropagateDeviceConfig(
            skip_h2d_for_method_inputs=True, skip_d2h_for_method_outputs=True
        )
        for name, output in (("planned", True), ("unplanned", False)):
            plan = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=output)
            settings = {"propagate_device_config": skips, "memory_planning_pass": plan}
            write(folder, name, delegated, **settings)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
