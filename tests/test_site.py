"""This site: what its pages show was run, and what its README says is what CI does."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import MADE, PATH, REPOSITORY, Build, Project
from docutils import nodes
from markdown_it import MarkdownIt
from packaging.requirements import Requirement
from recordings import environment, recipe, recording

GALLERY = REPOSITORY / "gallery"
RECIPES = recipe.find(GALLERY)
PINS = environment.pins(REPOSITORY / "pyproject.toml")
every_recipe = pytest.mark.parametrize("one", RECIPES, ids=[one.name for one in RECIPES])


def files_below(folder: Path) -> Iterator[Path]:
    """The project's own files."""
    for path in sorted(folder.iterdir()):
        if any(path.match(pattern) for pattern in MADE):
            continue
        if path.is_dir():
            yield from files_below(path)
        else:
            yield path


FILES = [*files_below(REPOSITORY)]


# -- code on pages ----------------------------------------------------------------------

#: The commands that pages and the README may show without a recipe behind them.
COMMANDS = (
    r"make [a-z]+( (RECIPE|PYTHON)=\S+)*",
    r"python gallery/\S+\.py",
    r"python gallery/anywhere/inspect_pte\.py \w+\.pte( --caller (python|cpp))?",
    re.escape(environment.CUDA_WHEEL),
    r"python3 -m pip install --group docs --group run",
)


def command_problems(text: str) -> list[str]:
    """What of a console block is no known command."""
    lines = [line for line in text.splitlines() if line.strip()]
    known = re.compile(rf"\$ ({'|'.join(COMMANDS)})")
    return [f"unknown command: {line}" for line in lines if not known.fullmatch(line)]


def code_problems(page: nodes.document, run: set[Path]) -> list[str]:
    """The code blocks of a page that come from no file that is run, and do not say why."""
    problems = []
    for block in page.findall(nodes.literal_block):
        start = block.astext()[:60]
        captions = [it.astext() for it in block.parent.findall(nodes.caption)]
        if source := block.get("source"):
            if Path(source).resolve() not in run:
                problems.append(f"{source} is not run: {start}")
        elif "untested" in block["classes"]:
            if block.parent.get("literal_block") is None or not any(captions):
                problems.append(f"untested, and no caption says why: {start}")
        elif block.get("language") == "console":
            problems += command_problems(block.astext())
        elif "recorded" not in block:
            problems.append(f"not from a file that is run: {start}")
    return problems


def run_files(gallery: Path) -> set[Path]:
    """Every recipe and every companion."""
    recipes = recipe.find(gallery)
    files = [path for one in recipes for path in (one.path, *one.companions.values())]
    return {path.resolve() for path in files}


def pages(built: Build) -> dict[str, nodes.document]:
    """The pages of a build that sphinx-gallery did not make."""
    found = built.doctrees()
    return {name: page for name, page in found.items() if not name.startswith("recipes/")}


def test_every_code_block_comes_from_a_file_that_is_run(site: tuple[Project, Build]) -> None:
    project, built = site
    run = run_files(project.path("gallery"))
    problems = {name: code_problems(page, run) for name, page in pages(built).items()}
    assert {name: found for name, found in problems.items() if found} == {}


def test_every_include_finds_its_part_of_the_file(site: tuple[Project, Build]) -> None:
    sentences = r"(?:pattern not found|Object named|Include file).*"
    assert re.findall(sentences, site[1].warnings) == []


def test_every_fact_resolves(site: tuple[Project, Build]) -> None:
    assert re.findall(r".*fact '.*", site[1].warnings) == []
    assert [
        name for name, page in pages(site[1]).items() if "(not recorded)" in page.astext()
    ] == []


def test_the_site_quotes_facts(site: tuple[Project, Build]) -> None:
    quoted = [it for page in pages(site[1]).values() for it in page.findall(nodes.inline)]
    assert len([it for it in quoted if "fact" in it["classes"]]) > 10


# -- what readers find ------------------------------------------------------------------

#: What a reader pastes into the search, and the page that has to come first.
SEARCHES = {
    "0x12": "reference/errors",
    "0x10": "reference/errors",
    "set_output": "shapes/unplanned",
    "clone_outputs": "guides/keep-a-result",
    "skip_d2h": "reference/configurations",
    "skip_h2d_for_method_inputs": "reference/configurations",
    "alloc_graph_output": "reference/configurations",
}


@pytest.fixture(scope="module")
def search_index(site: tuple[Project, Build]) -> dict[str, Any]:
    text = (site[1].pages / "searchindex.js").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    return found


@pytest.mark.parametrize(("text", "page"), SEARCHES.items(), ids=SEARCHES)
def test_the_search_finds_codes_and_flags(
    search_index: dict[str, Any], site: tuple[Project, Build], text: str, page: str
) -> None:
    # A main entry of the index comes before all pages that only hold the word.
    entries = [it for it in search_index["indexentries"][text] if it[2]]
    assert [search_index["docnames"][number] for number, *_ in entries] == [page]
    assert text in site[1].text(page)


