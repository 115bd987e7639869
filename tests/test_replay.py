"""Recorded outputs in sphinx-gallery's pages, and the seam that puts them there."""

from __future__ import annotations

import inspect
import re
import sys
import tomllib
from typing import Any

import pytest
import sphinx_gallery
from conftest import REPOSITORY, Project
from docutils import nodes
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from recordings import replay
from sphinx_gallery import gen_rst
from sphinx_gallery.scrapers import ImagePathIterator

# -- the seam ---------------------------------------------------------------------------

PINNED = SpecifierSet(">=0.22,<0.23")
PARAMETERS = ["script_blocks", "script_vars", "gallery_conf", "file_conf"]
VARIABLES = {"execute_script": bool, "image_path_iterator": ImagePathIterator, "src_file": str}


def seam_problems(project: Project, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What of sphinx-gallery is not what the package relies on; has it make real pages."""
    groups = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["dependency-groups"]
    pins = {it.name: it.specifier for it in map(Requirement, groups["docs"])}
    problems = []
    if pins["sphinx-gallery"] != PINNED:
        problems.append(f"pyproject.toml pins sphinx-gallery {pins['sphinx-gallery']}")
    if sphinx_gallery.__version__ not in PINNED:
        problems.append(f"sphinx-gallery {sphinx_gallery.__version__} is not {PINNED}")
    executor = getattr(gen_rst, "execute_script", None)
    if executor is None:
        return [*problems, "gen_rst has no execute_script"]
    if list(inspect.signature(executor).parameters) != PARAMETERS:
        return [*problems, f"execute_script{inspect.signature(executor)}"]

    calls = []

    def spy(blocks: Any, variables: dict[str, Any], *others: Any) -> tuple[list[str], float]:
        outputs, seconds = executor(blocks, variables, *others)
        calls.append(variables["src_file"])
        for name, kind in VARIABLES.items():
            if not isinstance(variables.get(name), kind):
                problems.append(f"script_vars[{name!r}] is {variables.get(name)!r}")
        if outputs != [""] * len(blocks):
            problems.append(f"without execution, the outputs are {outputs}")
        return outputs, seconds

    monkeypatch.setattr(replay, "_execute_script", spy)
    built = project.build()
    if built.status or built.warnings:
        problems.append(f"a build ends with {built.status}: {built.warnings}")
    if len(calls) != 2:
        problems.append(f"a page is not made by one call of execute_script: {calls}")
    streams = sys.stdout, sys.stderr
    tee = gen_rst._LoggingTee("recipe.py").set_std_and_reset_position()
    if getattr(tee, "origs", None) != streams:
        problems.append("what a block prints is captured in another way")
    tee.restore_std()
    config = replay.executor_config(project.root, draws=True)
    if config["capture_repr"] != () or not config["abort_on_example_error"]:
        problems.append("a gallery's defaults are not filled in around what is given")
    return problems


def test_sphinx_gallery_is_what_replay_relies_on(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert seam_problems(project, monkeypatch) == []


def renamed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gen_rst, "execute_blocks", gen_rst.execute_script, raising=False)
    patch.delattr(gen_rst, "execute_script")


def with_another_signature(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gen_rst, "execute_script", lambda blocks, config: ([], 0.0))


def with_another_result(patch: pytest.MonkeyPatch) -> None:
    original = gen_rst.execute_script

    def execute_script(
        script_blocks: Any, script_vars: Any, gallery_conf: Any, file_conf: Any
    ) -> Any:
        outputs, seconds = original(script_blocks, script_vars, gallery_conf, file_conf)
        return [f"{it}\n" for it in outputs], seconds

    patch.setattr(gen_rst, "execute_script", execute_script)


def with_other_variables(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gen_rst, "ImagePathIterator", lambda template: iter([template]))


def of_a_newer_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sphinx_gallery, "__version__", "0.23.0")


@pytest.mark.parametrize(
    "changed",
    [
        renamed,
        with_another_signature,
        with_another_result,
        with_other_variables,
        of_a_newer_version,
    ],
)
def test_a_changed_sphinx_gallery_would_be_noticed(
    project: Project, monkeypatch: pytest.MonkeyPatch, changed: Any
) -> None:
    changed(monkeypatch)
    assert seam_problems(project, monkeypatch)


def test_names_in_code_are_looked_for_where_there_is_documentation(project: Project) -> None:
    found = project.path("docs/recipes/small/curve.codeobj.json")
    intersphinx = (
        "extensions=myst_parser,recordings,sphinx.ext.intersphinx,sphinx_gallery.gen_gallery"
    )
    project.build("-D", intersphinx)
    assert "matplotlib.pyplot" in found.read_text()
    project.build()
    assert not found.exists()


# -- what it shows ----------------------------------------------------------------------

BLOCKS = '''"""
Blocks
======

Text.
"""

# sphinx_gallery_tags = ["many"]

# %%
# One.

print("first output")

# %%
# Two, silent.

silent = True

# %%
# Three.

# A remark, and no code.

# %%
# Four.

# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt

print("fourth output")
plt.plot([1])
plt.show()

# %%
# Five.

plt.plot([2])
plt.figure()
plt.plot([3])
plt.show()
print("fifth output")
'''


def test_outputs_and_figures_stand_below_the_code_they_came_from(project: Project) -> None:
    project.write("gallery/small/blocks.py", BLOCKS)
    project.record("small/blocks")
    html = project.build(strict=True).html("recipes/small/blocks")
    seen = re.findall(
        r"(?:One|Two|Three|Four|Five)[.,]|\w+ output(?=\n)|blocks_\d{3}\.png(?=\")", html
    )
    assert list(dict.fromkeys(seen)) == [
        *("One.", "first output"),
        *("Two,", "Three."),
        *("Four.", "blocks_001.png", "fourth output"),
        *("Five.", "blocks_002.png", "blocks_003.png", "fifth output"),
    ]


def test_what_a_library_says_on_stderr_is_no_output(project: Project) -> None:
    code = "import sys, warnings\nprint('a result')\nwarnings.warn('a warning')\n"
    project.recipe("small/sums", code + "print('a remark', file=sys.stderr)\nprint('another')")
    project.record("small/sums")
    text = project.build(strict=True).text("recipes/small/sums")
    assert "a result another" in text


def test_the_figures_of_a_page_are_the_recorded_files(project: Project) -> None:
    pages = project.build().pages
    shown = [pages / "_images" / f"sphx_glr_curve_00{number}.png" for number in (1, 2)]
    recorded = [figure.read_bytes() for figure in project.figures("small/curve")]
    assert [figure.read_bytes() for figure in shown] == recorded


def test_the_thumbnail_of_a_recipe_is_made_of_its_first_figure(project: Project) -> None:
    project.build()
    thumbnails = project.path("docs/recipes/small/images/thumb")
    with_figure, without = (
        (thumbnails / f"sphx_glr_{name}_thumb.png").read_bytes() for name in ("curve", "sums")
    )
    assert with_figure != without


def test_figures_of_an_earlier_build_go(project: Project) -> None:
    project.build()
    project.edit("gallery/small/curve.py", "[2, 1]", "[2, 2]")
    project.build()
    assert not [*project.path("docs/recipes/small/images").glob("sphx_glr_curve_*")]


def test_a_recipe_whose_name_starts_alike_keeps_its_figures(project: Project) -> None:
    curve = project.path("gallery/small/curve.py").read_text(encoding="utf-8")
    project.write("gallery/small/curve_of_two.py", curve.partition("# %%")[0])
    project.record("small/curve_of_two")
    built = project.build(strict=True)
    assert (built.status, built.warnings) == (0, "")
    assert (built.pages / "_images" / "sphx_glr_curve_of_two_001.png").is_file()


def test_two_callers_have_recipes_of_one_name(project: Project) -> None:
    project.write("gallery/large/GALLERY_HEADER.rst", "Large\n=====\n")
    project.recipe("large/sums", "print('the large one')")
    project.record("large/sums")
    conf = project.path("conf.py").read_text(encoding="utf-8")
    project.write("conf.py", conf + 'suppress_warnings = ["sphinx_gallery.duplicate_filename"]\n')
    built = project.build(strict=True)
    assert (built.status, built.warnings) == (0, "")
    assert "the large one" in built.text("recipes/large/sums")
    assert "the sum is 3" in built.text("recipes/small/sums")


# -- builds that would execute ----------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "option"),
    [
        ('"plot_gallery": True', ()),
        ('"plot_gallery": True, "filename_pattern": r"\\.py"', ()),
        ('"plot_gallery": False, "filename_pattern": r"\\.py"', ("-D", "plot_gallery=1")),
    ],
    ids=["on", "on for every recipe", "on by an option"],
)
def test_a_build_that_is_set_to_execute_is_refused(
    project: Project, setting: str, option: tuple[str, ...]
) -> None:
    ran = project.path("build/ran")
    project.recipe("small/sums", f"open({str(ran)!r}, 'w')")
    project.edit("conf.py", '"plot_gallery": False', setting)
    built = project.build(*option)
    assert built.status != 0
    assert "set plot_gallery to False" in built.warnings
    assert not ran.exists()


GUARDED = """import sys

if sys.version_info < (3,):
    sys.exit(2)

# %%
# Then what it is about.

print("told")
"""


def test_a_page_has_its_guard_folded(project: Project) -> None:
    project.recipe("small/guarded", GUARDED)
    project.record("small/guarded")
    page = project.build().html("recipes/small/guarded")
    (folded,) = re.findall(r'<div class="recipe-guard.*?</details>', page, re.DOTALL)
    assert "version_info" in folded
    assert "told" not in folded
    assert page.count("version_info") == 1


def test_a_page_without_a_guard_has_nothing_folded(project: Project) -> None:
    project.recipe("small/open", GUARDED.replace("sys.exit(2)", "print(2)"))
    project.record("small/open")
    assert "recipe-guard" not in project.build().html("recipes/small/open")


MARKED = """\
# [imports]
import sys

# [/imports]


# [say]
def say(it):
    # [it] is no mark
    print(it)


# [/say]

say("# [imports]")
"""
SHOWN = """\
import sys


def say(it):
    # [it] is no mark
    print(it)


say("# [imports]")"""


def test_a_page_shows_code_without_the_marks_of_excerpts(project: Project) -> None:
    project.recipe("small/marked", MARKED)
    project.record("small/marked")
    built = project.build()
    blocks = built.doctrees()["recipes/small/marked"].findall(nodes.literal_block)
    # The output of a single block is above it.
    assert [block.astext() for block in blocks] == ["# [imports]", SHOWN]


def test_a_build_executes_nothing(project: Project) -> None:
    ran = project.path("build/ran")
    project.recipe("small/sums", f"open({str(ran)!r}, 'w')")
    project.build()
    assert not ran.exists()
