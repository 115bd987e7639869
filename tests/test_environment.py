"""What a machine has, and what it says where something is missing."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from conftest import MACHINE, Project
from packaging.specifiers import SpecifierSet
from recordings import environment

# -- pins -------------------------------------------------------------------------------


def pyproject(folder: Path, text: str) -> Path:
    path = folder / "pyproject.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_pins_are_the_requirements_of_the_group_run(tmp_path: Path) -> None:
    text = '[dependency-groups]\ndocs = ["sphinx"]\nrun = ["torch==2.13.*", "executorch==1.5.1"]'
    pins = environment.pins(pyproject(tmp_path, text))
    assert pins == {"torch": SpecifierSet("==2.13.*"), "executorch": SpecifierSet("==1.5.1")}


def test_an_included_group_is_no_pin(tmp_path: Path) -> None:
    text = '[dependency-groups]\nmore = []\nrun = ["torch==2.13.*", {include-group = "more"}]'
    assert list(environment.pins(pyproject(tmp_path, text))) == ["torch"]


@pytest.mark.parametrize("text", ["", "[dependency-groups]\ndocs = []"])
def test_a_project_without_pins_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match="no dependency group 'run'"):
        environment.pins(pyproject(tmp_path, text))


@pytest.mark.parametrize(
    ("version", "pin", "fits"),
    [
        ("2.13.0", "==2.13.*", True),
        ("2.13.0+cu130", "==2.13.*", True),
        ("2.13.1+cpu", "==2.13.*", True),
        ("1.5.1+cu130", "==1.5.1", True),
        ("1.5.1", "", True),
        (None, "==1.5.1", True),
        ("2.12.1+cu130", "==2.13.*", False),
        ("2.14.0", "==2.13.*", False),
        ("1.5.10", "==1.5.1", False),
        ("1.6.0+cu130", "==1.5.1", False),
    ],
)
def test_a_recorded_version_fits_a_pin_or_has_moved(
    version: str | None, pin: str, fits: bool
) -> None:
    moved = environment.moved_pins({"it": version}, {"it": SpecifierSet(pin)})
    public = str(version).partition("+")[0]
    assert moved == ([] if fits else [("it", public, pin)])


def test_a_package_that_was_not_recorded_has_not_moved() -> None:
    assert environment.moved_pins(MACHINE, {"numpy": SpecifierSet("==2.*")}) == []


# -- needs, on machines made of fakes ---------------------------------------------------

TORCH = """
__version__ = "2.13.0+cu130"

class version:
    cuda = "13.0"

class cuda:
    is_available = staticmethod(lambda: {gpu})
    get_device_name = staticmethod(lambda index: "A GPU")
    get_device_capability = staticmethod(lambda index: (9, 0))
"""


class FakeMachine:
    """A machine with no commands on its PATH, and no torch and ExecuTorch but the fake ones."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.commands, self.packages, self.patch = folder / "bin", folder / "packages", patch
        self.commands.mkdir()
        self.packages.mkdir()
        patch.setenv("PATH", str(self.commands))
        patch.setattr("sysconfig.get_path", lambda *names: str(self.commands))
        patch.setenv("PYTHONPATH", str(self.packages))
        patch.setattr(sys, "path", [str(self.packages), *sys.path])
        environment._probe.cache_clear()

    def command(self, name: str, *lines: str) -> None:
        """Put a command on PATH that prints `lines`."""
        path = self.commands / name
        path.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
        path.chmod(0o755)

    def write(self, name: str, content: str | bytes) -> Path:
        """Write a file of the installed packages."""
        path = self.packages / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def install(self, gpu: bool = False, backends: tuple[str, ...] = (), torch: str = "") -> None:
        """Install a fake torch and a fake ExecuTorch."""
        self.write("torch/__init__.py", torch or TORCH.format(gpu=gpu))
        self.write("executorch/__init__.py", "")
        version = '__version__ = "1.5.1+cu130"\ngit_version = "0123abc"\n'
        self.write("executorch/version.py", version)
        self.write(
            "executorch/extension/pybindings/_C.py",
            f"def _get_registered_backend_names():\n    return {[*backends]!r}\n",
        )

    def deny(self, *names: str) -> None:
        """Have packages not found, even where the tests' own interpreter has them."""

        def find(name: str) -> ModuleSpec | None:
            return None if name in names else find_spec(name)

        self.patch.setattr(environment, "find_spec", find)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMachine]:
    yield FakeMachine(tmp_path, monkeypatch)
    environment._probe.cache_clear()


