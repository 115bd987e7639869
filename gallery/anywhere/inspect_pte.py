"""
Inspect a program
=================

A ``.pte`` file says where each input and output is, who owns its memory, and which copies run. This
script reads that, without torch, without a GPU, and without running the program. It then tells
whether a Python or a C++ caller can run it, and where it cannot, which export setting fixes it::

    python gallery/anywhere/inspect_pte.py model.pte [--method NAME] [--caller python|cpp] [--json]

The exit status is 0 where the caller that is named can run every method that is shown, 1 where it
cannot, and 2 where the file is no program that can be read, or the report cannot be written. Where
no caller is named, 0 means that each method has one that can. Called without a file, the script is
this page's recipe: it exports the programs of the other recipes and inspects them. `What it prints
<#inspect-them>`_ is below.
"""

# sphinx_gallery_tags = ["executorch", "anywhere", "planned", "unplanned", "failure"]
# sphinx_gallery_thumbnail_path = "_static/shapes/planned.svg"

import sys
from importlib.util import find_spec
from pathlib import Path

folder = Path(sys.argv[0]).resolve().with_suffix("")
generated = folder / "program_generated.py"
to_inspect = sys.argv[1:] or (find_spec("torch") and find_spec("executorch"))
needs = {
    "flatbuffers (pip install flatbuffers)": find_spec("flatbuffers"),
    f"{generated.name} in the folder {folder.name}": generated.is_file(),
    "a program, or ExecuTorch (pip install executorch==1.5.1) to export some": to_inspect,
}
if missing := [need for need, met in needs.items() if not met]:
    print(f"This recipe needs {' and '.join(missing)}.", file=sys.stderr)
    sys.exit(2)

# %%
# Read in place
# -------------
#
# A program is a flatbuffer: the ``flatbuffers`` package reads it where it lies, so only its tables
# are read, whatever the size of the model. :download:`program_generated.py
# </../gallery/anywhere/inspect_pte/program_generated.py>` has what ``flatc`` makes of ExecuTorch's
# schema; copy it, too. Its tables trust what they read. The class below does not: a length in a
# damaged file can be anything.

import types

import flatbuffers

sys.path.insert(0, str(folder))
import program_generated as pte


class NotReadable(Exception):
    """The file is no program that can be read; the message says why."""


