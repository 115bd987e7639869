"""The command that reads any program: what it says, that it is right, and what bad files give."""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
import json
import os
import random
import re
import resource
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import executorch
import flatbuffers
import pytest
import torch
from conftest import REPOSITORY
from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir._serialize._program import PTEFile, serialize_pte_binary
from executorch.exir.schema import BackendDelegateInlineData
from programs import make, sparse
from recordings import recording
from test_emission import EmptyBackend, emit, lower, pointwise

SCRIPT = REPOSITORY / "gallery" / "anywhere" / "inspect_pte.py"
GENERATED = SCRIPT.with_suffix("") / "program_generated.py"
PROGRAMS = Path(__file__).parent / "programs"
SAMPLE = PROGRAMS / "1.4.1" / "default.pte"
GIB = 1 << 30


@pytest.fixture(scope="session")
def inspector() -> ModuleType:
    """The part of the script that is the command, without the recipe that follows."""
    command, marker, _ = SCRIPT.read_text(encoding="utf-8").partition("# [/command]")
    assert marker
    module = ModuleType("inspect_pte")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(SCRIPT)])
        patch.setattr(sys, "path", [*sys.path])
        exec(compile(command, SCRIPT, "exec"), module.__dict__)
    return module


@dataclass(frozen=True)
class Report:
    """How the command ended, and what it printed."""

    status: int
    out: str
    err: str


@pytest.fixture
def call(inspector: ModuleType) -> Callable[..., Report]:
    """Call the command in this process."""

    def called(*words: object) -> Report:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = inspector.main([str(word) for word in words])
        return Report(status, out.getvalue(), err.getvalue())

    return called


def save(path: Path, program: Any, **others: Any) -> Path:
    """Write an emitted program as a file."""
    options = {"extract_delegate_segments": True} | others
    named = options.pop("named_data", None)
    path.write_bytes(bytes(serialize_pte_binary(PTEFile(program, None, named), **options)))
    return path


@pytest.fixture(scope="session")
def lowered() -> Any:
    return lower(forward=pointwise)


#: skip_h2d, skip_d2h, alloc_input, alloc_output.
SHAPES = {
    "default": (False, False, True, True),
    "planned": (True, True, False, True),
    "unplanned": (True, True, False, False),
    "planned_input": (True, True, True, True),
    "no_memory": (False, False, True, False),
}


