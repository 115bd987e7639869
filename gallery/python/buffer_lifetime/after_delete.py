"""Delete a module, and print what is left of its results: JSON, then an error.

python after_delete.py PROGRAM WEIGHTS
"""

import ctypes
import json
import sys

import torch
from executorch.extension.pybindings.portable_lib import _load_for_executorch
from executorch.runtime import Runtime

driver = ctypes.CDLL("libcuda.so.1")
CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2
CU_MEMORYTYPE_DEVICE = 2


def is_device_memory(tensor):
    kind = ctypes.c_uint(0)
    pointer = ctypes.c_uint64(tensor.data_ptr())
    # The driver answers with an error for a pointer that it does not know.
    driver.cuPointerGetAttribute(ctypes.byref(kind), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer)
    return kind.value == CU_MEMORYTYPE_DEVICE


program_path, weights_path = sys.argv[1:]
module = _load_for_executorch(program_path, weights_path)
program = Runtime.get().load_program(program_path, data_path=weights_path)
method = program.load_method("forward")

x = torch.ones(1024, 1024, device="cuda")
results = {
    "forward": module.forward([x])[0],
    "forward_without_clone": module.forward([x], clone_outputs=False)[0],
    "execute": method.execute([x])[0],
}
before = {name: is_device_memory(result) for name, result in results.items()}

torch.cuda.synchronize()
free_before, _ = torch.cuda.mem_get_info()
del module
free_after, _ = torch.cuda.mem_get_info()
del method, program
after = {name: is_device_memory(result) for name, result in results.items()}

clones_intact = all((results[name] == 3).all().item() for name in ("forward", "execute"))
report = {
    "before": before,
    "after": after,
    "freed_bytes": free_after - free_before,
    "clones_intact": clones_intact,
}
print(json.dumps(report), flush=True)
try:
    results["forward_without_clone"][0].cpu()
    print("no error", flush=True)
except RuntimeError as error:
    print(str(error).splitlines()[0], flush=True)
