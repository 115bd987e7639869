"""What makes a recipe another one than was recorded, and what does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from conftest import PACKAGE, Project

SUMS = "gallery/small/sums.py"

KEEPS = {
    "prose of the head": ("Adds two numbers.", "Adds numbers, two of them."),
    "title": ("Sums\n====", "Two sums\n========"),
    "prose between code": ("# First the sum.", "# First, the sum.\n#\n# It is a small one."),
    "comment": ("# three", "# not four"),
    "comment gone": ("  # three", ""),
    "comment moved": ("1 + 2  # three", "1 + 2    # three"),
    "comment line added": ('\nprint("', '\n# Print it.\nprint("'),
    "comment line in an expression": ('    "half"', '    # Half of it.\n    "half"'),
    "code in a comment": ("# three", "# total = 4"),
    "blank line added": ('\nprint("', '\n\nprint("'),
    "blank line gone": ("\n\nfacts =", "\nfacts ="),
    "blank line with spaces": ("\n\nfacts =", "\n   \nfacts ="),
    "tags": ("# %%\n# First", '# sphinx_gallery_tags = ["cpp"]\n\n# %%\n# First'),
    "block of comments": ("# %%\n# Then", "# %%\n# Here.\n\n# A remark.\n\n# %%\n# Then"),
}
CHANGES = {
    "number": ("1 + 2", "1 + 3"),
    "spaces in an expression": ("1 + 2", "1  + 2"),
    "statement added": ("\nprint(text", "\nprint()\nprint(text"),
    "statement gone": ("print(text.upper())\n", ""),
    "text": ('"the sum is"', '"The sum is"'),
    "hash sign in a text": ('"the sum is"', '"the sum # is"'),
    "blank line in a text": ("one\n\ntwo", "one\n\n\ntwo"),
    "blank line of a text gone": ("one\n\ntwo", "one\ntwo"),
    "spaces at a line's end in a text": ("one\n\ntwo", "one \n\ntwo"),
    "line like a comment in a text": ("one\n\ntwo", "one\n# a\ntwo"),
    "indentation": ("\nprint(text", "\nif text:\n    print(text"),
    "fact": ('"half": total / 2', '"half": total / 3'),
    "block split": ("\nprint(text", "\n# %%\n# Print it.\n\nprint(text"),
    "blocks joined": ("# %%\n# Then a longer text.\n", ""),
}
HOSTILE = '''"""
Hostile
=======

What tokenizers have differed about: Ä.
"""

# %%
# Text.

name, β = "é€😀", 1  # 😀 a comment
form = f"{name!r:>{β}}#{'no comment'}"  # a comment
long = (  # a comment

    "#",

)
def function():

    """A text.

    # no comment
    """
    # a comment
    return """
        # no comment