@pytest.mark.parametrize("absent", [("torch",), ("executorch",), ("torch", "executorch")])
def test_without_executorch_there_is_a_command_that_installs_it(
    fake: FakeMachine, absent: tuple[str, ...]
) -> None:
    fake.install()
    fake.deny(*absent)
    for need in ("executorch", "cuda"):
        reason = environment.missing(need)
        assert reason is not None
        assert reason.startswith("ExecuTorch is not installed: pip install ")


def test_an_installed_executorch_meets_the_need(fake: FakeMachine) -> None:
    fake.install()
    assert environment.missing("executorch") is None


BAD_IMPORTS = {
    "raises": ("raise ImportError('no libcuda')", "ImportError: no libcuda"),
    "crashes": ("import os\nos.abort()", "the probe ended with status -6"),
    "exits": ("raise SystemExit('no licence')", "the probe ended with status 1: no licence"),
    "prints and crashes": ("import os\nprint('{', flush=True)\nos._exit(3)", "with status 3"),
    "hangs": ("import time\ntime.sleep(60)", "importing it took more than 1 s"),
}


@pytest.mark.parametrize(("torch", "said"), BAD_IMPORTS.values(), ids=BAD_IMPORTS)
def test_an_import_that_goes_wrong_is_a_reason(
    fake: FakeMachine, monkeypatch: pytest.MonkeyPatch, torch: str, said: str
) -> None:
    monkeypatch.setattr(environment, "PROBE_LIMIT_S", 1 if "sleep" in torch else 60)
    fake.install(torch=torch)
    for reason in environment.unmet(("executorch", "cuda")):
        assert reason.startswith("ExecuTorch cannot be imported: ")
        assert said in reason
    assert environment.missing("executorch")


@pytest.mark.parametrize(("torch", "said"), BAD_IMPORTS.values(), ids=BAD_IMPORTS)
def test_a_machine_whose_import_goes_wrong_is_described_all_the_same(
    fake: FakeMachine, monkeypatch: pytest.MonkeyPatch, torch: str, said: str
) -> None:
    monkeypatch.setattr(environment, "PROBE_LIMIT_S", 1 if "sleep" in torch else 60)
    fake.install(torch=torch)
    described = environment.describe()
    assert described.keys() == MACHINE.keys()
    assert described["python"] == ".".join(map(str, sys.version_info[:3]))
    assert described["executorch"] is None


CUDA = {
    "no GPU": ({"gpu": False, "backends": ("CudaBackend",)}, "nvcc", "no CUDA device"),
    "no delegate": ({"gpu": True, "backends": ("XnnpackBackend",)}, "nvcc", "no CUDA delegate"),
    "no nvcc": ({"gpu": True, "backends": ("CudaBackend",)}, "other", "nvcc is not on PATH"),
}


@pytest.mark.parametrize(("has", "command", "said"), CUDA.values(), ids=CUDA)
def test_a_machine_without_a_part_of_cuda_names_it(
    fake: FakeMachine, has: dict[str, Any], command: str, said: str
) -> None:
    fake.install(**has)
    fake.command(command)
    reason = environment.missing("cuda")
    assert reason is not None
    assert said in reason


def test_a_cuda_machine_meets_the_need(fake: FakeMachine) -> None:
    fake.install(gpu=True, backends=("CudaBackend",))
    fake.command("nvcc")
    assert environment.missing("cuda") is None


CPP = {
    "no compiler": ({"cmake": "cmake version 3.30.1"}, "no C++ compiler on PATH"),
    "no CMake": ({"c++": ""}, "CMake is not on PATH"),
    "old CMake": ({"c++": "", "cmake": "cmake version 3.27.9"}, "CMake 3.27 is too old, 3.28"),
    "very old CMake": ({"c++": "", "cmake": "cmake version 2.8.12"}, "CMake 2.8 is too old"),
    "CMake that says nothing": ({"c++": "", "cmake": ""}, "CMake unknown is too old"),
}


@pytest.mark.parametrize(("has", "said"), CPP.values(), ids=CPP)
def test_a_machine_without_a_part_of_cpp_names_it(
    fake: FakeMachine, has: dict[str, str], said: str
) -> None:
    for name, line in has.items():
        fake.command(name, line)
    reason = environment.missing("cpp")
    assert reason is not None
    assert said in reason


