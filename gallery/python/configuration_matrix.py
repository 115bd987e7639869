"""
Call every configuration
========================

Two ``skip`` flags and two ``alloc`` flags make 16 programs of one model. This recipe exports all of
them and calls each in ten ways: from Python through both loaders, from C++ with and without
``set_output``, with a tensor on the host and on the device. Some calls are right, some return an
error, some end the process.
"""

# sphinx_gallery_tags = ["executorch", "cuda", "cpp", "python", "failure", "alone"]
# sphinx_gallery_thumbnail_path = "_static/shapes/no_memory.svg"

import copy
import itertools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
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

cmake = shutil.which("cmake", path=sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"])
reply = subprocess.run([cmake, "--version"], capture_output=True, text=True).stdout if cmake else ""
version = tuple(int(number) for number in re.findall(r"\d+", reply))
backends = _get_registered_backend_names()
source = Path(sys.argv[0]).resolve().with_suffix("")
needs = {
    "a CUDA device": torch.cuda.is_available(),
    f"ExecuTorch's CUDA delegate (pip install {install})": "CudaBackend" in backends,
    "nvcc (from the CUDA toolkit)": shutil.which("nvcc"),
    "a C++ compiler": any(map(shutil.which, ("c++", "g++", "clang++"))),
    "CMake 3.28 or newer (pip install cmake)": version >= (3, 28),
    f"the folder {source.name} beside it (in the archive on its page)": source.is_dir(),
}
if missing := [need for need, met in needs.items() if not met]:
    print(f"This recipe needs {' and '.join(missing)}.", file=sys.stderr)
    sys.exit(2)

# %%
# Export 16 programs
# ------------------
#
# All come from one lowering. ``to_executorch`` changes what it lowers, so each gets a copy.

from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig


class Pointwise(torch.nn.Module):
    def forward(self, x):
        return torch.relu(2 * x + 1)


exported = torch.export.export(Pointwise(), (torch.ones(4, 64),))
lowered = to_edge_transform_and_lower(exported, partitioner=[CudaPartitioner([])])


# [export]
def write_program(folder, skip_h2d, skip_d2h, alloc_input, alloc_output):
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
    folder.mkdir(parents=True)
    program.save(f"{folder}/model.pte")
    program.write_tensor_data_to_file(folder)
    return program.executorch_program.execution_plan[0]


# [/export]

temporary = tempfile.TemporaryDirectory()
work = Path(temporary.name)
names = (
    "skip_h2d_for_method_inputs",
    "skip_d2h_for_method_outputs",
    "alloc_graph_input",
    "alloc_graph_output",
)
settings = [
    dict(zip(names, flags, strict=True)) for flags in itertools.product((False, True), repeat=4)
]
programs = [f"{number:02}" for number in range(len(settings))]
plans = [
    write_program(work / "programs" / name, *row.values())
    for name, row in zip(programs, settings, strict=True)
]

# %%
# They are what :doc:`/recipes/anywhere/emitted_program` shows without a GPU: the ``skip`` flags
# decide where the input and the output are, the ``alloc`` flags whether they are planned. The
# exception is an output on the host, which is always planned.


def placement(tensor):
    extra = tensor.extra_tensor_info
    device = "device" if extra and extra.device_type.name == "CUDA" else "host"
    return ("planned, " if tensor.allocation_info else "unplanned, ") + device


def which_are_on(flags, labels):
    on = [label for flag, label in zip(flags, labels, strict=True) if flag]
    return on[0] if len(on) == 1 else "both" if on else "none"


for row, plan in zip(settings, plans, strict=True):
    skip_h2d, skip_d2h, alloc_input, alloc_output = row.values()
    row["skip"] = which_are_on((skip_h2d, skip_d2h), ("h2d", "d2h"))
    row["alloc"] = which_are_on((alloc_input, alloc_output), ("input", "output"))
    row["input"] = placement(plan.values[plan.inputs[0]].val)
    row["output"] = placement(plan.values[plan.outputs[0]].val)
    operators = [operator.name for operator in plan.operators]
    kept = ["_h2d_copy"] * (not skip_h2d) + ["_d2h_copy"] * (not skip_d2h)
    assert operators == [f"et_copy::{name}" for name in kept], (row, operators)
    assert row["input"].endswith("device" if skip_h2d else "host"), row
    assert row["output"].endswith("device" if skip_d2h else "host"), row
    assert row["input"].startswith("planned") == alloc_input, row
    assert row["output"].startswith("planned") == (alloc_output or not skip_d2h), row

# %%
# Build the C++ caller
# --------------------
#
# It takes on its command line where the input is, and what it hands to ``set_output``.
#
# .. literalinclude:: /../gallery/python/configuration_matrix/main.cpp
#    :language: cpp

import executorch

build = work / "build"
for command in (
    [cmake, "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={executorch.__path__[0]}"],
    [cmake, "--build", build],
):
    step = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert step.returncode == 0, step.stdout + step.stderr

# %%
# Call
# ----
#
# Each of the 160 calls is in a process of its own with a time limit, so a crash costs nothing but
# itself. The Python caller forks them, so that the libraries are loaded once.
#
# .. literalinclude:: /../gallery/python/configuration_matrix/call.py

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core dumps of the calls that crash


def call_from_python():
    command = [sys.executable, source / "call.py", work / "programs"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=85)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def call_from_cpp(program, place, output):
    files = [work / "programs" / program / name for name in ("model.pte", "aoti_cuda_blob.ptd")]
    command = [build / "caller", *files, place, output]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    which = {"program": program, "caller": "Module", "input": place, "set_output": output}
    ended = {"status": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
    return which | ended


places, outputs = ("host", "device"), ("none", "host", "device")
with ThreadPoolExecutor(8) as pool:
    from_python = pool.submit(call_from_python)
    cells = itertools.product(programs, places, outputs)
    from_cpp = [pool.submit(call_from_cpp, *cell) for cell in cells]
    calls = from_python.result() + [call.result() for call in from_cpp]
assert len(calls) == 160, len(calls)

# %%
# Sort the outcomes
# -----------------
#
# A call is right, or it raises or returns an error code, or a signal ends its process. With a
# failure goes the first message about it in the log. The tables name the settings that are on.

MESSAGES = (
    r"Tensor \d+ has device_type=.*",
    r"Planned-buffer copy .*",
    r"Output \d+ is memory planned.*",
    r"from_blob: .*",
    r"cudaMemcpy \w+ failed.*",
)


def outcome(call):
    log = re.sub(r"0x[0-9a-f]{6,}", "0x...", call["stderr"])
    found = {}
    for line in call["stdout"].splitlines():
        if line.startswith("{"):
            found |= json.loads(line)
    if found:
        return found | {"text": f"{found['verdict']}, {found['memory']}"}
    if call["status"] < 0:
        found["verdict"] = found["text"] = signal.Signals(-call["status"]).name
    else:
        error = re.search(r"(?:RuntimeError|set_output|forward): .*", log)
        found["error"] = error.group() if error else log.rstrip().rpartition("\n")[2]
        code = re.search(r"error:? (0x[0-9a-f]+)", found["error"])
        found["verdict"] = found["text"] = code.group(1) if code else "error"
    messages = re.findall("|".join(MESSAGES), log)
    found["message"] = messages[0] if messages else ""
    if tensor := re.match(r"Tensor \d+", found["message"]):
        found["text"] += f", {tensor.group().lower()}"
    return found


columns = {
    ("_load_for_executorch", "host", "none"): "module_host",
    ("_load_for_executorch", "device", "none"): "module_device",
    ("Runtime.load_program", "host", "none"): "runtime_host",
    ("Runtime.load_program", "device", "none"): "runtime_device",
}
for place, output in itertools.product(places, outputs):
    columns["Module", place, output] = f"cpp_{place}_{output}"
for call in calls:
    column = columns[call["caller"], call["input"], call.get("set_output", "none")]
    settings[int(call["program"])][column] = outcome(call)


def show(title, wanted):
    print(f"{title}\n{'skip':5} {'alloc':7}" + "".join(f" {name:19}" for name in wanted))
    for row in settings:
        texts = "".join(f" {row[name]['text']:19}" for name in wanted)
        print(f"{row['skip']:5} {row['alloc']:7}{texts}".rstrip())
    print()


show("Python", [name for name in columns.values() if not name.startswith("cpp")])
show("C++, input on the host", [name for name in columns.values() if name.startswith("cpp_host")])
show("C++, input on the device", [name for name in columns.values() if name.startswith("cpp_dev")])

# %%
# The rules
# ---------
#
# Seven rules decide every call, in this order:
#
# 1. ``set_output`` on a planned output returns 0x2.
# 2. A planned input is filled with a host copy. Where the input or the tensor is on the device, the
#    call fails with 0x10.
# 3. A host tensor as an input on the device fails with 0x12: the delegate looks at its pointer.
# 4. A device tensor as an unplanned input on the host goes into the copy from host to device as it
#    is. The CUDA driver decides whether it takes that.
# 5. With the copy to the host kept and ``alloc_graph_output=False``, the delegate's result has no
#    memory, and the process dies.
# 6. An unplanned output needs memory on the device. From Python it has host memory and fails with
#    0x12, from C++ it has what ``set_output`` got. Without ``set_output`` the process dies.
# 7. Everything else is right.

DIES = ("SIGABRT", "SIGSEGV")
by_flags = {(row["skip"], row["alloc"]): row for row in settings}
# What the driver does with a device pointer where the copy from the host is kept.
driver = by_flags["none", "output"]["module_device"]
assert driver["text"] == "right, host", driver


def expected(row, column):
    given, _, output = column.partition("_")[2].partition("_")
    skip_h2d, skip_d2h, alloc_input, alloc_output = (row[name] for name in names)
    if output in places and row["output"].startswith("planned"):
        return ("0x2",)
    if alloc_input and (skip_h2d or given == "device"):
        return ("0x10",)
    if skip_h2d and given == "host":
        return ("0x12, tensor 0",)
    if not skip_d2h and not alloc_output:
        return DIES
    if skip_d2h and not alloc_output and output != "device":
        return DIES if output == "none" else ("0x12, tensor 1",)
    return ("right, device",) if skip_d2h else ("right, host",)


broken = [
    f"skip {row['skip']}, alloc {row['alloc']}, {column}: {row[column]}, not {wanted}"
    for row, column in itertools.product(settings, columns.values())
    if row[column]["text"] not in (wanted := expected(row, column))
]
assert not broken, "\n".join(broken)
print(f"{16 * len(columns)} calls, all as the rules say")
print(f"a device tensor where the copy to the device is kept: {driver['text']}")

# %%
# The two loaders of Python agree on every call. A result is in the caller's buffer where
# ``set_output`` was accepted, and in the program's otherwise.

for row in settings:
    assert row["module_host"]["text"] == row["runtime_host"]["text"], row
    assert row["module_device"]["text"] == row["runtime_device"]["text"], row
    for column in columns.values():
        if column.startswith("cpp") and row[column]["verdict"] == "right":
            handed_over = not column.endswith("none")
            assert row[column]["buffer"] == ("caller" if handed_over else "program"), row

# %%
# The calls from Python that are right were profiled. With both copies skipped, none runs.

for row, column in itertools.product(settings, columns.values()):
    if (copies := row[column].get("copies")) is not None:
        print(f"skip {row['skip']:4} alloc {row['alloc']:6} {column:14} {copies}")
        assert row["skip"] != "both" or copies["HtoD"] == copies["DtoH"] == 0, copies

default, planned = by_flags["none", "both"], by_flags["both", "output"]
for found in (default["module_host"], default["runtime_host"]):
    assert "copies" in found, found
    assert found["copies"]["HtoD"] == found["copies"]["DtoH"] == 1, found
for found in (planned["module_device"], planned["runtime_device"]):
    assert "copies" in found, found

# %%
# What this recipe proves, as values that other pages quote. ``errors`` picks one call for each
# failure.

errors = {
    "planned_output": by_flags["both", "output"]["cpp_device_device"],
    "planned_device_input": by_flags["both", "both"]["module_device"],
    "planned_device_input_host_tensor": by_flags["both", "both"]["module_host"],
    "planned_host_input_device_tensor": by_flags["none", "both"]["module_device"],
    "host_tensor": by_flags["both", "output"]["module_host"],
    "host_output_from_python": by_flags["both", "none"]["module_device"],
    "host_output_from_cpp": by_flags["both", "none"]["cpp_device_host"],
    "no_output": by_flags["both", "none"]["cpp_device_none"],
    "no_result_memory": by_flags["none", "none"]["module_host"],
    "runtime_set_inputs": by_flags["both", "both"]["runtime_device"],
    "runtime_execute": by_flags["both", "none"]["runtime_device"],
}
for name, found in errors.items():
    print(f"{name}:", *(found[key] for key in ("verdict", "error", "message") if key in found))
    assert found["message"], found

facts = {
    "settings": settings,
    "calls": len(calls),
    "driver": driver,
    "errors": errors,
}