PATH_OF_A_READER = [
    "index",
    "shapes/choosing",
    "shapes/planned",
    "shapes/unplanned",
    "shapes/inputs",
    "guides/index",
]


def next_page(built: Build, page: str) -> str:
    (link,) = re.findall(r'<link rel="next" [^>]*href="([^"]*)"', built.html(page))
    return os.path.normpath(Path(page).parent / link).removesuffix(".html")


def test_next_follows_the_path_of_a_reader(site: tuple[Project, Build]) -> None:
    found = [next_page(site[1], page) for page in PATH_OF_A_READER[:-1]]
    assert found == PATH_OF_A_READER[1:]


def test_parts_follow_each_other_as_a_reader_needs_them(site: tuple[Project, Build]) -> None:
    page, met = "index", []
    while page != "project/contributing":
        page = next_page(site[1], page)
        met.append(page.partition("/")[0])
    parts = ["shapes", "guides", "recipes", "reference", "project"]
    assert [part for part, before in zip(met, ["", *met], strict=False) if part != before] == parts


def test_pages_load_nothing_from_elsewhere(site: tuple[Project, Build]) -> None:
    loads = re.compile(r"<(?:script|img|iframe|source|object|link(?! rel=.canonical))\b[^>]*>")
    for page in site[1].pages.rglob("*.html"):
        for tag in loads.findall(page.read_text(encoding="utf-8")):
            assert not re.search(r"""(?:src|href|data)=["'](?:\w+:)?//""", tag), f"{page}: {tag}"
    for sheet in site[1].pages.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.search(r"""(?:url\(|@import )["']?(?:\w+:)?//""", text), sheet


def test_the_theme_s_script_for_custom_icons_is_left_out(site: tuple[Project, Build]) -> None:
    page = site[1].html("index")
    assert "fontawesome.js" not in page
    assert "bootstrap.js" in page


def test_tabs_of_one_language_are_synchronized() -> None:
    keys = {"Python": "python", "C++": "cpp"}
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        for title, key in re.findall(r":\{tab-item\} (.*)\n(?::sync: (.*)\n)?", text):
            assert keys[title] == key, path


REFUSED = {
    "fence": "```python\nx = 1\n```",
    "fence without a language": "```\nx = 1\n```",
    "indented": "    x = 1",
    "code-block": "```{code-block} cpp\nint x;\n```",
    "file that is not run": "```{literalinclude} ../conf.py\n```",
    "file that is no companion": "```{literalinclude} ../gallery/small/stray.txt\n```",
    "untested without a reason": "```{code-block} python\n:class: untested\nx = 1\n```",
    "unknown command": "```console\n$ make test\n$ rm -rf build\n```",
    "output of a command": "```console\n$ make test\n3 passed\n```",
    "in a note": "````{note}\n```python\nx = 1\n```\n````",
}
ACCEPTED = {
    "recipe": "```{literalinclude} ../gallery/small/sums.py\n```",
    "companion": "```{literalinclude} ../gallery/small/sums/data.txt\n:caption: Data\n```",
    "recorded": "```{recorded} small/sums:error\n```",
    "untested with a reason": "```{code-block} python\n:class: untested\n:caption: Why\nx = 1\n```",
    "commands": "```console\n$ make test\n$ python gallery/small/sums.py\n```",
}


@pytest.mark.parametrize(
    ("text", "accepted"),
    [*((it, False) for it in REFUSED.values()), *((it, True) for it in ACCEPTED.values())],
    ids=[*REFUSED, *ACCEPTED],
)
def test_the_check_of_code_blocks_tells_run_from_not_run(
    project: Project, text: str, accepted: bool
) -> None:
    project.write("gallery/small/stray.txt", "")
    project.write("docs/index.md", f"# Small\n\nText.\n\n{text}\n")
    page = pages(project.build())["index"]
    assert bool(code_problems(page, run_files(project.path("gallery")))) != accepted


# -- the README and CI ------------------------------------------------------------------

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
TEXTS = [path for path in FILES if path.suffix == ".md"]


def readme_blocks(section: str = "") -> list[str]:
    """The code blocks of the README, or of one of its sections."""
    text = README.partition(f"## {section}\n")[2].partition("\n## ")[0] if section else README
    return [it.content for it in MarkdownIt().parse(text) if it.type in ("fence", "code_block")]


def test_the_readme_shows_commands_only() -> None:
    assert [problem for block in readme_blocks() for problem in command_problems(block)] == []


def test_ci_runs_the_test_command_of_the_readme() -> None:
    *_, last = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8").strip().splitlines()
    assert readme_blocks("Test") == [f"$ {last}\n"]
    assert last == "make test"


