"""What this machine is, and which needs of a recipe it meets.

torch and ExecuTorch are only ever imported in a process of their own: the probe.  A site
renders without them, and a driver that crashes takes the probe down, not the caller.
Run as a script, this module *is* the probe: it prints one JSON object.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

CUDA_WHEEL = (
    "pip install executorch==1.5.1+cu130 --extra-index-url https://download.pytorch.org/whl/cu130"
)
#: A delegate that was built from source leaves this file in the executorch package. Keys:
#: ``commit``, the source commit, and ``library_sha256``, the hash of the delegate's library.
PROVENANCE = "CUDA_DELEGATE.json"
DELEGATE = "lib/libexecutorch_backend_cuda.so"
#: What some recipes import beside torch and ExecuTorch, and the package that has it.
OTHERS = {
    "numpy": "numpy",
    "matplotlib": "matplotlib",
    "cupy": "cupy-cuda13x",
    "jax": "jax",
    "flatbuffers": "flatbuffers",
}
CMAKE_AT_LEAST = Version("3.28")
PROBE_LIMIT_S = 120


def pins(pyproject: Path) -> dict[str, SpecifierSet]:
    """The pinned packages: the requirements of the dependency group ``run``, by name.

    Raises:
        ValueError: The file cannot be read, or has no such group.
    """
    try:
        text = pyproject.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"not a project's root folder: {error}") from error
    groups = tomllib.loads(text).get("dependency-groups", {})
    if "run" not in groups:
        raise ValueError(f"{pyproject}: no dependency group 'run', which pins what recipes run on")
    requirements = [Requirement(line) for line in groups["run"] if isinstance(line, str)]
    return {canonicalize_name(one.name): one.specifier for one in requirements}


def moved_pins(
    recorded: dict[str, Any], pinned: dict[str, SpecifierSet]
) -> list[tuple[str, str, str]]:
    """The packages of a recorded environment that the pins no longer admit.

    Returns:
        (package, recorded version, pinned range), one for each.
    """
    moved = []
    for package, specifier in pinned.items():
        version = recorded.get(package)
        if version and not specifier.contains(Version(version).base_version):
            moved.append((package, Version(version).base_version, str(specifier)))
    return moved


def missing(need: str) -> str | None:
    """Why this machine does not meet `need` and how to get it, or None where it does."""
    return {"executorch": _no_executorch, "cuda": _no_cuda, "cpp": _no_cpp}[need]()


def unmet(needs: tuple[str, ...]) -> list[str]:
    """The reasons for every one of `needs` that this machine does not meet."""
    return [reason for need in needs if (reason := missing(need))]


def describe() -> dict[str, Any]:
    """This machine: what a recording says of where it was made.

    Keys whose answer is unknown hold None. Of a machine without ExecuTorch only ``python``,
    ``os``, ``cpu`` and ``nvcc`` are known.
    """
    return {key: value for key, value in _probe().items() if key not in ("error", "backends")}


def _installed() -> bool:
    return bool(find_spec("torch") and find_spec("executorch"))


def _no_executorch() -> str | None:
    if not _installed():
        return "ExecuTorch is not installed: pip install torch==2.13.* executorch==1.5.1"
    if error := _probe().get("error"):
        return f"ExecuTorch cannot be imported: {error}"
    return None


def _no_cuda() -> str | None:
    if not _installed():
        return f"ExecuTorch is not installed: {CUDA_WHEEL}"
    if reason := _no_executorch():
        return reason
    probe = _probe()
    if not probe["gpu"]:
        return "no CUDA device: torch.cuda.is_available() is False; a GPU and its driver are needed"
    if "CudaBackend" not in probe["backends"]:
        return f"ExecuTorch has no CUDA delegate (no CudaBackend in its registry): {CUDA_WHEEL}"
    if not shutil.which("nvcc"):
        return "nvcc is not on PATH: install the CUDA toolkit of the version torch was built for"
    return None


def _no_cpp() -> str | None:
    if not (shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")):
        return "no C++ compiler on PATH: install g++ or clang++"
    # A CMake that pip installed is beside this Python, on PATH or not.
    scripts = sysconfig.get_path("scripts")
    cmake = shutil.which("cmake", path=os.pathsep.join([scripts, os.environ.get("PATH", "")]))
    if not cmake:
        return "CMake is not on PATH: pip install cmake"
    answer = _output([cmake, "--version"]) or ""
    found = re.search(r"version (\d+\.\d+)", answer)
    if not found or Version(found[1]) < CMAKE_AT_LEAST:
        version = found[1] if found else "unknown"
        return f"CMake {version} is too old, {CMAKE_AT_LEAST} is needed: pip install cmake"
    return None


@functools.cache
def _probe() -> dict[str, Any]:
    """What a fresh Python process finds out about this machine."""
    try:
        done = subprocess.run(
            [sys.executable, str(Path(__file__).resolve())],
            capture_output=True,
            text=True,
            timeout=PROBE_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return _machine() | {"error": f"importing it took more than {PROBE_LIMIT_S} s"}
    # Libraries print to stdout while they load: the answer is the last line.
    *_, answer = done.stdout.splitlines() or [""]
    try:
        found: dict[str, Any] = json.loads(answer)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return _machine() | {"error": f"the probe ended with status {done.returncode}: {last}"}
    return found


def _machine() -> dict[str, Any]:
    """What is known without torch and ExecuTorch."""
    asked = (
        "gpu compute_capability driver cuda torch triton executorch executorch_revision delegate"
    )
    unknown = dict.fromkeys([*asked.split(), *OTHERS])
    return unknown | {
        "python": platform.python_version(),
        "os": _os_name(),
        "cpu": _cpu_name(),
        "nvcc": _nvcc_version(),
        "backends": [],
    }


def _inspect() -> dict[str, Any]:
    """Import torch and ExecuTorch and ask them."""
    found = _machine()
    if not _installed():
        return found
    try:
        import executorch.version
        import torch

        # As recipes ask: executorch.runtime imports the exporter, which takes seconds more.
        from executorch.extension.pybindings._C import _get_registered_backend_names

        found["torch"] = torch.__version__
        found["cuda"] = torch.version.cuda
        found["triton"] = _distribution("triton")
        found |= {key: _distribution(package) for key, package in OTHERS.items()}
        found["executorch"] = executorch.version.__version__
        found["executorch_revision"] = executorch.version.git_version
        found["backends"] = list(_get_registered_backend_names())
        if torch.cuda.is_available():
            found["gpu"] = torch.cuda.get_device_name(0)
            major, minor = torch.cuda.get_device_capability(0)
            found["compute_capability"] = f"{major}.{minor}"
            query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"]
            found["driver"] = _output(query)
        if "CudaBackend" in found["backends"]:
            found["delegate"] = _delegate(Path(executorch.version.__file__).parent)
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"
    return found


def _delegate(package: Path) -> dict[str, Any]:
    """Where the CUDA delegate came from: a wheel, or a source commit, and its library's hash."""
    library = package / DELEGATE
    digest = hashlib.sha256(library.read_bytes()).hexdigest() if library.is_file() else None
    note = package / PROVENANCE
    if not note.is_file():
        return {"from": "wheel", "library_sha256": digest}
    said = json.loads(note.read_text(encoding="utf-8"))
    if said.get("library_sha256") != digest:
        raise RuntimeError(f"{PROVENANCE} is about another library than {DELEGATE}")
    return {"from": "source", "commit": said["commit"], "library_sha256": digest}


def _distribution(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _nvcc_version() -> str | None:
    found = re.search(r"release (\S+),", _output(["nvcc", "--version"]) or "")
    return found[1] if found else None


def _os_name() -> str:
    if hasattr(platform, "freedesktop_os_release"):
        try:
            return platform.freedesktop_os_release()["PRETTY_NAME"]
        except OSError:
            pass
    return platform.platform(terse=True)


def _cpu_name() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1].strip() if found else platform.machine()


def _output(command: list[str]) -> str | None:
    """What `command` prints, or None where it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


if __name__ == "__main__":
    print(json.dumps(_inspect()))
