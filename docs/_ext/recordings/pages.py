"""What readers see: stamps and banners on recipe pages, facts in prose, tables of facts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from recordings import environment, recipe, recording, replay
from recordings.recording import Recording, State, Status, stamp_text
from recordings.run import PAGES

logger = logging.getLogger(__name__)

#: Stands for the list of all recipes among their states.
ALL = "all"
#: What a banner says first; the reasons follow.
BANNERS = {
    State.STALE: "This recipe changed after its last run. Its outputs are left out until it is"
    " recorded again. What changed:",
    State.OUTDATED: "These outputs were recorded with other versions than this site is about:",
    State.MISSING: "This recipe has no outputs:",
    State.BROKEN: "The recording of this recipe cannot be trusted and is not shown:",
}
#: A line that is there for ``literalinclude`` alone: ``# [name]``, ``// [/name]``.
MARK = re.compile(r"^ *(?:#|//) \[/?[\w-]+\] *(?:\n|$)", re.MULTILINE)
#: What a recipe whose first block is a guard does in it.
GUARD = "sys.exit(2)"
#: The environment in the stamp's fold-out: key of the recording, and what readers see.
ENVIRONMENT = {
    "gpu": "GPU",
    "compute_capability": "Compute capability",
    "driver": "Driver",
    "cuda": "CUDA (torch)",
    "nvcc": "nvcc",
    "torch": "torch",
    "triton": "Triton",
    "numpy": "NumPy",
    "matplotlib": "Matplotlib",
    "cupy": "CuPy",
    "jax": "JAX",
    "flatbuffers": "FlatBuffers",
    "executorch": "ExecuTorch",
    "executorch_revision": "ExecuTorch revision",
    "delegate": "CUDA delegate",
    "python": "Python",
    "os": "Operating system",
    "cpu": "CPU",
}


def statuses(env: BuildEnvironment) -> dict[str, Status]:
    """The status of every recipe in this build, by name."""
    found: dict[str, Status] = env.recordings_statuses  # type: ignore[attr-defined]
    return found


def status_of(env: BuildEnvironment, page: str) -> Status | None:
    """The status of the recipe whose page this is; None where it is another page."""
    folder, _, name = page.partition("/")
    return statuses(env).get(name) if folder == PAGES else None


def is_committed(status: Status, config: Config) -> bool:
    """Whether what is shown is committed; the other is what this machine ran for this build."""
    return status.folder == Path(config.recordings_root, config.recordings_folder)


def ran_text(status: Status, config: Config, *, seconds: bool = True) -> str:
    """The stamp of what `status` shows, and whether that is not committed; or why there is none."""
    if status.shown is None:
        return "; ".join(status.reasons)
    text = stamp_text(status.recipe, status.shown, seconds=seconds)
    return text if is_committed(status, config) else f"{text} · this machine, not recorded"


# -- reading the recordings -----------------------------------------------------------


def load_statuses(app: Sphinx) -> None:
    """Read every recipe and recording, say which are not current, and hand them on."""
    root = Path(app.config.recordings_root)
    gallery = (root / app.config.recordings_gallery).resolve()
    folders = [root / app.config.recordings_folder]
    if app.config.recordings_local:
        folders.append(root / app.config.recordings_local)
    try:
        pinned = environment.pins(root / "pyproject.toml")
        recipes = recipe.find(gallery)
        found = {one.name: recording.best_status(one, folders, pinned) for one in recipes}
        if app.config.recordings_run and any(
            it.state is not State.CURRENT for it in found.values()
        ):
            _run_locally(root)
            found = {one.name: recording.best_status(one, folders, pinned) for one in recipes}
    except (recipe.RecipeError, ValueError) as error:
        raise ExtensionError(str(error)) from error
    app.env.recordings_statuses = found  # type: ignore[attr-defined]
    for pages in (Path(app.srcdir, PAGES), Path(app.outdir, PAGES)):
        _sweep(pages, found)
    for name, status in found.items():
        if status.folder not in (None, folders[0]):
            # A local run is shown instead: what is committed needs attention all the same.
            status = recording.status(status.recipe, folders[0], pinned)
        if status.state is not State.CURRENT:
            say = logger.error if status.state is State.BROKEN else logger.warning
            say(
                "recipe %s is %s: %s; run `make record RECIPE=%s` on a machine that has: %s",
                name,
                status.state.value,
                "; ".join(status.reasons),
                name,
                ", ".join(status.recipe.needs) or "only Python",
                type="recordings",
                subtype=status.state.value,
            )
    _note_states(app, found)
    replay.link_names(possible="sphinx.ext.intersphinx" in app.extensions)
    replay.install(found, app.config.sphinx_gallery_conf)


def _run_locally(root: Path) -> None:
    """Run what is not current and can run here. It says what fails; a build goes on without."""
    package = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "recordings", "--root", str(root), "run", "--local"]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": path})


def _sweep(pages: Path, found: Mapping[str, Status]) -> None:
    """Remove what was made in `pages` of recipes that are gone."""
    for page in [*pages.glob("*/*.rst"), *pages.glob("*/*.html")]:
        if page.stem != "index" and f"{page.parent.name}/{page.stem}" not in found:
            for pattern in (f"{page.stem}.*", f"*/{page.stem}.*"):
                for made in page.parent.glob(pattern):
                    made.unlink(missing_ok=True)


def _note_states(app: Sphinx, found: dict[str, Status]) -> None:
    """Keep a small file for each recipe that changes exactly when what pages show of it does."""
    texts = {ALL: "\n".join(found)}
    for name, status in found.items():
        shown = status.shown.digest() if status.shown else ""
        of = status.recipe
        texts[name] = "\n".join(
            [of.title, *of.tags, status.state.value, *status.reasons, str(status.folder), shown]
        )
    for left in _state_file(app.env, ALL).parent.rglob("*.state"):
        if left not in {_state_file(app.env, name) for name in texts}:
            left.unlink()
    for name, text in texts.items():
        file = _state_file(app.env, name)
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")


def _state_file(env: BuildEnvironment, name: str) -> Path:
    return Path(env.doctreedir, "recordings", f"{name}.state")


def depend(env: BuildEnvironment, name: str) -> None:
    """Have the current page read again when what it shows of the recipe `name` changes.

    While there is no such recipe there is no such file, and the page is read every time.
    """
    env.note_dependency(str(_state_file(env, name)))


# -- words ----------------------------------------------------------------------------


def _environment_text(key: str, value: Any) -> str:
    if key != "delegate":
        return str(value)
    if value["from"] == "wheel":
        return f"from the wheel; library {value['library_sha256']}"
    return f"built from source commit {value['commit']}; library {value['library_sha256']}"


# -- recipe pages ---------------------------------------------------------------------


def add_stamp(app: Sphinx, doctree: nodes.document) -> None:
    """Put the stamp, or the banner, below the title of a recipe's page."""
    status = status_of(app.env, app.env.docname)
    title = next(doctree.findall(nodes.title), None)
    if status is None or title is None:
        return
    depend(app.env, status.recipe.name)
    below: list[nodes.Node] = []
    if status.state is not State.CURRENT:
        below.append(_banner(status))
    if status.shown:
        below.append(_stamp(status.shown, ran_text(status, app.config)))
    title.parent[1:1] = below