""" + \\
        "x"
# a comment at the end'''


@pytest.mark.parametrize(("old", "new"), KEEPS.values(), ids=KEEPS)
def test_this_keeps_a_recording_current(project: Project, old: str, new: str) -> None:
    project.edit(SUMS, old, new)
    assert project.state() == "current"


@pytest.mark.parametrize(("old", "new"), CHANGES.values(), ids=CHANGES)
def test_this_makes_a_recording_stale(project: Project, old: str, new: str) -> None:
    project.edit(SUMS, old, new)
    assert project.state() == "stale"


def test_the_order_of_blocks_counts(project: Project) -> None:
    text = project.path(SUMS).read_text(encoding="utf-8")
    head, first, second = text.split("# %%\n")
    project.write(SUMS, f"{head}# %%\n{second}\n# %%\n{first}")
    assert project.state() == "stale"


def test_the_order_of_prose_does_not_count(project: Project) -> None:
    project.edit(SUMS, "# First the sum.", "# Then a text.")
    project.edit(SUMS, "# Then a longer text.", "# First the sum.")
    assert project.state() == "current"


def test_line_ends_do_not_count(project: Project) -> None:
    path = project.path(SUMS)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert project.state() == "current"


@pytest.mark.parametrize("mark", ["\f", "\u2028"], ids=ascii)
def test_code_counts_after_a_text_with_a_rare_line_break(project: Project, mark: str) -> None:
    text = f'print("{mark}{mark}{mark}", 1)\nprint(2)\nprint(3)\nprint(4)\n# A comment.\nprint(5)'
    project.edit(SUMS, 'print("the sum is", total)', text)
    project.record("small/sums")
    project.edit(SUMS, "print(2)", "print(22)")
    assert project.state() == "stale"


def test_new_prose_is_on_the_page_with_the_recorded_output(project: Project) -> None:
    project.edit(SUMS, "# First the sum.", "# The sum, to begin with.")
    built = project.build(strict=True)
    assert built.status == 0
    assert "The sum, to begin with." in built.text("recipes/small/sums")
    assert "the sum is 3" in built.text("recipes/small/sums")


def test_what_tools_leave_behind_is_no_companion(project: Project) -> None:
    project.write("gallery/small/sums/__pycache__/helper.pyc", "")
    project.write("gallery/small/sums/.ruff_cache/found", "")
    assert project.state() == "current"


def test_a_companion_may_begin_with_a_dot(project: Project) -> None:
    project.write("gallery/small/sums/.options", "")
    assert project.state() == "stale"


def test_a_companion_in_a_folder_counts(project: Project) -> None:
    project.write("gallery/small/sums/cmake/more.cmake", "")
    assert project.state() == "stale"


def test_a_recipe_whose_name_starts_alike_has_other_companions(project: Project) -> None:
    project.write("gallery/small/sums_of_more/data.txt", "")
    assert project.state() == "current"


def call(python: str, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in another Python, with the packages of this one."""
    path = os.pathsep.join([str(PACKAGE), sysconfig.get_path("purelib")])
    environ = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [python, "-c", f"import pathlib, sys; from recordings import recipe; {code}"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, env=environ)


def other_pythons() -> list[str]:
    """The other Pythons of this machine that the package runs on, one of each version."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [str(path) for path in sorted(pyenv.glob("versions/3.*/bin/python3"))]
    names = [f"python3.{minor}" for minor in range(11, 20)]
    candidates += [path for name in names if (path := shutil.which(name))]
    found = {}
    for python in candidates:
        version = call(python, "print(*sys.version_info[:2])").stdout
        if version and version != "{} {}\n".format(*sys.version_info):
            found[version] = python
    return [*found.values()]


def test_every_python_sees_the_same_identity(project: Project) -> None:
    project.write("gallery/small/hostile.py", HOSTILE)
    others = other_pythons()
    if not others:
        pytest.skip("there is no other Python on this machine")
    code = "print(*(one.code_hash() for one in recipe.find(pathlib.Path(sys.argv[1]))))"
    gallery = str(project.path("gallery"))
    hashes = {python: call(python, code, gallery).stdout for python in (sys.executable, *others)}
    assert hashes[sys.executable].count("sha256:") == 3
    assert set(hashes.values()) == {hashes[sys.executable]}


@pytest.mark.parametrize(
    "line",
    [
        "# sphinx_gallery_start_ignore\n# sphinx_gallery_end_ignore",
        "# sphinx_gallery_companions = ['nothing']",
        "# sphinx_gallery_companions = 'sums'",
        "# sphinx_gallery_tags = 'cuda'",
    ],
)
def test_a_recipe_that_hides_what_it_runs_or_needs_is_refused(project: Project, line: str) -> None:
    project.edit("gallery/small/sums.py", "total = 1 + 2  # three", f"{line}\ntotal = 1 + 2")
    assert project.command("list").status == 2
    assert project.build().status != 0


@pytest.mark.parametrize("tag", ["it's", "a,b", "<b>", "c++", "two words", ""])
def test_a_tag_that_the_filter_cannot_carry_is_refused(project: Project, tag: str) -> None:
    project.recipe("small/sums", "1", tags=repr([tag]))
    listed = project.command("list")
    assert (listed.status, f"the tag {tag!r} is no word" in listed.err) == (2, True)
