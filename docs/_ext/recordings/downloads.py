"""What a reader downloads of a recipe: a script that says what it needs, with its companions.

sphinx-gallery copies the script and makes a notebook of it. What a page offers are copies of
these with `inline script metadata`_: the versions that the recipe was recorded with. The archive
has the companions, too. Sources are never touched.

.. _inline script metadata: https://packaging.python.org/specifications/inline-script-metadata/
"""

from __future__ import annotations

import io
import json
import re
import tomllib
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

from docutils import nodes
from packaging.requirements import Requirement
from packaging.version import Version
from sphinx import addnodes
from sphinx.application import Sphinx

from recordings.environment import CUDA_WHEEL, OTHERS
from recordings.pages import depend, status_of
from recordings.recipe import Recipe
from recordings.recording import Recording, Status

#: What to install for a module that a recipe imports.
DISTRIBUTIONS = {"executorch": "executorch", "torch": "torch", **OTHERS, "jax": "jax[cuda13]"}
#: Where what pages offer is made, beside what sphinx-gallery makes.
FOLDER = "downloads"
#: A line that imports, in a script or in a text of one that it writes.
IMPORT = re.compile(r"^ *(?:from (\w+)|import (.+))", re.MULTILINE)
#: Where the newest date of a file in an archive counts from: the same content, the same bytes.
EPOCH = (1980, 1, 1, 0, 0, 0)


def requirements(pyproject: Path) -> dict[str, Requirement]:
    """Every requirement of every dependency group, by name; the first group that has it counts.

    Args:
        pyproject: The project's ``pyproject.toml``.
    """
    groups = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("dependency-groups", {})
    found: dict[str, Requirement] = {}
    for lines in groups.values():
        for line in lines:
            if isinstance(line, str):
                one = Requirement(line)
                found.setdefault(one.name, one)
    return found


def imported(of: Recipe) -> list[str]:
    """The modules of :data:`DISTRIBUTIONS` that a recipe or a Python companion imports."""
    found = [one for text in of.python_texts() for one in IMPORT.findall(text)]
    names = {
        name.strip().partition(".")[0].partition(" ")[0]
        for module, several in found
        for name in (module or several).split(",")
    }
    return [name for name in DISTRIBUTIONS if name in names]


def dependencies(of: Recipe, one: Recording | None, known: dict[str, Requirement]) -> list[str]:
    """What to install for a recipe: as recorded, else in the project's range.

    Args:
        of: The recipe.
        one: Its recording, where there is one.
        known: :func:`requirements` of the project.
    """
    found = []
    for module in imported(of):
        distribution = DISTRIBUTIONS[module]
        if one and (version := one.environment.get(module)):
            found.append(f"{distribution}=={Version(version).base_version}")
        elif module in known:
            found.append(f"{distribution}{known[module].specifier}")
        else:
            found.append(distribution)
    if "cpp" in of.needs:
        found.append(f"cmake{known['cmake'].specifier if 'cmake' in known else ''}")
    return found


def metadata(of: Recipe, one: Recording | None, known: dict[str, Requirement]) -> str:
    """The block of inline script metadata for a recipe, as comment lines.

    Args: as :func:`dependencies`.
    """
    lines = []
    if one:
        python = ".".join(one.environment["python"].split(".")[:2])
        lines += [f"# Recorded on {one.date} with", *(f"#   {it}" for it in _recorded_with(one))]
        lines += [f'requires-python = "=={python}.*"']
    wanted = dependencies(of, one, known)
    lines += ["dependencies = [", *(f"  {json.dumps(it)}," for it in wanted), "]"]
    if "cuda" in of.needs:
        # The package index has no CUDA delegate.
        index = CUDA_WHEEL.rpartition(" ")[2]
        lines += ["", "[[tool.uv.index]]", f"url = {json.dumps(index)}"]
    commented = "".join(f"# {line}".rstrip() + "\n" for line in lines)
    return f"# /// script\n{commented}# ///\n"


def _recorded_with(one: Recording) -> list[str]:
    where = one.environment
    names = ("python", "executorch", "torch", "cuda")
    found = [f"{name} {where[name]}" for name in names if where.get(name)]
    if (where.get("delegate") or {}).get("from") == "source":
        found.append(f"a CUDA delegate built from source, commit {where['delegate']['commit']}")
    return found


def notebook(text: str, of: Recipe, block: str) -> str:
    """A notebook of the recipe, with `block` in a first cell.

    A recipe finds its companions beside itself, by ``sys.argv[0]``. A notebook's is that of
    Jupyter, so the cell names the script.
    """
    data = json.loads(text)
    if of.companions:
        block += f'\nimport sys\n\nsys.argv = ["{of.path.name}"]  # companions are beside it\n'
    cell = {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {"collapsed": False},
        "outputs": [],
        "source": block.rstrip("\n").splitlines(keepends=True),
    }
    data["cells"].insert(0, cell)
    return json.dumps(data, indent=1) + "\n"


def archive(files: dict[str, bytes]) -> bytes:
    """A zip file of `files`, by their names in it; equal for equal files."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in files.items():
            made.writestr(zipfile.ZipInfo(name, EPOCH), content, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def offer_downloads(app: Sphinx, doctree: nodes.document) -> None:
    """Have a recipe's page offer our files in the places of sphinx-gallery's.

    They are made when the page is read, which is whenever what is in them changed.
    """
    status = status_of(app.env, app.env.docname)
    if status is None:
        return
    pyproject = Path(app.config.recordings_root, "pyproject.toml")
    depend(app.env, status.recipe.name)
    for path in (pyproject, status.recipe.path, *status.recipe.companions.values()):
        app.env.note_dependency(str(path))
    page = Path(app.srcdir, app.env.docname)
    made = _files(status, page.with_suffix(".ipynb"), requirements(pyproject))
    for node in doctree.findall(addnodes.download_reference):
        old = Path(PurePosixPath(app.env.docname).parent, node["reftarget"])
        if (content := made.get(old.name)) is not None and old in app.env.dlfiles:
            new = old.parent / FOLDER / old.name
            path = Path(app.srcdir, new)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
            del app.env.dlfiles[old]
            node["filename"] = app.env.dlfiles.add_file(app.env.docname, new).as_posix()


def _files(status: Status, made: Path, known: dict[str, Requirement]) -> dict[str, bytes]:
    """The files that a recipe's page offers, by name; `made` is sphinx-gallery's notebook."""
    of = status.recipe
    block = metadata(of, status.shown, known)
    files = {
        f"{of.path.stem}.py": (block + of.path.read_text(encoding="utf-8")).encode(),
        made.name: notebook(made.read_text(encoding="utf-8"), of, block).encode(),
    }
    companions = {name: path.read_bytes() for name, path in of.companions.items()}
    return files | {f"{of.path.stem}.zip": archive(files | companions)}


def name_companions(app: Sphinx, doctree: nodes.document) -> None:
    """Say at the downloads which companions the archive has, and the script alone lacks."""
    status = status_of(app.env, app.env.docname)
    if status is None or not status.recipe.companions:
        return
    for node in doctree.findall(nodes.container):
        if "sphx-glr-footer" in node["classes"]:
            note = nodes.paragraph("", "The script uses other files. The archive has them: ")
            for name in status.recipe.companions:
                note += [nodes.literal("", name), nodes.Text(", ")]
            note[-1] = nodes.Text(".")
            node.insert(0, note)
            return


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.connect("doctree-read", offer_downloads)
    app.connect("doctree-read", name_companions)
    return {"parallel_read_safe": True}