class CheckedTable(flatbuffers.table.Table):
    """A table that reads neither past the end nor without end."""

    __slots__ = ()
    reads_left = 0

    @classmethod
    def count(cls, reads):
        cls.reads_left -= reads
        if cls.reads_left < 0:
            raise NotReadable("damaged: it has more entries than a program has")

    def Get(self, flags, off):
        self.count(1)
        return super().Get(flags, off)

    def VectorLen(self, off):
        length = super().VectorLen(off)
        if self.Vector(off) + length > len(self.Bytes):
            raise NotReadable(f"damaged or cut off: a list of {length} entries passes its end")
        return length

    def String(self, off):
        length = super().VectorLen(off - self.Pos)
        if self.Indirect(off) + 4 + length >= len(self.Bytes):
            raise NotReadable(f"damaged or cut off: a text of {length} bytes passes its end")
        if length > 1000:
            raise NotReadable(f"damaged: a name has {length} bytes")
        self.count(length // 16)
        return super().String(off)


# The generated code makes its tables by this name; the library itself stays as it is.
checked = types.SimpleNamespace(Table=CheckedTable)
pte.flatbuffers = types.SimpleNamespace(**vars(flatbuffers) | {"table": checked})


def entries(table, name, most=10_000):
    """The entries of the list `name` of a table."""
    length = getattr(table, f"{name}Length")()
    if length > most:
        raise NotReadable(f"damaged: {name} has {length} entries")
    return [getattr(table, name)(index) for index in range(length)]


def entry(table, name, index):
    """One entry of the list `name` of a table."""
    if not 0 <= index < getattr(table, f"{name}Length")():
        raise NotReadable(f"damaged: {name} has no entry {index}")
    return getattr(table, name)(index)


def member(table, union, kind):
    """What the field `union` of a table holds, as a table of the type `kind`."""
    if (held := getattr(table, union)()) is None:
        raise NotReadable(f"damaged: a {kind.__name__} is empty")
    found = kind()
    found.Init(held.Bytes, held.Pos)
    return found


def text(data):
    if not (decoded := (data or b"").decode()).isprintable():
        raise NotReadable("damaged: a name is no text")
    return decoded


# %%
# Open a file
# -----------
#
# A header that follows the first eight bytes says how large the tables are and where the segments
# begin: the blobs of constants and delegates. Programs without segments have no header. Only the
# tables are mapped.

import itertools
import mmap
import os
import stat
import struct

READS = 3_000_000  # some seconds; an instruction takes about 60
OTHERS = {
    b"FT": "weights, a .ptd file: name the program that they belong to",
    b"BP": "a bundled program: name the program that it was made from",
    b"ET": "a program of another version of the format; this reads ET12",
}


def read_program(path):
    """What the program at `path` says, as JSON values. Raises NotReadable."""
    CheckedTable.reads_left = READS
    try:
        if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
            raise NotReadable("not a file that can be mapped")
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(40)
            if head[4:8] != b"ET12":
                other = "not an ExecuTorch program" if head else "empty"
                raise NotReadable(OTHERS.get(head[4:6], other))
            tables, segments_at = size, size
            if head[8:12] == b"eh00":
                _, tables, segments_at = struct.unpack("<IQQ", head[12:32])
            if not 8 < tables <= size:
                raise NotReadable(f"cut off: its tables have {tables} bytes, the file has {size}")
            with mmap.mmap(file.fileno(), tables, access=mmap.ACCESS_READ) as data:
                program = pte.Program.GetRootAs(data)
                found = {"file": os.path.basename(path), "bytes": size}
                found |= describe_program(program, file, segments_at, size)
    except OSError as error:
        raise NotReadable(error.strerror or str(error)) from error
    except (struct.error, TypeError, ValueError) as error:  # what flatbuffers raises
        raise NotReadable("damaged or cut off: it refers to what is not in it") from error
    return found


# %%
# Read the file's parts
# ---------------------
#
# A delegate's blob is in a segment or among the tables. The delegate for CUDA has a short one: the
# names of its data, one a line. What of it is not in the program is in a ``.ptd`` file.


def describe_program(program, file, segments_at, size):
    segments = [
        {"offset": segments_at + one.Offset(), "bytes": one.Size(), "holds": []}
        for one in entries(program, "Segments")
    ]
    for index, one in enumerate(segments):
        if one["offset"] + one["bytes"] > size:
            end = one["offset"] + one["bytes"]
            raise NotReadable(f"cut off: segment {index} ends at byte {end}, the file at {size}")

    def segment(index):
        if index >= len(segments):
            raise NotReadable(f"damaged: there is no segment {index}")
        return segments[index]

    if (constants := program.ConstantSegment()) and constants.OffsetsLength():
        segment(constants.SegmentIndex())["holds"].append("constants")
    for one in entries(program, "MutableDataSegments"):
        segment(one.SegmentIndex())["holds"].append("initial values of mutable tensors")
    named = {text(one.Key()): one.SegmentIndex() for one in entries(program, "NamedData")}
    for name, index in named.items():
        segment(index)["holds"].append(f"named data {name}")

    def blob(delegate):
        """Where a delegate's blob is, its size, and its first bytes."""
        where = delegate.Processed()
        if where is None:
            return "nowhere", 0, b""
        if where.Location() == pte.DataLocation.SEGMENT:
            one = segment(where.Index())
            file.seek(one["offset"])
            return f"segment {where.Index()}", one["bytes"], file.read(min(one["bytes"], 4096))
        inline = entry(program, "BackendDelegateData", where.Index())
        length = inline.DataLength()
        return "tables", length, bytes(inline.Data(i) for i in range(min(length, 4096)))

    def describe_delegate(delegate, method, index):
        where, length, start = blob(delegate)
        if where.startswith("segment"):
            segment(delegate.Processed().Index())["holds"].append(f"{method}: delegate {index}")
        lines = start.decode("ascii", "replace").split("\n") if length <= 4096 else []
        CheckedTable.count(16 * len(lines))  # many delegates can share one blob
        own = [line for line in lines if line in named]
        total = length + sum(segment(named[name])["bytes"] for name in own)
        return {
            "name": f"delegate {index}",
            "id": text(delegate.Id()),
            "device": target_device(delegate),
            "bytes": total,
            "share": round(total / size, 4),
            "blob": where,
            "named_data": own,
            "in_ptd": [it for it in lines if own and it.isprintable() and it not in named],
        }

    methods = []
    for plan in entries(program, "ExecutionPlan", 1000):
        name = text(plan.Name())
        delegates = [
            describe_delegate(one, name, index)
            for index, one in enumerate(entries(plan, "Delegates"))
        ]
        methods.append(describe_method(plan, name, delegates))
    if not methods:
        raise NotReadable("damaged: it has no method")
    return {"version": program.Version(), "segments": segments, "methods": methods}


def target_device(delegate):
    """The device that a delegate was compiled for; None where it does not say."""
    for spec in entries(delegate, "CompileSpecs"):
        if text(spec.Key()) == "target_device":
            return text(bytes(spec.Value(i) for i in range(min(spec.ValueLength(), 64))))
    return None


# %%
# Read a tensor
# -------------
#
# A tensor with ``AllocationInfo`` has its place in an arena, so it is planned. A constant has its
# memory in the file, or in a ``.ptd`` file. Everything else is unplanned. Programs from before
# device support do not mention a device: all of their tensors are on the host.

import math

ITEM_BYTES = {
    "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "float16": 2, "float32": 4,
    "float64": 8, "bool": 1, "bfloat16": 2, "uint16": 2, "uint32": 4, "uint64": 8,
}  # fmt: skip
TORCH_NAMES = {
    "byte": "uint8", "char": "int8", "short": "int16", "int": "int32", "long": "int64",
    "half": "float16", "float": "float32", "double": "float64",
}  # fmt: skip


def names_of(enum):
    return {value: name.lower() for name, value in vars(enum).items() if name[0] != "_"}


KINDS, DTYPES = names_of(pte.KernelTypes), names_of(pte.ScalarType)
DEVICES = names_of(pte.DeviceType)


def device_name(holder):
    """``cpu``, or such as ``cuda:0``; of a table that has a device, or None."""
    if holder is None or holder.DeviceType() == pte.DeviceType.CPU:
        return "cpu"
    kind = DEVICES.get(holder.DeviceType(), f"device{holder.DeviceType()}")
    return f"{kind}:{holder.DeviceIndex()}"


def is_external(extra):
    return extra.Location() == pte.TensorDataLocation.EXTERNAL


def describe_value(plan, index, name):
    value = entry(plan, "Values", index)
    kind = KINDS.get(value.ValType(), "unknown")
    if kind != "tensor":
        return {"name": name, "kind": kind}  # a number or a list
    tensor = member(value, "Val", pte.Tensor)
    dtype = DTYPES.get(tensor.ScalarType(), f"type {tensor.ScalarType()}")
    dtype = TORCH_NAMES.get(dtype, dtype)
    if tensor.SizesLength() > 16:
        raise NotReadable(f"damaged: a tensor has {tensor.SizesLength()} dimensions")
    sizes = entries(tensor, "Sizes")
    dynamism = {0: "static", 1: "bounded"}.get(tensor.ShapeDynamism(), "unbounded")
    known = dynamism != "unbounded" and dtype in ITEM_BYTES and all(size >= 0 for size in sizes)
    place, extra = tensor.AllocationInfo(), tensor.ExtraTensorInfo()
    external = extra is not None and is_external(extra)
    return {
        "name": name,
        "kind": "tensor",
        "dtype": dtype,
        "sizes": sizes,
        "dynamism": dynamism,
        "bytes": math.prod(sizes) * ITEM_BYTES[dtype] if known else None,
        "device": device_name(extra),
        "planned": place is not None,
        "arena": place.MemoryId() if place else None,
        "offset": place.MemoryOffsetLow() + (place.MemoryOffsetHigh() << 32) if place else None,
        "constant": place is None and (tensor.DataBufferIdx() > 0 or external),
        "external": text(extra.FullyQualifiedName()) if external else None,
    }


# %%
# Read a method
# -------------
#
# The instructions tell which copies run and what they copy. A tensor on a device that is neither
# planned, nor an input or an output, has no memory: nobody can supply it.

COPIES = {"et_copy::_h2d_copy": "h2d", "et_copy::_d2h_copy": "d2h"}


def follow(plan, names):
    """What the instructions do: the copies, and of each value its users and its argument."""
    operators = [text(operator.Name()) for operator in entries(plan, "Operators")]
    copies, users, arguments = [], {}, {}
    chains = (entries(chain, "Instructions", 100_000) for chain in entries(plan, "Chains"))
    for instruction in itertools.chain.from_iterable(chains):
        if instruction.InstrArgsType() == pte.InstructionArguments.KernelCall:
            call = member(instruction, "InstrArgs", pte.KernelCall)
            args = entries(call, "Args")
            if not 0 <= call.OpIndex() < len(operators):
                raise NotReadable(f"damaged: there is no operator {call.OpIndex()}")
            user = COPIES.get(operators[call.OpIndex()], "operator")
            if user != "operator":
                if len(args) < 2:
                    raise NotReadable("damaged: a copy has no target")
                source, target = (names.get(index, f"value {index}") for index in args[:2])
                copies.append({"kind": user, "from": source, "to": target})
        elif instruction.InstrArgsType() == pte.InstructionArguments.DelegateCall:
            call = member(instruction, "InstrArgs", pte.DelegateCall)
            args, user = entries(call, "Args"), f"delegate {call.DelegateIndex()}"
            for position, index in enumerate(args):
                arguments.setdefault(index, position)
        else:
            continue  # moves, jumps and frees
        for index in args:
            users.setdefault(index, set()).add(user)
    return copies, users, arguments


def describe_method(plan, name, delegates):
    """Everything about one method, and what each caller gets."""
    inputs, outputs = entries(plan, "Inputs"), entries(plan, "Outputs")
    names = {index: f"output {place}" for place, index in enumerate(outputs)}
    names |= {index: f"input {place}" for place, index in enumerate(inputs)}
    copies, users, arguments = follow(plan, names)
    inside = [it for it in users if it not in names and users[it] != {"operator"}]

    def tensor(index, name):
        own = {"users": sorted(users.get(index, ())), "argument": arguments.get(index)}
        return describe_value(plan, index, name) | own

    sizes = entries(plan, "NonConstBufferSizes")
    devices = {one.BufferIdx(): device_name(one) for one in entries(plan, "NonConstBufferDevice")}
    method = {
        "name": name,
        "inputs": [tensor(index, f"input {place}") for place, index in enumerate(inputs)],
        "outputs": [
            tensor(index, f"output {place}")
            | {"same_as": names[index] if names[index].startswith("input") else None}
            for place, index in enumerate(outputs)
        ],
        "inside": [
            it
            for it in (tensor(index, f"value {index}") for index in inside)
            if it["kind"] == "tensor"
        ],
        "arenas": [
            {"name": f"arena {index}", "bytes": size, "device": devices.get(index, "cpu")}
            for index, size in enumerate(sizes)
            if size
        ],
        "copies": copies,
        "delegates": delegates,
    }
    method |= describe_all(plan, names)
    method["callers"] = {caller: verdict(method, caller) for caller in CALLERS}
    method["outcomes"] = outcomes(method)
    return method


def describe_all(plan, names):
    """Of all tensors: what is in a ``.ptd`` file, and which have no upper bound."""
    external, unbounded = [], []
    for index, value in enumerate(entries(plan, "Values", 100_000)):
        if value.ValType() == pte.KernelTypes.Tensor:
            tensor = member(value, "Val", pte.Tensor)
            extra = tensor.ExtraTensorInfo()
            if extra is not None and is_external(extra):
                external.append(text(extra.FullyQualifiedName()))
            if tensor.ShapeDynamism() == pte.TensorShapeDynamism.DYNAMIC_UNBOUND:
                unbounded.append(names.get(index, f"value {index}"))
    return {"external": external, "unbounded": unbounded}


# %%
# Judge
# -----
#
# A call ends by the rules that :doc:`/reference/configurations` has, in the same order. They were
# recorded on a GPU, with programs of one input and one output; a test compares all answers with
# that recording. Here the rules are applied to one tensor after the other. Before them comes that
# the runtime loads no program with a tensor of unbounded size; a test loads one. What neither tells
# is ``unknown``, and counts as a caller that cannot.

CALLERS = {"python": "Python", "cpp": "C++"}
PLAN_OUTPUT = "export with MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=True)"
SHARE_INPUT = "export with MemoryPlanningPass(alloc_graph_input=False)"
BOUND = "export with an upper bound, as in Dim('batch', max=8)"


def side(tensor):
    return "host" if tensor["device"] == "cpu" else "device"


def predict(method, caller, given, handed):
    """How a call ends: a code and the reason, and what to do about it.

    `given` says where the tensor is that the caller passes for each input, host or device, and
    `handed` where the one is that it hands over with `set_output`, or None where it does not.
    """
    inputs = [it for it in zip(method["inputs"], given, strict=True) if it[0]["kind"] == "tensor"]
    outputs = zip(method["outputs"], handed, strict=True)
    outputs = [it for it in outputs if it[0]["kind"] == "tensor"]
    if method["unbounded"]:
        reason = f"{method['unbounded'][0]} has no upper bound: the runtime loads no such tensor"
        return "0x10", reason, BOUND
    for tensor, place in outputs:
        if place and (tensor["planned"] or tensor["constant"]):
            return "0x2", f"{tensor['name']} has memory and takes no other", "leave set_output out"
    for tensor, place in inputs:
        if tensor["planned"] and "device" in (side(tensor), place):
            reason = f"{tensor['name']} is planned on {tensor['device']}, and the runtime fills it"
            reason += f" by a copy within the host, here from a tensor on the {place}"
            return "0x10", reason, SHARE_INPUT
    for tensor, place in inputs:
        if side(tensor) == "device" and place == "host":
            reason = f"{tensor['name']} is on {tensor['device']} and got a host tensor"
            return f"0x12, tensor {tensor['argument']}", reason, "pass a tensor on the device"
    for tensor, place in inputs:
        if side(tensor) == "host" and place == "device" and set(tensor["users"]) != {"h2d"}:
            reason = f"{tensor['name']} is on the host and got a device tensor"
            return "unknown", reason, "pass a tensor on the host"
    for tensor in method["inside"]:
        if side(tensor) == "device" and not tensor["planned"] and not tensor["constant"]:
            users = " and ".join(tensor["users"])
            reason = f"{tensor['name']} on {tensor['device']}, used by {users}, has no memory:"
            reason += " the program reserves none, and no caller can supply it"
            return "dies", reason, PLAN_OUTPUT
    for tensor, place in outputs:
        if tensor["planned"] or tensor["constant"]:
            continue
        if tensor["same_as"]:
            reason = f"{tensor['name']} is {tensor['same_as']} itself, in nobody's memory"
            return "unknown", reason, "return x.clone() in place of an input x"
        place = "host" if caller == "python" else place
        if place is None:
            reason = f"{tensor['name']} is unplanned and was not handed over"
            return "dies", reason, "call set_output"
        if side(tensor) == "device" and place == "host":
            reason = f"{tensor['name']} is unplanned on {tensor['device']} and has host memory"
            fix = "hand over device memory"
            if caller == "python":
                reason += ": the Python bindings supply no other"
                fix = f"{PLAN_OUTPUT}, or call it from C++ with set_output"
            return f"0x12, tensor {tensor['argument']}", reason, fix
        if side(tensor) == "host" and place == "device":
            reason = f"{tensor['name']} is on the host and got device memory"
            return "unknown", reason, "hand over host memory"
    sides = [side(tensor) for tensor, _ in outputs]
    return ", ".join(["right", *dict.fromkeys(sides)]), None, None


def verdict(method, caller):
    """What a caller passes and gets where it does all as the program wants it."""

    def is_tensor(it):
        return it["kind"] == "tensor"

    def is_free(it):
        return caller == "cpp" and is_tensor(it) and not it["planned"] and not it["constant"]

    def place(it):
        return {"name": it["name"], "device": it["device"]}

    def owner(it):
        if caller == "python":
            return {"owner": "caller", "until": "it drops it: a clone, by default"}
        if is_free(it):
            return {"owner": "caller", "until": "it frees it"}
        return {"owner": "method", "until": "the next execution or the Module's end"}

    inputs, outputs = method["inputs"], method["outputs"]
    given = [side(it) if is_tensor(it) else None for it in inputs]
    handed = [side(it) if is_free(it) else None for it in outputs]
    ends, reason, fix = predict(method, caller, given, handed)
    return {
        "runs": ends.startswith("right"),
        "ends": ends,
        "reason": reason,
        "fix": fix,
        "passes": [place(it) for it in inputs if is_tensor(it)],
        "hands_over": [place(it) for it in outputs if is_free(it)],
        "gets": [place(it) | owner(it) for it in outputs if is_tensor(it)],
    }


def outcomes(method):
    """How every uniform call ends: all inputs on one side, all outputs handed over alike."""
    found = {}
    for given in ("host", "device"):
        inputs, none = [given] * len(method["inputs"]), [None] * len(method["outputs"])
        found[f"python_{given}"] = predict(method, "python", inputs, none)[0]
        for handed in (None, "host", "device"):
            outputs = [handed] * len(method["outputs"])
            ends = predict(method, "cpp", inputs, outputs)[0]
            found[f"cpp_{given}_{handed or 'none'}"] = ends
    return found


# %%
# Show it
# -------


def show_tensor(it):
    if it["kind"] != "tensor":
        return f"{it['kind']}, not a tensor"
    bound = {"static": "", "bounded": " at most", "unbounded": " unbounded"}[it["dynamism"]]
    size = "size not known" if it["bytes"] is None else f"{it['bytes']} bytes"
    owner = "unplanned"
    if it["constant"]:
        owner = f"constant in a .ptd file: {it['external']}" if it["external"] else "constant"
    elif it["planned"]:
        owner = f"planned: arena {it['arena']}, offset {it['offset']}"
    return f"{it['dtype']} {it['sizes']}{bound}, {size}, on {it['device']}, {owner}"


def show_delegate(it):
    device = f" for {it['device']}" if it["device"] else ""
    parts = [f"{it['id']}{device}, {it['bytes']} bytes, {it['share']:.1%} of the file"]
    parts += [f"with {name}" for name in it["named_data"]]
    return ", ".join(parts + [f"and in a .ptd file: {name}" for name in it["in_ptd"]])


def show_caller(it):
    if not it["runs"]:
        yield f"cannot run it: {'the process dies' if it['ends'] == 'dies' else it['ends']}"
        return
    yield "can run it"
    for one in it["passes"]:
        yield f"passes {one['name']} on {one['device']}"
    for one in it["hands_over"]:
        yield f"hands over memory for {one['name']} on {one['device']}, with set_output"
    for one in it["gets"]:
        yield f"gets {one['name']} on {one['device']}, the {one['owner']}'s until {one['until']}"


def on_one_line(words):
    """`words`, with escapes for what would move the cursor or is no text: file names have all."""
    return "".join(it if it.isprintable() else ascii(it)[1:-1] for it in words)


def show(program):
    """The lines that the command prints of a program."""
    yield f"{on_one_line(program['file'])}: {program['bytes']} bytes"
    for index, one in enumerate(program["segments"]):
        if one["bytes"]:
            holds = " and ".join(one["holds"]) or "nothing that is named"
            yield f"  segment {index}: {one['bytes']} bytes at {one['offset']}: {holds}"
    for method in program["methods"]:
        rows = [(it["name"], show_tensor(it)) for it in method["inputs"] + method["outputs"]]
        on_device = [it for it in method["inside"] if side(it) == "device"]
        rows += [(it["name"], show_tensor(it)) for it in on_device]
        rows += [(it["name"], f"{it['bytes']} bytes on {it['device']}") for it in method["arenas"]]
        rows += [("copy", f"{it['kind']}: {it['from']} to {it['to']}") for it in method["copies"]]
        rows += [("copies", "none")] * (not method["copies"])
        rows += [(it["name"], show_delegate(it)) for it in method["delegates"]]
        rows += [("in a .ptd file", name) for name in method["external"]]
        for caller, title in CALLERS.items():
            first, *others = show_caller(method["callers"][caller])
            rows += [(title, first), *[("", line) for line in others]]
        yield f"method {method['name']}"
        for name, words in rows:
            yield f"  {name:12} {words}"


import argparse
import json


def main(arguments):
    """The command. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="inspect_pte.py", description="Read a .pte file.")
    parser.add_argument("program", metavar="model.pte")
    parser.add_argument("--method", help="only this method")
    parser.add_argument("--caller", choices=CALLERS, help="whether this caller can run it")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    try:
        program = read_program(options.program)
        wanted = [it for it in program["methods"] if options.method in (None, it["name"])]
        if not wanted:
            known = ", ".join(it["name"] for it in program["methods"])
            raise NotReadable(f"it has no method {options.method}, but {known}")
    except NotReadable as error:
        print(on_one_line(f"{options.program}: {error}."), file=sys.stderr)
        return 2
    program["methods"] = wanted
    if options.json:
        json.dump(program, sys.stdout, indent=1)
        print()
    else:
        for line in show(program):
            print(line)
    asked = [options.caller] if options.caller else [*CALLERS]
    refused = [it for it in wanted if not any(it["callers"][caller]["runs"] for caller in asked)]
    if not options.json:
        for method in refused:
            reasons = {method["callers"][caller]["reason"]: caller for caller in asked}
            for reason, caller in reasons.items():
                who = CALLERS[caller] if len(reasons) == len(asked) else "No caller"
                can = "can" if who == "No caller" else "cannot"
                print(f"{who} {can} run {method['name']}: {reason}.")
                print(f"To fix it, {method['callers'][caller]['fix']}.")
    return 1 if refused else 0


if sys.argv[1:]:
    if sys.stdout is None:  # the caller has closed it
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stdout.reconfigure(errors="backslashreplace")  # a name can have letters that it lacks
    try:
        status = main(sys.argv[1:])
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the end
        if not isinstance(error, BrokenPipeError):  # with ``| head`` enough was read
            print(f"The report cannot be written: {error.strerror}.", file=sys.stderr)
        status = 2
    sys.exit(status)
# [/command]

# %%
# Export programs to look at
# --------------------------
#
# The command ends here, and the recipe begins. As in :doc:`/recipes/anywhere/emitted_program`, an
# empty delegate stands in for the one for CUDA, so that no GPU is needed.

import contextlib
import copy
import io
import tempfile

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


def lower(partitioner, dynamic_shapes=None):
    exported = torch.export.export(Pointwise(), (torch.ones(4, 64),), dynamic_shapes=dynamic_shapes)
    return to_edge_transform_and_lower(exported, partitioner=partitioner)


temporary = tempfile.TemporaryDirectory()
work = Path(temporary.name)


def write(name, lowered, skip_h2d, skip_d2h, alloc_input, alloc_output):
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
    program.save(str(work / f"{name}.pte"))


# %%
# The shapes have names: the default, the two with both copies skipped, the two with one copy
# skipped, the two that no caller can use, one for a batch of 1 to 8, and one without a delegate.

lowered = lower([TagOnlyPartitioner()])
batch = torch.export.Dim("batch", min=1, max=8)
shapes = {
    "default": (False, False, True, True),
    "planned": (True, True, False, True),
    "unplanned": (True, True, False, False),
    "input_only": (True, False, False, True),
    "output_only": (False, True, False, True),
    "refused": (True, True, True, True),
    "no_memory": (False, False, True, False),
}
for name, flags in shapes.items():
    write(name, lowered, *flags)
write("dynamic", lower([TagOnlyPartitioner()], {"x": {0: batch}}), *shapes["planned"])
write("host", lower(None), False, False, False, False)

# %%
# Inspect them
# ------------
#
# A planned output, in the order of the report: what goes in, what comes out, what the program
# reserves, what runs, and what a caller has to do. Each command is called here without a process of
# its own.


def command(*words):
    """Call the command; print what it prints, and return that with its exit status."""
    program, *options = words
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        status = main([str(work / program), *options])
    said = printed.getvalue().replace(f"{work}/", "")
    print(f"$ python inspect_pte.py {' '.join(words)}\n{said}exit status {status}\n")
    return status, said


status, planned = command("planned.pte")
assert status == 0
assert planned.count("can run it\n") == 2

# %%
# The output of this one is unplanned: Python cannot hand over device memory, C++ can.

status, python_cannot = command("unplanned.pte", "--caller", "python")
assert status == 1
assert f"To fix it, {PLAN_OUTPUT}, or call it from C++" in python_cannot
assert command("unplanned.pte", "--caller", "cpp")[0] == 0

# %%
# Two programs that no caller can run. In the first the input is planned on the device. In the
# second the delegate's result, ``value 2``, is on the device without memory.

status, planned_input = command("refused.pte")
assert status == 1
assert f"To fix it, {SHARE_INPUT}." in planned_input

status, no_memory = command("no_memory.pte")
assert status == 1
assert f"To fix it, {PLAN_OUTPUT}." in no_memory

# %%
# Where sizes are dynamic, a program reserves what the largest ones take.

status, dynamic = command("dynamic.pte")
assert "[8, 64] at most, 2048 bytes" in dynamic

# %%
# What is no program
# ------------------
#
# One sentence, and status 2.

(work / "notes.txt").write_text("This is not a program.")
(work / "empty.pte").write_bytes(b"")
(work / "cut.pte").write_bytes((work / "planned.pte").read_bytes()[:700])
for name in ("notes.txt", "empty.pte", "cut.pte", "missing.pte"):
    status, said = command(name)
    assert status == 2
    assert said.count("\n") == 1

# %%
# As JSON
# -------
#
# ``--json`` prints one object. Its keys stay as they are; new ones may come.
#
# ``file``, ``bytes``, ``version``
#     the file's name, its size, and the version of the schema
# ``segments``
#     of each: ``offset`` in the file, ``bytes``, and what it ``holds``
# ``methods``
#     of each: ``name``, and the lists below
#
# Of a method:
#
# ``inputs``, ``outputs``, ``inside``
#     its values; ``inside`` has the tensors that copies and delegates hand on to each other. Of
#     each its ``name`` and its ``kind``. Of a tensor: ``dtype``, ``sizes``, ``dynamism``
#     (``static``, ``bounded`` or ``unbounded``), ``bytes`` (null where they are not known),
#     ``device``, ``planned``, its ``arena`` and ``offset``, ``constant``, ``external`` (its name in
#     a ``.ptd`` file), ``users`` (``h2d``, ``d2h``, ``delegate 0``, ``operator``), and
#     ``argument``: its number in messages of the delegate. Of an output: ``same_as``, the input
#     that it is
# ``arenas``
#     of each: ``name``, ``bytes``, ``device``
# ``copies``
#     of each: ``kind`` (``h2d`` or ``d2h``), and the names that it goes ``from`` and ``to``
# ``delegates``
#     of each: ``name``, ``id``, ``device`` it was compiled for, ``bytes``, its ``share`` of the
#     file, where its ``blob`` is, its ``named_data``, and what of it is ``in_ptd``
# ``external``, ``unbounded``
#     the names of the constants that are in a ``.ptd`` file, and of the tensors without a bound
# ``callers``
#     for ``python`` and ``cpp``: ``runs``; how the call ``ends``; where it is not right, the
#     ``reason`` and the ``fix``; what the caller ``passes`` and ``hands_over``; and of what it
#     ``gets`` the ``owner`` and ``until`` when
# ``outcomes``
#     how a call ends that has all inputs on one side: ``python_host``, ``python_device``, and
#     ``cpp_device_none`` with no ``set_output``, or one in ``_host`` or ``_device`` memory

status, printed = command("host.pte", "--json")
host = json.loads(printed)["methods"][0]
assert host["inputs"][0]["device"] == "cpu"
assert host["callers"]["cpp"]["hands_over"] == [{"name": "output 0", "device": "cpu"}]

# %%
# Every setting
# -------------
#
# The 16 combinations of the two ``skip`` and the two ``alloc`` flags, and which caller can run what
# comes out. :doc:`/reference/configurations` draws them.


def which_are_on(flags, labels):
    on = [label for flag, label in zip(flags, labels, strict=True) if flag]
    return on[0] if len(on) == 1 else "both" if on else "none"


settings = []
for flags in itertools.product((False, True), repeat=4):
    skip, alloc = (
        which_are_on(flags[:2], ("h2d", "d2h")),
        which_are_on(flags[2:], ("input", "output")),
    )
    write("setting", lowered, *flags)
    found = read_program(work / "setting.pte")
    settings.append({"title": f"skip {skip}, alloc {alloc}", "flags": flags, "program": found})
    callers = found["methods"][0]["callers"]
    ends = [f"{title} {callers[name]['ends']}" for name, title in CALLERS.items()]
    print(f"skip {skip:5} alloc {alloc:7} {ends[0]:24} {ends[1]}")

assert sum(it["program"]["methods"][0]["callers"]["cpp"]["runs"] for it in settings) == 9

# %%
# What this recipe proves, as values that other pages quote.

facts = {
    "settings": settings,
    "shapes": {name: read_program(work / f"{name}.pte") for name in (*shapes, "dynamic", "host")},
    "reports": {
        "planned": planned,
        "python_cannot": python_cannot,
        "planned_input": planned_input,
        "no_memory": no_memory,
    },
}