@pytest.mark.parametrize("compiler", ["c++", "g++", "clang++"])
@pytest.mark.parametrize("version", ["3.28.0", "3.31.6", "4.1.0"])
def test_a_machine_with_compiler_and_cmake_meets_the_need(
    fake: FakeMachine, compiler: str, version: str
) -> None:
    fake.command(compiler)
    fake.command("cmake", f"cmake version {version}", "", "CMake suite")
    assert environment.missing("cpp") is None


def test_unmet_needs_have_a_reason_each(fake: FakeMachine) -> None:
    fake.deny("torch")
    assert len(environment.unmet(("executorch", "cpp"))) == 2


# -- what a recording says of a machine -------------------------------------------------


def test_a_machine_is_described_in_full(fake: FakeMachine) -> None:
    fake.install(gpu=True, backends=("CudaBackend",))
    fake.command("nvidia-smi", "580.159")
    fake.command("nvcc", "Cuda compilation tools, release 13.0, V13.0.88")
    described = environment.describe()
    assert described.keys() == MACHINE.keys()
    # These are what the machine that runs the tests has.
    varying = dict.fromkeys(["triton", "python", "os", "cpu", *environment.OTHERS])
    assert described | varying == {
        "gpu": "A GPU",
        "compute_capability": "9.0",
        "driver": "580.159",
        "cuda": "13.0",
        "nvcc": "13.0",
        "torch": "2.13.0+cu130",
        "triton": None,
        "executorch": "1.5.1+cu130",
        "executorch_revision": "0123abc",
        "delegate": {"from": "wheel", "library_sha256": None},
        "python": None,
        "os": None,
        "cpu": None,
        "numpy": None,
        "matplotlib": None,
        "cupy": None,
        "jax": None,
        "flatbuffers": None,
    }


def test_noise_of_a_library_does_not_disturb(fake: FakeMachine) -> None:
    noise = "print('loading 1 of 2')\nimport sys\nprint('warning', file=sys.stderr)\n"
    fake.install(torch=noise + TORCH.format(gpu=False))
    assert environment.describe()["torch"] == "2.13.0+cu130"


LIBRARY = f"executorch/{environment.DELEGATE}"
NOTE = f"executorch/{environment.PROVENANCE}"


def with_delegate(fake: FakeMachine, **note: str) -> str:
    """Install a delegate and a note on where it came from; return its library's hash."""
    fake.install(gpu=True, backends=("CudaBackend",))
    fake.command("nvcc")
    fake.write(LIBRARY, b"a library")
    if note:
        fake.write(NOTE, json.dumps(note))
    return hashlib.sha256(b"a library").hexdigest()


def test_a_delegate_without_a_note_is_the_wheels(fake: FakeMachine) -> None:
    digest = with_delegate(fake)
    assert environment.describe()["delegate"] == {"from": "wheel", "library_sha256": digest}


def test_a_delegate_with_a_note_is_of_its_commit(fake: FakeMachine) -> None:
    digest = hashlib.sha256(b"a library").hexdigest()
    with_delegate(fake, commit="cff6f4dd", library_sha256=digest)
    assert environment.describe()["delegate"] == {
        "from": "source",
        "commit": "cff6f4dd",
        "library_sha256": digest,
    }


def test_a_note_about_another_library_is_a_reason_not_to_run(fake: FakeMachine) -> None:
    with_delegate(fake, commit="cff6f4dd", library_sha256="0" * 64)
    reason = environment.missing("cuda")
    assert reason is not None
    assert f"{environment.PROVENANCE} is about another library" in reason


# -- the command ------------------------------------------------------------------------


def test_doctor_says_what_can_run_and_what_is_missing(project: Project, fake: FakeMachine) -> None:
    fake.deny("torch")
    fake.command("c++")
    fake.command("cmake", "cmake version 4.1.0")
    project.recipe("small/device", "", tags='["cuda", "cpp"]')
    lines = [" ".join(line.split()) for line in project.command("doctor").out.splitlines()]
    executorch, cuda, cpp, *recipes = lines
    assert executorch.startswith("missing executorch: ExecuTorch is not installed: pip install")
    assert cuda.startswith("missing cuda: ")
    assert cpp.startswith("ok cpp: ")
    assert recipes == ["can run small/curve", "lacks small/device: cuda", "can run small/sums"]