def _banner(status: Status) -> nodes.Node:
    text = f"{BANNERS[status.state]} {'; '.join(status.reasons)}."
    banner = nodes.warning("", nodes.paragraph("", text))
    banner["classes"] += ["recording-banner", f"recording-{status.state.value}"]
    return banner


def _stamp(one: Recording, text: str) -> nodes.Node:
    rows = nodes.field_list()
    for key, label in ENVIRONMENT.items():
        if value := one.environment.get(key):
            body = nodes.field_body("", nodes.paragraph("", _environment_text(key, value)))
            rows += nodes.field("", nodes.field_name("", label), body)
    return nodes.container("", *_folded(text, rows), classes=["recording-stamp"])


def fold_guard(app: Sphinx, doctree: nodes.document) -> None:
    """Have a recipe's page begin with its task: its imports and its guard are there to unfold."""
    if status_of(app.env, app.env.docname) is None:
        return
    blocks = doctree.findall(nodes.literal_block)
    first = next((one for one in blocks if one.get("language") == "Python"), None)
    if first and GUARD in first.astext():
        title = "Imports, and what this recipe needs"
        folded = _folded(title, first.deepcopy())
        first.replace_self(nodes.container("", *folded, classes=["recipe-guard"]))


def without_marks(code: str) -> str:
    """`code` without the comments that say where an excerpt begins and ends, and their room."""
    return re.sub(r"\n{4,}", "\n\n\n", MARK.sub("", code)).strip("\n")


