"""Call a program once, and print where the result is.

python call.py PROGRAM WEIGHTS LOADER DEVICE
"""

import sys

import torch
from executorch.extension.pybindings.portable_lib import _load_for_executorch
from executorch.runtime import Runtime

program_path, weights_path, loader, device = sys.argv[1:]
x = torch.ones(4, 64, device=device)

if loader == "_load_for_executorch":
    module = _load_for_executorch(program_path, weights_path)
    result = module.forward([x])[0]
else:
    program = Runtime.get().load_program(program_path, data_path=weights_path)
    method = program.load_method("forward")
    result = method.execute([x])[0]

print(result.device)
