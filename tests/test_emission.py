"""What the exporter writes for a device delegate: facts that pages state, on the CPU.

They are about the installed ExecuTorch. A version that changes one fails here, before anything
is recorded on a GPU.
"""

from __future__ import annotations

import copy
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import tag_constant_data
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig
from executorch.exir.schema import ExecutionPlan, Program

NBYTES = 4 * 64 * 4


class EmptyBackend(BackendDetails):
    """A delegate without content: what is around it is what these tests are about."""

    @staticmethod
    def preprocess(edge_program: Any, compile_specs: list[CompileSpec]) -> PreprocessResult:
        return PreprocessResult(processed_bytes=b"")


class TagOnly(Partitioner):
    """Gives every operator but sigmoid to a delegate on cuda:0, as the CUDA partitioner would."""

    def partition(self, exported_program: Any) -> PartitionResult:
        for node in exported_program.graph.nodes:
            if node.op == "call_function" and "sigmoid" not in str(node.target):
                node.meta["delegation_tag"] = "device"
        tag_constant_data(exported_program)
        spec = DelegationSpec(EmptyBackend.__name__, [CompileSpec("target_device", b"cuda:0")])
        return PartitionResult(exported_program, {"device": spec})


def pointwise(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(2 * x + 1)


class Model(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def lower(**methods: Callable[[torch.Tensor], Any]) -> EdgeProgramManager:
    x = (torch.ones(4, 64),)
    exported = {name: torch.export.export(Model(method), x) for name, method in methods.items()}
    return to_edge_transform_and_lower(
        exported, partitioner={name: [TagOnly()] for name in methods}
    )


def emit(
    lowered: EdgeProgramManager,
    skip_h2d: Any = False,
    skip_d2h: Any = False,
    alloc_input: bool = False,
    alloc_output: bool = True,
    **others: Any,
) -> Program:
    planning = MemoryPlanningPass(alloc_graph_input=alloc_input, alloc_graph_output=alloc_output)
    settings = {
        "propagate_device_config": device(skip_h2d, skip_d2h),
        "memory_planning_pass": planning,
    }
    config = ExecutorchBackendConfig(**(settings | others))
    return copy.deepcopy(lowered).to_executorch(config).executorch_program


def device(skip_h2d: Any, skip_d2h: Any) -> PropagateDeviceConfig:
    return PropagateDeviceConfig(
        skip_h2d_for_method_inputs=skip_h2d, skip_d2h_for_method_outputs=skip_d2h
    )


def placement(plan: ExecutionPlan, value: int) -> str:
    tensor: Any = plan.values[value].val
    extra = tensor.extra_tensor_info
    where = "device" if extra and extra.device_type.name == "CUDA" else "host"
    return f"{'planned' if tensor.allocation_info else 'unplanned'}, {where}"


def inputs(plan: ExecutionPlan) -> list[str]:
    return [placement(plan, value) for value in plan.inputs]


def outputs(plan: ExecutionPlan) -> list[str]:
    return [placement(plan, value) for value in plan.outputs]


def copies(plan: ExecutionPlan) -> list[str]:
    names = [operator.name for operator in plan.operators]
    return [name.removeprefix("et_copy::_") for name in names if name.startswith("et_copy")]


def device_arenas(plan: ExecutionPlan) -> list[int]:
    sizes = plan.non_const_buffer_sizes
    return [sizes[entry.buffer_idx] for entry in plan.non_const_buffer_device or []]


@pytest.fixture(scope="module")
def lowered() -> EdgeProgramManager:
    return lower(forward=pointwise)


# -- the 16 settings ---------------------------------------------------------------------

BOTH, UP, DOWN, NONE = ["h2d_copy", "d2h_copy"], ["h2d_copy"], ["d2h_copy"], []
#: skip_h2d, skip_d2h, alloc_input, alloc_output: the input, the output, the copies, the size of
#: the arena on the device in tensors, and whether the delegate's result has no memory.
SETTINGS = {
    (0, 0, 0, 0): ("unplanned, host", "planned, host", BOTH, 1, True),
    (0, 0, 0, 1): ("unplanned, host", "planned, host", BOTH, 2, False),
    (0, 0, 1, 0): ("planned, host", "planned, host", BOTH, 1, True),
    (0, 0, 1, 1): ("planned, host", "planned, host", BOTH, 2, False),
    (0, 1, 0, 0): ("unplanned, host", "unplanned, device", UP, 1, False),
    (0, 1, 0, 1): ("unplanned, host", "planned, device", UP, 2, False),
    (0, 1, 1, 0): ("planned, host", "unplanned, device", UP, 1, False),
    (0, 1, 1, 1): ("planned, host", "planned, device", UP, 2, False),
    (1, 0, 0, 0): ("unplanned, device", "planned, host", DOWN, 0, True),
    (1, 0, 0, 1): ("unplanned, device", "planned, host", DOWN, 1, False),
    (1, 0, 1, 0): ("planned, device", "planned, host", DOWN, 1, True),
    (1, 0, 1, 1): ("planned, device", "planned, host", DOWN, 2, False),
    (1, 1, 0, 0): ("unplanned, device", "unplanned, device", NONE, 0, False),
    (1, 1, 0, 1): ("unplanned, device", "planned, device", NONE, 1, False),
    (1, 1, 1, 0): ("planned, device", "unplanned, device", NONE, 1, False),
    (1, 1, 1, 1): ("planned, device", "planned, device", NONE, 2, False),
}


@pytest.mark.parametrize(("flags", "written"), SETTINGS.items(), ids=map(str, SETTINGS))
def test_each_setting_writes(
    lowered: EdgeProgramManager,
    flags: tuple[int, ...],
    written: tuple[str, str, list[str], int, bool],
) -> None:
    source, target, kept, on_device, trap = written
    (plan,) = emit(lowered, *map(bool, flags)).execution_plan
    assert (inputs(plan), outputs(plan), copies(plan)) == ([source], [target], kept)
    assert sum(device_arenas(plan)) == on_device * NBYTES
    calls: list[Any] = [each.instr_args for each in plan.chains[0].instructions]
    (delegate,) = (call for call in calls if hasattr(call, "delegate_index"))
    result = delegate.args[-1]
    assert (result in plan.outputs) == bool(flags[1])
    assert (result not in plan.outputs and "unplanned" in placement(plan, result)) == trap


def test_the_default_keeps_both_copies_and_plans_both_ends(lowered: EdgeProgramManager) -> None:
    plan = copy.deepcopy(lowered).to_executorch().executorch_program.execution_plan[0]
    assert (inputs(plan), outputs(plan)) == (["planned, host"], ["planned, host"])
    assert copies(plan) == BOTH


# -- device planning ---------------------------------------------------------------------

SKIPS = {"h2d": (True, False), "d2h": (False, True), "both": (True, True)}


@pytest.mark.parametrize("skips", SKIPS.values(), ids=SKIPS)
def test_a_skip_without_device_planning_is_an_error(
    lowered: EdgeProgramManager, skips: tuple[bool, bool]
) -> None:
    with pytest.raises(ValueError, match="only meaningful when enable_non_cpu_memory_planning="):
        emit(lowered, *skips, enable_non_cpu_memory_planning=False)


def test_device_planning_is_on_by_default() -> None:
    assert ExecutorchBackendConfig().enable_non_cpu_memory_planning is True


def test_without_device_planning_nothing_is_reserved_on_the_device(
    lowered: EdgeProgramManager,
) -> None:
    (plan,) = emit(lowered, enable_non_cpu_memory_planning=False).execution_plan
    assert (copies(plan), device_arenas(plan)) == ([], [])


# -- one configuration for each method ---------------------------------------------------


@pytest.fixture(scope="module")
def two_methods() -> EdgeProgramManager:
    return lower(forward=pointwise, other=pointwise)


ON = device(True, True)
STAYS, COPIED = ["unplanned, device"], ["unplanned, host"]
#: What is configured, and the inputs of the methods `forward` and `other`.
PER_METHOD = {
    "one for all": (ON, STAYS, STAYS),
    "a method in the outer dict": ({"forward": ON}, STAYS, COPIED),
    "both in the outer dict": ({"forward": device(False, False), "other": ON}, COPIED, STAYS),
    "a misspelled method is ignored": ({"forwards": ON}, COPIED, COPIED),
    "a dict in a field is on for all": (
        device({"forward": False}, {"forward": False}),
        STAYS,
        STAYS,
    ),
    "a dict in a field without the method too": (device({"none": False}, {}), STAYS, STAYS),
    "an empty dict in a field is off": (device({}, {}), COPIED, COPIED),
}


@pytest.mark.parametrize(("configured", "forward", "other"), PER_METHOD.values(), ids=PER_METHOD)
def test_methods_are_configured_by_the_outer_dict(
    two_methods: EdgeProgramManager,
    configured: PropagateDeviceConfig | dict[str, PropagateDeviceConfig],
    forward: list[str],
    other: list[str],
) -> None:
    plans = emit(two_methods, propagate_device_config=configured).execution_plan
    found = {plan.name: inputs(plan) for plan in plans}
    assert found == {"forward": forward, "other": other}


def test_a_method_without_a_memory_plan_of_its_own_has_the_default(
    two_methods: EdgeProgramManager,
) -> None:
    unplanned = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    config: dict[str, Any] = {
        "propagate_device_config": {"forward": ON},
        "memory_planning_pass": {"forward": unplanned},
    }
    plans = {plan.name: plan for plan in emit(two_methods, **config).execution_plan}
    assert outputs(plans["forward"]) == ["unplanned, device"]
    assert (inputs(plans["other"]), outputs(plans["other"])) == (
        ["planned, host"],
        ["planned, host"],
    )


# -- tensors with more than one user -----------------------------------------------------


def shared_with_host(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    result = pointwise(x)
    return result, torch.sigmoid(result)


def returned_twice(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    result = pointwise(x)
    return result, result


DEVICE, HOST = "planned, device", "planned, host"
#: With both copies skipped: the model, and where each of its outputs is.
OUTPUTS = {
    "two results of the delegate": (lambda x: (pointwise(x), x - 1), [DEVICE, DEVICE]),
    "one result returned twice": (returned_twice, [DEVICE, DEVICE]),
    "one of the delegate, one of the host": (
        lambda x: (pointwise(x), torch.sigmoid(x - 1)),
        [DEVICE, HOST],
    ),
    "one that the host uses too": (shared_with_host, [HOST, HOST]),
}


@pytest.mark.parametrize(("model", "places"), OUTPUTS.values(), ids=OUTPUTS)
def test_an_output_stays_on_the_device_where_only_the_caller_gets_it(
    model: Callable[[torch.Tensor], Any], places: list[str]
) -> None:
    (plan,) = emit(lower(forward=model), True, True).execution_plan
    assert outputs(plan) == places


TWO_USERS = {
    "the delegate and the host": lambda x: (pointwise(x), torch.sigmoid(x)),
    "the delegate and the caller": lambda x: (pointwise(x), x),
}


@pytest.mark.parametrize("model", TWO_USERS.values(), ids=TWO_USERS)
def test_an_input_with_two_users_cannot_skip_its_copy(
    model: Callable[[torch.Tensor], Any],
) -> None:
    lowered = lower(forward=model)
    with pytest.raises(RuntimeError, match="requires placeholder 'x' to have exactly one user"):
        emit(lowered, True, True)
    (plan,) = emit(lowered, False, True).execution_plan
    assert (inputs(plan), outputs(plan)[0]) == (["unplanned, host"], DEVICE)


def test_an_input_returned_unchanged_is_one_value(lowered: EdgeProgramManager) -> None:
    (plan,) = emit(lower(forward=TWO_USERS["the delegate and the caller"])).execution_plan
    assert plan.outputs[1] == plan.inputs[0]
    assert outputs(plan)[1] == "unplanned, host"


def test_an_input_that_the_delegate_uses_twice_has_one_user(lowered: EdgeProgramManager) -> None:
    (plan,) = emit(lower(forward=lambda x: x * torch.relu(x)), True, True).execution_plan
    assert (inputs(plan), outputs(plan)) == (["unplanned, device"], [DEVICE])


def test_the_python_bindings_hand_over_no_output() -> None:
    """Why an unplanned output is not for Python; 1.6 is said to change it."""
    from executorch.extension.pybindings import _C
    from executorch.runtime import Method

    loaders = [Method, *(it for it in vars(_C).values() if isinstance(it, type))]
    assert {"ExecuTorchModule", "ExecuTorchMethod"} <= {it.__name__ for it in loaders}
    assert [it for it in loaders if any("set_output" in name for name in dir(it))] == []


@pytest.mark.parametrize(
    ("name", "code"), {"InvalidArgument": 0x12, "NotSupported": 0x10, "InvalidState": 0x2}.items()
)
def test_an_error_has_the_name_that_pages_give_it(name: str, code: int) -> None:
    (package,) = importlib.util.find_spec("executorch").submodule_search_locations
    header = Path(package, "include/executorch/runtime/core/error.h").read_text()
    assert int(re.search(rf"\b{name} = (0x\w+),", header)[1], 16) == code