def tidy_code(_: Sphinx, doctree: nodes.document) -> None:
    """Show code as its author thinks of it."""
    for block in doctree.findall(nodes.literal_block):
        if block.get("language") != "none":  # what was printed stays as it is
            block.rawsource = without_marks(block.astext())
            block[:] = [nodes.Text(block.rawsource)]


def _folded(title: str, body: nodes.Node) -> list[nodes.Node]:
    """Nodes that show `title`, and `body` when a reader asks for it."""
    return [
        nodes.raw("", "<details><summary>", format="html"),
        nodes.emphasis("", title),  # a summary may have no paragraph
        nodes.raw("", "</summary>", format="html"),
        body,
        nodes.raw("", "</details>", format="html"),
    ]


# -- facts ----------------------------------------------------------------------------


class FactError(Exception):
    """A page quotes a fact that no recording holds; the message says which."""


def fact(found: dict[str, Status], text: str) -> Any:
    """The fact that ``recipe:key`` names; the key's parts are divided by dots.

    Raises:
        FactError: No such recipe, no recording that may be shown, or no such key.
    """
    name, colon, key = text.partition(":")
    if not colon or name not in found:
        raise FactError(f"fact {text!r}: there is no recipe {name!r}; write recipe:key")
    if (one := found[name].shown) is None:
        raise FactError(f"fact {text!r}: the recipe is {found[name].state.value}")
    value: Any = one.facts
    for part in key.split("."):
        if isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict) and part in value:
            value = value[part]
        else:
            raise FactError(f"fact {text!r}: the recording has no {part!r}")
    return value


def formatted_fact(found: dict[str, Status], text: str) -> str:
    """The fact that ``recipe:key`` or ``recipe:key|format`` names, as readers see it.

    Raises:
        FactError: As :func:`fact`, or the format does not fit the value.
    """
    key, _, form = text.partition("|")
    value = fact(found, key)
    try:
        return format(value, form)
    except (ValueError, TypeError) as error:
        raise FactError(f"fact {text!r}: the format does not fit: {error}") from error


class FactRole(SphinxRole):
    """``{fact}`recipe:key``` shows a recorded number or text in prose.

    A format may follow, as in Python: ``{fact}`recipe:key|.1f```.
    """

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """The value, or a warning and a mark that it is not recorded."""
        name = self.text.partition(":")[0]
        depend(self.env, name)
        found = statuses(self.env)
        try:
            value = formatted_fact(found, self.text)
        except FactError as error:
            logger.warning("%s", error, location=self.get_location(), type="recordings")
            return [nodes.inline("", "(not recorded)", classes=["fact", "fact-missing"])], []
        classes = ["fact", f"recording-{found[name].state.value}"]
        return [nodes.inline("", value, classes=classes)], []