def test_ci_can_be_run() -> None:
    assert os.access(REPOSITORY / ".ci" / "run", os.X_OK)


def test_every_target_that_is_named_exists() -> None:
    found = {it for path in TEXTS for it in re.findall(r"(?:`|\$ )make ([a-z]+)", path.read_text())}
    assert {"html", "test", "record", "verify"} <= found
    environ = {key: it for key, it in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    for target in sorted(found):
        command = ["make", "-n", target, "PYTHON=python3"]
        done = subprocess.run(command, cwd=REPOSITORY, env=environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_every_recipe_that_is_named_exists() -> None:
    names = {one.name for one in RECIPES}
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        named = re.findall(r"RECIPE=([\w/]+)|gallery/(\w+/\w+)\.py", text)
        assert {either or other for either, other in named} <= names, path


def test_the_readme_says_the_license() -> None:
    assert "BSD-3-Clause" in README
    assert "Redistribution and use" in (REPOSITORY / "LICENSE").read_text(encoding="utf-8")


# -- recipes ----------------------------------------------------------------------------

#: What a recipe needs by the folder it is in, and what it must not need.
NEEDS = {
    "python": ({"executorch", "cuda"}, set()),
    "cpp": ({"executorch", "cuda", "cpp"}, set()),
    "anywhere": (set(), {"cuda"}),
}


@every_recipe
def test_a_recipe_declares_its_needs(one: recipe.Recipe) -> None:
    needed, excluded = NEEDS[one.path.parent.name]
    assert one.needs
    assert needed <= set(one.needs)
    assert not excluded & set(one.needs)


def problems(status: int, out: str, err: str, folder: Path) -> list[str]:
    """What is not as it should be when a recipe lacks something and was started in `folder`."""
    found = [] if status == 2 else [f"its exit status is {status}"]
    if not re.fullmatch(r"[A-Z].{20,250}\n", err):
        found.append(f"it does not say one sentence: {err}")
    if "folder" in err:
        found.append(f"its folder is there: {err}")
    return found + [f"it printed {out}"] * bool(out) + os.listdir(folder)


@every_recipe
def test_a_recipe_without_any_package_says_what_it_lacks(
    one: recipe.Recipe, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(one.path)],
        cwd=tmp_path,
        env=os.environ | {"PATH": PATH},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert problems(done.returncode, done.stdout, done.stderr, tmp_path) == []


#: Starts scripts, each in a folder and a process of its own. All are forks of one process that has
#: imported what takes seconds.
STARTER = """
import json, os, runpy, sys
import torch, executorch.extension.pybindings._C

sys.dont_write_bytecode = True
for script, folder, path in json.load(sys.stdin):
    if os.fork() == 0:
        os.chdir(folder)
        os.environ["PATH"] = path
        for number, stream in enumerate(("out", "err"), 1):
            os.dup2(os.open(f"{folder}.{stream}", os.O_WRONLY | os.O_CREAT), number)
        sys.argv = [script]
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as ended:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ended.code)  # leaving in good order takes as long as the imports
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


def start(scripts: list[tuple[Path, str]], folder: Path) -> list[tuple[int, str, str, Path]]:
    """Start scripts, each with a search path; their statuses, what they printed, their folders."""
    folders = [folder / str(number) for number in range(len(scripts))]
    for one in folders:
        one.mkdir()
    asked = [(str(it[0]), str(one), it[1]) for it, one in zip(scripts, folders, strict=True)]
    done = subprocess.run(
        [sys.executable, "-c", STARTER],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    printed = [[Path(f"{one}.{it}").read_text() for it in ("out", "err")] for one in folders]
    statuses = map(int, done.stdout.split())
    return [
        (status, out, err, one)
        for status, (out, err), one in zip(statuses, printed, folders, strict=True)
    ]


@pytest.fixture(scope="module")
def starts(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, tuple[int, str, str, Path]]:
    """Starts of all recipes that lack something here, by name.

    Where a machine lacks nothing that a recipe needs, its compilers are taken away.
    """
    folder, none = tmp_path_factory.mktemp("starts"), str(tmp_path_factory.mktemp("none"))
    asked = {}
    for one in RECIPES:
        can_run = not environment.unmet(one.needs)
        if not can_run or {"cpp", "cuda"} & set(one.needs):
            asked[one.name] = one.path, none if can_run else PATH
    return dict(zip(asked, start([*asked.values()], folder), strict=True))


@every_recipe
def test_a_recipe_says_what_this_machine_lacks(
    one: recipe.Recipe, starts: dict[str, tuple[int, str, str, Path]]
) -> None:
    if one.name not in starts:
        pytest.skip("this machine has all that it needs, and it needs no command")
    assert problems(*starts[one.name]) == []


def test_a_recipe_without_a_folder_says_where_that_is(tmp_path: Path) -> None:
    scripts, said = [], []
    for one in RECIPES:
        folders = {name.partition("/")[0] for name in one.companions}
        for missing in sorted(folders):
            copy = tmp_path / f"{len(scripts)}" / one.path.name
            copy.parent.mkdir()
            shutil.copy(one.path, copy)
            for folder in folders - {missing}:
                shutil.copytree(one.path.parent / folder, copy.parent / folder)
            scripts.append((copy, PATH))
            guard = rf"\bfolders? .*\b{missing} .*\(in the archive on its page\)"
            said.append(rf"{guard}|\bin the folder {missing}\b")
    (tmp_path / "starts").mkdir()
    assert len(scripts) > 15
    for wanted, (status, _, err, _) in zip(said, start(scripts, tmp_path / "starts"), strict=True):
        assert status == 2
        assert re.search(wanted, err), err


# -- recordings -------------------------------------------------------------------------


@every_recipe
def test_the_committed_recording_is_current(one: recipe.Recipe) -> None:
    status = recording.status(one, GALLERY / "recordings", PINS)
    assert (status.state, status.reasons) == (recording.State.CURRENT, ())


@every_recipe
def test_a_recipe_that_needs_cuda_was_recorded_on_a_gpu(one: recipe.Recipe) -> None:
    found = recording.read(GALLERY / "recordings", one.name)
    assert found is not None
    assert found.environment["executorch"]
    assert bool(found.environment["gpu"] and found.environment["delegate"]) >= ("cuda" in one.needs)


def test_every_file_among_the_recordings_belongs_to_one() -> None:
    folder = GALLERY / "recordings"
    named = set()
    for one in RECIPES:
        if found := recording.read(folder, one.name):
            figures = (found.figure_path(folder, name) for name in found.figures)
            named |= {recording.path_of(folder, one.name), *figures}
    assert {path for path in folder.rglob("*") if path.is_file()} == named


def test_recipes_that_run_anywhere_still_do_as_recorded() -> None:
    names = [one.name for one in RECIPES if "cuda" not in one.needs]
    assert "anywhere/host_rehearsal" in names
    done = Project(REPOSITORY).process("verify", *names, "--jobs", "2")
    assert done.status == 0, done.err


# -- files ------------------------------------------------------------------------------


def test_no_file_names_a_place_on_one_machine() -> None:
    place = re.compile(r"/(?:work|root|home|opt)/\w+")
    # In two parts, since this file is one of those that are looked at.
    hosts = r"py" r"pi\.org|python" r"hosted\.org"
    index = re.compile(rf"{hosts}|index-url[ =](?!https://download\.pytorch\.)")
    found = {}
    for path in FILES:
        text = path.read_bytes().decode("utf-8", "ignore")
        if hits := [*place.findall(text), *index.findall(text)]:
            found[path.relative_to(REPOSITORY).as_posix()] = hits
    assert found == {}


def test_dependencies_are_declared_in_one_file() -> None:
    names = ("requirements*", "constraints*", "setup.*", "Pipfile*", "environment.y*", "tox.ini")
    assert [path for path in FILES if any(path.match(name) for name in names)] == []


def test_every_version_that_is_named_is_the_pinned_one() -> None:
    requirement = re.compile(rf"\b({'|'.join(PINS)})==(\d[\d.]*\d)(\.\*)?(\+\w+)?")
    for path in FILES:
        if path.suffix in (".py", ".md", ".rst", ".txt") and "tests" not in path.parts:
            for name, version, *_ in requirement.findall(path.read_text(encoding="utf-8")):
                assert PINS[name].contains(version), f"{path} names {name}=={version}"


def test_documentation_needs_nothing_that_recipes_run_on() -> None:
    groups = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["dependency-groups"]
    names = {Requirement(line).name for line in groups["docs"]}
    assert not names & PINS.keys()


CPP_FILES = [str(path) for path in FILES if path.suffix in (".cpp", ".h", ".cu")]
GATES = {
    "ruff format": [sys.executable, "-m", "ruff", "format", "--check", "."],
    "ruff check": [sys.executable, "-m", "ruff", "check", "."],
    "mypy": [sys.executable, "-m", "mypy"],
    "sphinx-lint": [sys.executable, "-m", "sphinxlint", "-i", "docs/recipes", "docs", "gallery"],
    "clang-format": ["clang-format", "--dry-run", "-Werror", *CPP_FILES],
}


@pytest.mark.parametrize("command", GATES.values(), ids=GATES)
def test_the_code_passes(command: list[str]) -> None:
    tool = shutil.which(command[0], path=PATH)
    assert tool, f"{command[0]} is not installed; it is in the group `test`"
    done = subprocess.run([tool, *command[1:]], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
