"""Pass tensors to a program, and print what comes of each, as JSON.

python try_inputs.py PROGRAM WEIGHTS TENSOR...
"""

import contextlib
import io
import json
import sys

import torch
from executorch.extension.pybindings.portable_lib import _load_for_executorch
from executorch.runtime import Runtime

program_path, weights_path, *names = sys.argv[1:]
module = _load_for_executorch(program_path, weights_path)
program = Runtime.get().load_program(program_path, data_path=weights_path)
method = program.load_method("forward")
calls = {"_load_for_executorch": module.forward, "Runtime.load_program": method.execute}

x = torch.ones(2, 3, 4, 4, device="cuda")
tensors = {
    "device": x,
    "host": x.cpu(),
    "pinned_host": x.cpu().pin_memory(),
    "float64": x.double(),
    "other_shape": torch.cat([x, x]),
    "other_rank": x.flatten(2),
    "transposed": x.transpose(2, 3),
    "meta": x.to("meta"),
}


def attempt(call, tensor):
    # The bindings write the runtime's log to sys.stderr.
    with contextlib.redirect_stderr(io.StringIO()) as log:
        try:
            result = call([tensor])[0]
        except RuntimeError as error:
            return {"error": str(error), "right": False, "log": log.getvalue()}
    right = torch.equal(result, torch.full_like(x, 3))
    return {"error": None, "right": right, "log": log.getvalue()}


found = {
    loader: {name: attempt(call, tensors[name]) for name in names} for loader, call in calls.items()
}
print(json.dumps(found), flush=True)