class RanRole(SphinxRole):
    """``{ran}`recipe``` says where and when the numbers around it were recorded."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """The recipe's stamp, or a warning and why there is none."""
        depend(self.env, self.text)
        status = statuses(self.env).get(self.text)
        if status is None or status.shown is None:
            why = ran_text(status, self.config) if status else "there is no such recipe"
            said = f"ran {self.text!r}: {why}"
            logger.warning("%s", said, location=self.get_location(), type="recordings")
            return [nodes.inline("", "(not recorded)", classes=["fact-missing"])], []
        # How long the whole recipe took is not about the numbers.
        text = ran_text(status, self.config, seconds=False)
        return [nodes.inline("", text, classes=["ran"])], []


def not_recorded(error: FactError, directive: SphinxDirective) -> list[nodes.Node]:
    """What a directive shows where its fact cannot be had; warns, so that a strict build fails."""
    logger.warning("%s", error, location=directive.get_location(), type="recordings")
    return [nodes.paragraph("", "(not recorded)", classes=["fact-missing"])]


class RecordedDirective(SphinxDirective):
    """``{recorded} recipe:key`` shows a recorded text, such as an error, as a literal block."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The block, or a warning and a mark that it is not recorded."""
        depend(self.env, self.arguments[0].partition(":")[0])
        try:
            value = fact(statuses(self.env), self.arguments[0])
        except FactError as error:
            return not_recorded(error, self)
        block = nodes.literal_block(str(value), str(value), language="none")
        block["classes"].append("recorded")
        block["recorded"] = self.arguments[0]
        return [block]


class MatrixDirective(SphinxDirective):
    """``{matrix} recipe:key`` draws a recorded list of dicts as a table, a row for each.

    Each line of the content is a column: a key, a colon, and its title. The key's parts are
    divided by dots; a format may follow a bar, as in ``{fact}``.
    """

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """The table, or a warning and a mark that it is not recorded."""
        text = self.arguments[0]
        name = text.partition(":")[0]
        depend(self.env, name)
        found = statuses(self.env)
        columns = [line.partition(":") for line in self.content if line.strip()]
        try:
            if not isinstance(entries := fact(found, text), list):
                raise FactError(f"fact {text!r}: it is not a list")
            values = [
                [formatted_fact(found, f"{text}.{index}.{key.strip()}") for key, _, _ in columns]
                for index in range(len(entries))
            ]
        except FactError as error:
            return not_recorded(error, self)
        rows: list[list[nodes.Node]] = [[nodes.Text(one) for one in row] for row in values]
        drawn = table([title.strip() for _, _, title in columns], rows)
        drawn["classes"] += ["recordings-matrix", f"recording-{found[name].state.value}"]
        return [drawn]


def table(head: list[str], rows: list[list[nodes.Node]]) -> nodes.table:
    """A table with the texts of `head` above `rows`."""
    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=1) for _ in head]
    group += nodes.thead("", _row([nodes.Text(text) for text in head]))
    group += nodes.tbody("", *[_row(row) for row in rows])
    return nodes.table("", group, classes=["recordings-table"])


def _row(cells: list[nodes.Node]) -> nodes.row:
    return nodes.row("", *[nodes.entry("", nodes.paragraph("", "", cell)) for cell in cells])


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx; before sphinx-gallery generates its pages, at priority 500."""
    app.add_config_value("recordings_root", lambda config: str(app.confdir), "env", [str])
    app.add_config_value("recordings_gallery", "gallery", "env", [str])
    app.add_config_value("recordings_folder", "gallery/recordings", "env", [str])
    app.add_config_value("recordings_local", "build/recordings", "env", [str])
    app.add_config_value("recordings_run", False, "", [bool])
    replay.import_no_matplotlib()
    app.connect("builder-inited", load_statuses, priority=400)
    app.connect("doctree-read", add_stamp)
    app.connect("doctree-read", fold_guard)
    app.connect("doctree-read", tidy_code)
    app.add_role("fact", FactRole())
    app.add_role("ran", RanRole())
    app.add_directive("recorded", RecordedDirective)
    app.add_directive("matrix", MatrixDirective)
    return {"version": str(recording.SCHEMA), "env_version": 6, "parallel_read_safe": True}