@pytest.fixture(scope="session")
def shapes(lowered: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One file for each of `SHAPES`."""
    folder = tmp_path_factory.mktemp("shapes")
    return {
        name: save(folder / f"{name}.pte", emit(lowered, *flags)) for name, flags in SHAPES.items()
    }


# -- the schema --------------------------------------------------------------------------


def test_the_generated_code_is_what_the_installed_schema_gives(tmp_path: Path) -> None:
    package = Path(executorch.__path__[0])
    compiler, schema = package / "data" / "bin" / "flatc", package / "schema" / "program.fbs"
    options = ["--python", "--gen-onefile", "--gen-all", "-o", str(tmp_path)]
    subprocess.run([compiler, *options, schema], check=True)
    assert (tmp_path / GENERATED.name).read_text() == GENERATED.read_text(encoding="utf-8")


# -- what it is called with, and how it ends ----------------------------------------------

ENDS = {
    ("planned",): 0,
    ("planned", "--caller", "python"): 0,
    ("planned", "--caller", "cpp"): 0,
    ("unplanned",): 0,
    ("unplanned", "--caller", "python"): 1,
    ("unplanned", "--caller", "cpp"): 0,
    ("planned_input",): 1,
    ("planned_input", "--caller", "cpp"): 1,
    ("planned_input", "--json"): 1,
    ("no_memory",): 1,
    ("planned", "--method", "forward"): 0,
    ("planned", "--method", "backward"): 2,
}


@pytest.mark.parametrize(("words", "status"), ENDS.items(), ids=map(" ".join, ENDS))
def test_the_exit_status_says_who_can_run_it(
    call: Callable[..., Report], shapes: dict[str, Path], words: tuple[str, ...], status: int
) -> None:
    name, *options = words
    assert call(shapes[name], *options).status == status


SHARE_INPUT = "export with MemoryPlanningPass(alloc_graph_input=False)"
PLAN_OUTPUT = "export with MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=True)"
FIXES = {
    ("unplanned", "python"): f"{PLAN_OUTPUT}, or call it from C++ with set_output",
    ("planned_input", "python"): SHARE_INPUT,
    ("planned_input", "cpp"): SHARE_INPUT,
    ("no_memory", "python"): PLAN_OUTPUT,
    ("no_memory", "cpp"): PLAN_OUTPUT,
}


@pytest.mark.parametrize(("case", "fix"), FIXES.items(), ids=map(" ".join, FIXES))
def test_a_program_that_cannot_run_ends_with_the_setting_that_fixes_it(
    call: Callable[..., Report], shapes: dict[str, Path], case: tuple[str, str], fix: str
) -> None:
    name, caller = case
    reason, last = call(shapes[name], "--caller", caller).out.splitlines()[-2:]
    assert " cannot run forward: " in reason
    assert last == f"To fix it, {fix}."


def test_one_of_several_methods_can_be_asked_for(
    call: Callable[..., Report], tmp_path: Path
) -> None:
    methods = lower(step=pointwise, report=pointwise)
    path = save(tmp_path / "two.pte", emit(methods, {"step": True}, {"step": True}))
    both = json.loads(call(path, "--json").out)["methods"]
    assert [method["name"] for method in both] == ["report", "step"]
    one = json.loads(call(path, "--method", "step", "--json").out)["methods"]
    assert [method["name"] for method in one] == ["step"]


def test_the_command_imports_neither_torch_nor_executorch() -> None:
    code = (
        "import runpy, sys\n"
        f"sys.argv = [{str(SCRIPT)!r}, {str(SAMPLE)!r}]\n"
        "try:\n"
        "    runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "finally:\n"
        "    print('imported', sorted({'torch', 'executorch'} & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "imported []")


# -- what it says ------------------------------------------------------------------------


def read(inspector: ModuleType, path: Path) -> Any:
    return inspector.read_program(path)["methods"][0]


def test_a_tensor_has_its_place(inspector: ModuleType, shapes: dict[str, Path]) -> None:
    method = read(inspector, shapes["default"])
    (source,), (target,) = method["inputs"], method["outputs"]
    known = {"dtype": "float32", "sizes": [4, 64], "dynamism": "static", "bytes": 1024}
    assert known.items() <= source.items()
    assert (source["device"], source["planned"], source["arena"]) == ("cpu", True, 1)
    assert (target["device"], target["planned"], target["offset"]) == ("cpu", True, 0)


def test_copies_say_between_what(inspector: ModuleType, shapes: dict[str, Path]) -> None:
    method = read(inspector, shapes["default"])
    up, down = method["copies"]
    assert (up["kind"], up["from"]) == ("h2d", "input 0")
    assert (down["kind"], down["to"]) == ("d2h", "output 0")
    inside = {it["name"]: it["device"] for it in method["inside"]}
    assert inside == {up["to"]: "cuda:0", down["from"]: "cuda:0"}


def test_arenas_have_size_and_device(inspector: ModuleType, shapes: dict[str, Path]) -> None:
    arenas = read(inspector, shapes["default"])["arenas"]
    assert [(it["bytes"], it["device"]) for it in arenas] == [(1024, "cpu"), (2048, "cuda:0")]


class Dynamic(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(2 * x + 1)


def test_a_bounded_tensor_has_the_size_of_its_bound(inspector: ModuleType, tmp_path: Path) -> None:
    from executorch.exir import to_edge_transform_and_lower

    shape = {"x": {0: torch.export.Dim("batch", min=1, max=8)}}
    exported = torch.export.export(Dynamic(), (torch.ones(4, 64),), dynamic_shapes=shape)
    path = save(tmp_path / "dynamic.pte", emit(to_edge_transform_and_lower(exported)))
    (source,) = read(inspector, path)["inputs"]
    assert (source["sizes"], source["dynamism"], source["bytes"]) == ([8, 64], "bounded", 2048)


def change(program: Any, **fields: Any) -> Any:
    """Set fields of the first method's first input."""
    plan = program.execution_plan[0]
    for name, value in fields.items():
        setattr(plan.values[plan.inputs[0]].val, name, value)
    return program


def test_an_unbounded_tensor_has_no_size(
    inspector: ModuleType, lowered: Any, tmp_path: Path
) -> None:
    from executorch.exir.schema import TensorShapeDynamism

    unbounded = change(emit(lowered), shape_dynamism=TensorShapeDynamism.DYNAMIC_UNBOUND)
    (source,) = read(inspector, save(tmp_path / "unbounded.pte", unbounded))["inputs"]
    assert (source["dynamism"], source["bytes"]) == ("unbounded", None)


def test_the_runtime_refuses_an_unbounded_tensor_as_the_inspector_says(
    inspector: ModuleType, tmp_path: Path
) -> None:
    from executorch.exir import to_edge_transform_and_lower
    from executorch.exir.schema import TensorShapeDynamism
    from executorch.extension.pybindings.portable_lib import _load_for_executorch

    exported = torch.export.export(Dynamic(), (torch.ones(4, 64),))
    program = emit(to_edge_transform_and_lower(exported))
    unbounded = change(program, shape_dynamism=TensorShapeDynamism.DYNAMIC_UNBOUND)
    path = save(tmp_path / "unbounded.pte", unbounded)
    (ends,) = {it["ends"] for it in read(inspector, path)["callers"].values()}
    with pytest.raises(RuntimeError, match=f"error: {ends}$"):
        _load_for_executorch(str(path)).forward([torch.ones(4, 64)])


@pytest.mark.parametrize("caller", ["python", "cpp"])
def test_no_caller_can_run_a_program_with_an_unbounded_tensor(
    call: Callable[..., Report], lowered: Any, tmp_path: Path, caller: str
) -> None:
    from executorch.exir.schema import TensorShapeDynamism

    program = change(emit(lowered), shape_dynamism=TensorShapeDynamism.DYNAMIC_UNBOUND)
    report = call(save(tmp_path / "unbounded.pte", program), "--caller", caller)
    assert report.status == 1
    assert "input 0 has no upper bound" in report.out
    assert report.out.splitlines()[-1].startswith("To fix it, export with an upper bound")


def test_an_output_that_is_an_input_is_said_to_be(inspector: ModuleType, tmp_path: Path) -> None:
    lowered = lower(forward=lambda x: (torch.relu(x), x))
    method = read(inspector, save(tmp_path / "same.pte", emit(lowered, alloc_output=False)))
    assert [it["same_as"] for it in method["outputs"]] == [None, "input 0"]


def test_a_number_in_a_message_counts_inputs_and_outputs_of_the_delegate(
    inspector: ModuleType, tmp_path: Path
) -> None:
    lowered = lower(forward=lambda x: (torch.relu(x), x + 1))
    method = read(inspector, save(tmp_path / "two.pte", emit(lowered, True, True)))
    assert [it["argument"] for it in method["inputs"] + method["outputs"]] == [0, 1, 2]


def test_the_keys_of_the_json_are_documented(
    call: Callable[..., Report], shapes: dict[str, Path]
) -> None:
    section = SCRIPT.read_text(encoding="utf-8").partition("\n# As JSON\n")[2]
    documented = set(re.findall(r"``(\w+)``", section.partition("# %%")[0]))

    def keys(value: Any) -> set[str]:
        if isinstance(value, dict):
            return set(value).union(*map(keys, value.values()))
        return set().union(*map(keys, value)) if isinstance(value, list) else set()

    found = {it for path in shapes.values() for it in keys(json.loads(call(path, "--json").out))}
    outcomes = {it for it in found if re.fullmatch(r"(python|cpp)_(host|device)\w*", it)}
    assert found - outcomes <= documented
    assert {"methods", "callers", "outcomes", "inside"} <= found


# -- where the bytes are -----------------------------------------------------------------

BLOB = b"x" * 1000


def with_blob(program: Any, blob: bytes) -> Any:
    program.backend_delegate_data = [BackendDelegateInlineData(blob)]
    return program


@pytest.mark.parametrize("apart", [True, False], ids=["in a segment", "among the tables"])
def test_a_delegate_has_its_size_and_share(
    inspector: ModuleType, lowered: Any, tmp_path: Path, apart: bool
) -> None:
    program = with_blob(emit(lowered, *SHAPES["planned"]), BLOB)
    path = save(tmp_path / "blob.pte", program, extract_delegate_segments=apart)
    (delegate,) = read(inspector, path)["delegates"]
    assert (delegate["id"], delegate["device"]) == (EmptyBackend.__name__, "cuda:0")
    assert (delegate["bytes"], delegate["blob"].startswith("segment")) == (1000, apart)
    assert delegate["share"] == round(1000 / path.stat().st_size, 4)


def test_the_data_that_a_delegate_names_counts_as_its_own(
    inspector: ModuleType, lowered: Any, tmp_path: Path
) -> None:
    store = NamedDataStore()
    store.add_named_data("a_so_blob", BLOB, 1, None)
    program = with_blob(emit(lowered), b"a_so_blob\nb_weights_blob")
    named = store.get_named_data_store_output()
    path = save(tmp_path / "named.pte", program, named_data=named)
    (delegate,) = read(inspector, path)["delegates"]
    assert delegate["bytes"] == 1000 + len(b"a_so_blob\nb_weights_blob")
    assert (delegate["named_data"], delegate["in_ptd"]) == (["a_so_blob"], ["b_weights_blob"])


def test_segments_are_named(inspector: ModuleType) -> None:
    segments = inspector.read_program(PROGRAMS / "1.4.1" / "host.pte")["segments"]
    holds = [it["holds"] for it in segments]
    assert holds == [["constants"], ["initial values of mutable tensors"]]


def test_weights_in_a_file_of_their_own_are_named(
    inspector: ModuleType, call: Callable[..., Report]
) -> None:
    path = PROGRAMS / "1.4.1" / "external.pte"
    assert read(inspector, path)["external"] == ["weight", "bias"]
    assert re.search(r"in a \.ptd file +weight\n", call(path).out)


def test_a_blob_of_4_gib_is_not_read(inspector: ModuleType, tmp_path: Path) -> None:
    inspector.CheckedTable.reads_left = 1000
    path = sparse.grow(tmp_path / "large.pte", 4 * GIB)
    tracemalloc.start()
    (delegate,) = read(inspector, path)["delegates"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (delegate["bytes"], delegate["share"]) == (4 * GIB, 1.0)
    assert peak < 1 << 20


def test_a_blob_of_2_gib_among_the_tables_is_not_read(
    inspector: ModuleType, lowered: Any, tmp_path: Path
) -> None:
    inspector.CheckedTable.reads_left = 10**6
    pte, builder = inspector.pte, flatbuffers.Builder()
    data = builder.CreateByteVector(b"")  # what is made first comes last in the file
    pte.BackendDelegateInlineDataStart(builder)
    pte.BackendDelegateInlineDataAddData(builder, data)
    blob = pte.BackendDelegateInlineDataEnd(builder)
    pte.ProgramStartBackendDelegateDataVector(builder, 1)
    builder.PrependUOffsetTRelative(blob)
    blobs = builder.EndVector()
    name, backend = builder.CreateString("forward"), builder.CreateString("Large")
    pte.BackendDelegateDataReferenceStart(builder)
    reference = pte.BackendDelegateDataReferenceEnd(builder)
    pte.BackendDelegateStart(builder)
    pte.BackendDelegateAddId(builder, backend)
    pte.BackendDelegateAddProcessed(builder, reference)
    delegate = pte.BackendDelegateEnd(builder)
    pte.ExecutionPlanStartDelegatesVector(builder, 1)
    builder.PrependUOffsetTRelative(delegate)
    delegates = builder.EndVector()
    pte.ExecutionPlanStart(builder)
    pte.ExecutionPlanAddName(builder, name)
    pte.ExecutionPlanAddDelegates(builder, delegates)
    plan = pte.ExecutionPlanEnd(builder)
    pte.ProgramStartExecutionPlanVector(builder, 1)
    builder.PrependUOffsetTRelative(plan)
    plans = builder.EndVector()
    pte.ProgramStart(builder)
    pte.ProgramAddExecutionPlan(builder, plans)
    pte.ProgramAddBackendDelegateData(builder, blobs)
    builder.Finish(pte.ProgramEnd(builder), b"ET12")
    made = builder.Output()
    path = tmp_path / "inline.pte"
    length = 2 * GIB - 4096
    at = pte.Program.GetRootAs(made).BackendDelegateData(0)._tab
    struct.pack_into("<I", made, at.Vector(at.Offset(4)) - 4, length)
    path.write_bytes(made)
    os.truncate(path, len(made) + length)
    (found,) = read(inspector, path)["delegates"]
    assert (found["bytes"], found["blob"]) == (length, "tables")


# -- other versions ----------------------------------------------------------------------


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What tests/programs/make.py writes with the installed version."""
    folder = tmp_path_factory.mktemp("installed")
    make.main(folder)
    return folder


@pytest.mark.parametrize("name", ["default", "planned", "unplanned", "host", "external"])
def test_programs_of_1_4_1_and_of_the_installed_version_read_alike(
    inspector: ModuleType, installed: Path, name: str
) -> None:
    old = inspector.read_program(PROGRAMS / "1.4.1" / f"{name}.pte")
    assert old == inspector.read_program(installed / f"{name}.pte")


@pytest.mark.parametrize("name", ["default", "host", "external"])
def test_a_program_from_before_device_support_is_on_the_host(
    inspector: ModuleType, name: str
) -> None:
    method = read(inspector, PROGRAMS / "1.0.1" / f"{name}.pte")
    places = [it["device"] for key in ("inputs", "outputs", "arenas") for it in method[key]]
    assert (set(places), method["copies"]) == ({"cpu"}, [])
    assert all(it["ends"] == "right, host" for it in method["callers"].values())


# -- the recorded outcomes ---------------------------------------------------------------

RECORDED = recording.read(REPOSITORY / "gallery" / "recordings", "python/configuration_matrix")
assert RECORDED is not None
SETTINGS = {f"{it['skip']} {it['alloc']}": it for it in RECORDED.facts["settings"]}
FLAGS = (
    "skip_h2d_for_method_inputs",
    "skip_d2h_for_method_outputs",
    "alloc_graph_input",
    "alloc_graph_output",
)
#: The recording's columns, and what the inspector calls them.
COLUMNS = {
    "module_host": "python_host",
    "module_device": "python_device",
    "runtime_host": "python_host",
    "runtime_device": "python_device",
} | {f"cpp_{a}_{b}": f"cpp_{a}_{b}" for a in ("host", "device") for b in ("none", "host", "device")}


@pytest.mark.parametrize("row", SETTINGS.values(), ids=SETTINGS)
def test_verdicts_are_what_was_recorded_on_a_gpu(
    inspector: ModuleType, lowered: Any, tmp_path: Path, row: dict[str, Any]
) -> None:
    path = save(tmp_path / "setting.pte", emit(lowered, *map(row.get, FLAGS)))
    outcomes = read(inspector, path)["outcomes"]
    died = {"SIGABRT": "dies", "SIGSEGV": "dies"}
    recorded = {it: died.get(row[it]["verdict"], row[it]["text"]) for it in COLUMNS}
    assert {it: outcomes[ours] for it, ours in COLUMNS.items()} == recorded


def test_a_caller_can_run_what_some_recorded_call_of_it_got_right(
    inspector: ModuleType, lowered: Any, tmp_path: Path
) -> None:
    for name, row in SETTINGS.items():
        path = save(tmp_path / "setting.pte", emit(lowered, *map(row.get, FLAGS)))
        for caller, answer in read(inspector, path)["callers"].items():
            calls = [row[it] for it, ours in COLUMNS.items() if ours.startswith(caller)]
            worked = any(it["verdict"] == "right" for it in calls)
            assert answer["runs"] == worked, (name, caller)


def test_a_program_exported_as_the_fix_says_can_be_run(
    inspector: ModuleType, lowered: Any, tmp_path: Path
) -> None:
    fixed = 0
    for flags in itertools.product((False, True), repeat=4):
        path = save(tmp_path / "setting.pte", emit(lowered, *flags))
        for caller, answer in read(inspector, path)["callers"].items():
            if answer["runs"]:
                continue
            said = re.search(r"MemoryPlanningPass\((.*?)\)", answer["fix"])
            assert said, (flags, caller)
            alloc = dict(re.findall(r"alloc_graph_(\w+)=(\w+)", said[1]))
            planned = [alloc.get(it, "True") == "True" for it in ("input", "output")]
            path = save(tmp_path / "fixed.pte", emit(lowered, *flags[:2], *planned))
            assert read(inspector, path)["callers"][caller]["runs"], (flags, caller)
            fixed += 1
    assert fixed


# -- where the report goes ----------------------------------------------------------------


def start(*words: object, stdout: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    """Call the command in a process of its own, with that standard output."""
    command = [sys.executable, str(SCRIPT), *map(str, words)]
    return subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=os.environ | environment
    )


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_a_reader_that_has_seen_enough_is_no_error(
    options: tuple[str, ...], unbuffered: str
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        done = start(SAMPLE, *options, stdout=pipe, PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (2, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_report_that_cannot_be_written_is_said_in_one_sentence() -> None:
    with open("/dev/full", "w") as full:
        done = start(SAMPLE, stdout=full)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("The report cannot be written: ")


@pytest.mark.parametrize("options", ["", " --json"], ids=["text", "json"])
def test_the_exit_status_needs_no_standard_output(options: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$0" "$1" "$2"{options} >&-', sys.executable, SCRIPT, SAMPLE]
    )
    assert done.returncode == 0


def test_a_name_that_the_terminal_cannot_show_is_escaped(tmp_path: Path) -> None:
    path = tmp_path / "mod\u00e8le.pte"
    path.write_bytes(SAMPLE.read_bytes())
    done = start(path, stdout=subprocess.PIPE, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("mod\\xe8le.pte: ")


def test_a_file_s_name_cannot_move_the_cursor(call: Callable[..., Report], tmp_path: Path) -> None:
    path = tmp_path / "a\nb\x1b[2J.pte"
    assert "a\\nb\\x1b[2J.pte: No such file" in call(path).err
    path.write_bytes(SAMPLE.read_bytes())
    assert call(path).out.startswith("a\\nb\\x1b[2J.pte: 1544 bytes\n")


# -- what is no program ------------------------------------------------------------------


def refused(report: Report) -> str:
    """The sentence of a report that says: not a readable program."""
    assert (report.status, report.out) == (2, "")
    assert report.err.endswith(".\n")
    assert report.err.count("\n") == 1
    return report.err.partition(": ")[2]


BAD = {
    "empty": (b"", "empty"),
    "text": (b"Once upon a time, there was a text.", "not an ExecuTorch program"),
    "short": (b"ab", "not an ExecuTorch program"),
    "identifier only": (b"\0\0\0\0ET12", "cut off"),
    "header only": (SAMPLE.read_bytes()[:40], "cut off"),
    "other version": (b"\0\0\0\0ET99" + bytes(64), "another version"),
    "bundled program": (b"\0\0\0\0BP08" + bytes(64), "a bundled program"),
    "weights": (
        (PROGRAMS / "1.4.1" / "_default_external_constant.ptd").read_bytes(),
        "weights, a .ptd file",
    ),
}


@pytest.mark.parametrize(("data", "said"), BAD.values(), ids=BAD)
def test_what_is_no_program_is_said_in_one_sentence(
    call: Callable[..., Report], tmp_path: Path, data: bytes, said: str
) -> None:
    path = tmp_path / "model.pte"
    path.write_bytes(data)
    assert said in refused(call(path))


def test_a_folder_is_no_program(call: Callable[..., Report], tmp_path: Path) -> None:
    assert "directory" in refused(call(tmp_path))


def test_a_pipe_is_not_waited_for(call: Callable[..., Report], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a file" in refused(call(tmp_path / "pipe"))


def test_a_file_that_is_not_there(call: Callable[..., Report], tmp_path: Path) -> None:
    assert "No such file" in refused(call(tmp_path / "none.pte"))


@pytest.mark.parametrize("error", [PermissionError, FileNotFoundError])
def test_a_file_that_cannot_be_opened(
    inspector: ModuleType,
    call: Callable[..., Report],
    monkeypatch: pytest.MonkeyPatch,
    error: type[OSError],
) -> None:
    """No permission, or it vanishes between the look at it and the reading."""

    def fails(*arguments: object) -> None:
        raise error(1, "the system says so")

    monkeypatch.setattr(inspector, "open", fails, raising=False)
    assert "the system says so" in refused(call(SAMPLE))


CUT = {
    "with segments": lambda shapes: SAMPLE,
    "without segments": lambda shapes: shapes["default"],
}


@pytest.mark.parametrize("which", CUT.values(), ids=CUT)
def test_a_program_that_was_cut_off_is_not_read(
    call: Callable[..., Report], shapes: dict[str, Path], tmp_path: Path, which: Any
) -> None:
    data, path = which(shapes).read_bytes(), tmp_path / "cut.pte"
    whole = [point * len(data) // 200 for point in range(200)]
    for length in [*whole, len(data) - 1]:
        path.write_bytes(data[:length])
        refused(call(path))


def mutated(data: bytes, chance: random.Random) -> bytes:
    """A copy of `data` with up to four numbers or bytes replaced."""
    made = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(made) // 4) * 4
        value = chance.choice(
            [
                0,
                1,
                0x7FFFFFFF,
                0x80000000,
                0xFFFFFFFF,
                chance.getrandbits(32),
                chance.getrandbits(8),
            ]
        )
        if chance.random() < 0.5:
            struct.pack_into("<I", made, at, value)
        else:
            made[at + chance.randrange(4)] = value & 0xFF
    return bytes(made)


def test_2000_damaged_programs_end_as_they_should(
    call: Callable[..., Report], shapes: dict[str, Path], tmp_path: Path
) -> None:
    chance = random.Random(1)
    samples = [path.read_bytes() for path in (SAMPLE, shapes["default"], shapes["no_memory"])]
    path, ended = tmp_path / "damaged.pte", []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for data in itertools.islice(itertools.cycle(samples), 2000):
        path.write_bytes(mutated(data, chance))
        report = call(path)
        ended.append(report.status)
        if report.status == 2:
            refused(report)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert set(ended) == {0, 1, 2}
    assert grown < 32 * 1024  # KiB


def test_reading_ends_where_the_entries_do_not(
    inspector: ModuleType, call: Callable[..., Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspector, "READS", 100)
    assert "more entries than a program has" in refused(call(SAMPLE))


def test_a_list_that_is_too_long_is_not_read(
    inspector: ModuleType, call: Callable[..., Report], tmp_path: Path
) -> None:
    """Every entry is the same method: a small file would give a report without end."""
    pte, builder = inspector.pte, flatbuffers.Builder()
    pte.ExecutionPlanStart(builder)
    plan = pte.ExecutionPlanEnd(builder)
    pte.ProgramStartExecutionPlanVector(builder, 10_001)
    for _ in range(10_001):
        builder.PrependUOffsetTRelative(plan)
    plans = builder.EndVector()
    pte.ProgramStart(builder)
    pte.ProgramAddExecutionPlan(builder, plans)
    builder.Finish(pte.ProgramEnd(builder), b"ET12")
    (tmp_path / "many.pte").write_bytes(builder.Output())
    assert "ExecutionPlan has 10001 entries" in refused(call(tmp_path / "many.pte"))


def test_names_that_many_delegates_share_are_not_repeated_without_end(
    call: Callable[..., Report],
    lowered: Any,
    tmp_path: Path,
) -> None:
    """A small file whose delegates all have one blob of many names would give a large report."""
    store, name = NamedDataStore(), "blob"
    store.add_named_data(name, BLOB, 1, None)
    program = with_blob(emit(lowered), "\n".join([name] * 800).encode())
    (plan,) = program.execution_plan
    plan.delegates = [copy.deepcopy(plan.delegates[0]) for _ in range(300)]
    named = store.get_named_data_store_output()
    path = save(tmp_path / "shared.pte", program, named_data=named)
    assert "more entries than a program has" in refused(call(path))


def test_a_name_that_is_too_long_is_not_read(
    call: Callable[..., Report], lowered: Any, tmp_path: Path
) -> None:
    program = emit(lowered)
    program.execution_plan[0].name = "n" * 100_000
    path = save(tmp_path / "long.pte", program)
    assert "a name has 100000 bytes" in refused(call(path))
