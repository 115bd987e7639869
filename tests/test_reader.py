"""What readers get beside the pages: cards, downloads, the summary, links and versions."""

from __future__ import annotations

import ast
import io
import json
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from conftest import MACHINE, REPOSITORY, Build, Project, copied
from packaging.requirements import Requirement
from recordings import downloads, environment, recipe, recording

SUMS = "gallery/small/sums.py"


@pytest.fixture(scope="module")
def small(
    recorded: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Project, Build]]:
    """The small project as it is, built once; look, but leave it as it is."""
    with copied(recorded, tmp_path_factory.mktemp("small")) as project:
        yield project, project.build()


def cards(built: Build, page: str = "recipes/small/index") -> dict[str, str]:
    """The stamp of every card of an index page, by the recipe's title."""
    pattern = r'thumbnail-title">(.*?)</div>\s*<div class="recording-card [\w-]+">(.*?)</div>'
    return dict(re.findall(pattern, built.html(page)))


# -- cards ------------------------------------------------------------------------------


def date_of(project: Project, name: str = "small/sums") -> str:
    found: str = json.loads(project.recording(name).read_text())["date"]
    return found


@pytest.mark.parametrize("page", ["recipes/index", "recipes/small/index"])
def test_a_card_has_device_version_and_date(small: tuple[Project, Build], page: str) -> None:
    project, built = small
    stamp = f"CPU · ExecuTorch 1.5.1 · {date_of(project)}"
    assert cards(built, page) == {"Sums": stamp, "Curve": stamp}


def test_a_card_of_a_recipe_that_needs_a_gpu_names_it(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "missing", lambda need: None)
    project.recipe("small/device", "1", '["cuda"]')
    project.record("small/device")
    assert cards(project.build())["device"].startswith("NVIDIA H200 · ExecuTorch 1.5.1 · 20")


def test_a_card_says_what_is_not_current(project: Project) -> None:
    project.edit(SUMS, "1 + 2", "2 + 2")
    project.recording("small/curve").unlink()
    assert cards(project.build()) == {"Sums": "stale", "Curve": "missing"}


def test_a_card_of_other_versions_says_so(project: Project) -> None:
    project.edit("pyproject.toml", "torch==2.13.*", "torch==2.14.*")
    assert cards(project.build())["Sums"].endswith(f"{date_of(project)} · outdated")


def test_a_card_of_a_local_run_says_so(project: Project) -> None:
    project.edit(SUMS, "1 + 2", "2 + 2")
    project.command("run", "--local")
    assert cards(project.build())["Sums"].endswith(" · this machine")


def test_a_card_follows_its_recording_in_later_builds(project: Project) -> None:
    project.build()
    project.edit(SUMS, "1 + 2", "2 + 2")
    assert cards(project.build())["Sums"] == "stale"


def test_the_title_on_a_card_is_text(project: Project) -> None:
    project.edit("gallery/small/sums.py", "Sums\n====", "Sums of Tensor<b> & more\n" + "=" * 24)
    assert "Sums of Tensor&lt;b&gt; &amp; more" in cards(project.build())


def test_an_index_page_has_one_list_of_tags(project: Project) -> None:
    project.recipe("small/tagged", "1", '["free"]')
    assert project.build().html("recipes/index").count("sg-tag-list") == 1


def test_the_tags_of_a_recipe_lead_to_the_filter(project: Project) -> None:
    project.recipe("small/tagged", "1", '["free", "other"]')
    page = project.build().html("recipes/small/tagged")
    assert '<a href="../index.html?sg-tags=free">free</a>' in page
    assert '<a href="../index.html?sg-tags=other">other</a>' in page


# -- downloads --------------------------------------------------------------------------

#: As in the specification of inline script metadata.
BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
#: Reads its companion, as recipes do.
READS = """
import sys
from pathlib import Path

print(Path(sys.argv[0]).resolve().with_suffix("").joinpath("data.txt").read_text())
"""


def download(built: Build, name: str) -> bytes:
    (path,) = (built.pages / "_downloads").rglob(name)
    return path.read_bytes()


def metadata(script: str) -> dict[str, Any]:
    """The inline script metadata of a script, read as tools do."""
    (match,) = BLOCK.finditer(script)
    assert match["type"] == "script"
    lines = match["content"].splitlines(keepends=True)
    return tomllib.loads("".join(it[2:] if it.startswith("# ") else it[1:] for it in lines))


def test_a_download_is_the_script_below_its_metadata(small: tuple[Project, Build]) -> None:
    project, built = small
    script = download(built, "sums.py").decode()
    compile(script, "sums.py", "exec")
    (match,) = BLOCK.finditer(script)
    assert script[: match.start()] + script[match.end() + 1 :] == project.path(SUMS).read_text()


def test_a_download_pins_what_was_recorded(project: Project) -> None:
    project.recipe(
        "small/uses", "try:\n    import executorch, torch\nexcept ImportError:\n    pass"
    )
    project.recipe("small/parts", "if False:\n    import torch\n    from executorch.exir import x")
    project.record("small/parts")
    found = metadata(download(project.build(), "parts.py").decode())
    assert found["requires-python"] == "==3.11.*"
    assert found["dependencies"] == ["executorch==1.5.1", "torch==2.13.0"]
    assert "tool" not in found


def test_a_download_pins_other_packages_that_were_recorded(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = MACHINE | {"numpy": "2.4.6", "jax": "0.9.0"}
    monkeypatch.setattr(environment, "describe", lambda: recorded)
    project.recipe("small/parts", "if False:\n    import jax\n    from numpy import array")
    project.record("small/parts")
    found = metadata(download(project.build(), "parts.py").decode())
    assert found["dependencies"] == ["numpy==2.4.6", "jax[cuda13]==0.9.0"]


def test_what_was_not_recorded_is_in_the_range_of_the_project(project: Project) -> None:
    project.recipe("small/parts", "if False:\n    import numpy, torch\n    import cupy")
    found = metadata(download(project.build(), "parts.py").decode())
    assert found["dependencies"] == ["torch==2.13.*", "numpy>=2", "cupy-cuda13x"]
    assert "requires-python" not in found


def test_what_a_companion_imports_is_a_dependency(project: Project) -> None:
    project.recipe("small/parts", "1")
    project.write("gallery/small/parts/child.py", "from numpy import arange\n")
    found = metadata(download(project.build(), "parts.py").decode())
    assert found["dependencies"] == ["numpy>=2"]


def test_the_needs_of_a_recipe_are_dependencies(project: Project) -> None:
    project.recipe("small/parts", "1", '["cuda", "cpp"]')
    found = metadata(download(project.build(), "parts.py").decode())
    assert found["dependencies"] == ["cmake"]
    assert found["tool"]["uv"]["index"] == [{"url": environment.CUDA_WHEEL.split()[-1]}]


def test_every_dependency_of_this_site_is_a_requirement_that_pins() -> None:
    known = downloads.requirements(REPOSITORY / "pyproject.toml")
    for one in recipe.find(REPOSITORY / "gallery"):
        found = recording.read(REPOSITORY / "gallery/recordings", one.name)
        assert found
        wanted = {
            name: downloads.Version(found.environment[name]).base_version
            for name in ("executorch", "torch")
        }
        said = metadata(downloads.metadata(one, found, known))["dependencies"]
        pinned = {Requirement(it).name: str(Requirement(it).specifier) for it in said}
        assert {name: pinned[name] for name in wanted} == {
            name: f"=={version}" for name, version in wanted.items()
        }


def test_what_recipes_import_is_known() -> None:
    known = sys.stdlib_module_names | downloads.DISTRIBUTIONS.keys()
    for one in recipe.find(REPOSITORY / "gallery"):
        companions = {Path(name).stem for name in one.companions}
        for block in (it for it in one.blocks if it.type == "code"):
            for node in ast.walk(ast.parse(block.content)):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                found = {name.partition(".")[0] for name in names}
                assert found <= known | companions, one.name


def test_an_archive_runs_by_itself(project: Project, tmp_path: Path) -> None:
    project.recipe("small/reads", READS)
    project.write("gallery/small/reads/data.txt", "what is in it")
    archive = download(project.build(), "reads.zip")
    zipfile.ZipFile(io.BytesIO(archive)).extractall(tmp_path / "reader")
    assert sorted(path.name for path in (tmp_path / "reader").iterdir()) == [
        "reads",
        "reads.ipynb",
        "reads.py",
    ]
    done = subprocess.run(
        [sys.executable, "reads.py"], cwd=tmp_path / "reader", capture_output=True, text=True
    )
    assert done.stdout == "what is in it\n"


def test_the_cells_of_a_notebook_run_beside_the_companions(
    project: Project, tmp_path: Path
) -> None:
    project.recipe("small/reads", READS)
    project.write("gallery/small/reads/data.txt", "what is in it")
    archive = download(project.build(), "reads.zip")
    zipfile.ZipFile(io.BytesIO(archive)).extractall(tmp_path)
    cells = json.loads((tmp_path / "reads.ipynb").read_text())["cells"]
    code = ["".join(it["source"]) for it in cells if it["cell_type"] == "code"]
    assert metadata(code[0] + "\n")["dependencies"] == []
    (tmp_path / "cells.py").write_text("\n".join(code))
    done = subprocess.run(
        [sys.executable, "cells.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == "what is in it\n"


def test_a_page_names_the_companions_at_the_downloads(small: tuple[Project, Build]) -> None:
    _, built = small
    said = "The script uses other files. The archive has them: sums/data.txt."
    assert said in built.text("recipes/small/sums")
    assert "The script uses other files" not in built.text("recipes/small/curve")


def test_downloads_are_made_in_the_site_alone_and_equal_each_time(project: Project) -> None:
    before = project.files()
    names = ("sums.py", "sums.ipynb", "sums.zip")
    first, second = ([download(project.build(), it) for it in names] for _ in range(2))
    assert first == second
    assert project.files() == before


@pytest.mark.parametrize("file", ["small/sums.py", "small/sums/data.txt"])
def test_downloads_follow_a_change_in_later_builds(project: Project, file: str) -> None:
    project.recording("small/sums").unlink()
    project.build()
    path = project.path(f"gallery/{file}")
    path.write_text(path.read_text() + "# one more line\n")
    archive = zipfile.ZipFile(io.BytesIO(download(project.build(), "sums.zip")))
    name = file.removeprefix("small/")
    assert archive.read(name).decode().endswith("# one more line\n")


def test_downloads_of_a_recipe_go_with_it(project: Project) -> None:
    project.build()
    project.without("small/curve")
    built = project.build(strict=True)
    assert (built.status, built.warnings) == (0, "")
    assert not list(project.path("docs/recipes").rglob("curve.*"))


# -- the summary ------------------------------------------------------------------------


def data(built: Build) -> dict[str, dict[str, Any]]:
    found = json.loads((built.pages / "recordings.json").read_text(encoding="utf-8"))
    assert found["form"] == 1
    return {one["name"]: one for one in found["recipes"]}


def badge(built: Build) -> str:
    """What the badge says."""
    root = ElementTree.parse(built.pages / "badge.svg").getroot()
    return root.findtext("{http://www.w3.org/2000/svg}title") or ""


def test_the_data_say_where_and_when_a_recipe_was_run(small: tuple[Project, Build]) -> None:
    project, built = small
    one = data(built)["small/sums"]
    assert (one["state"], one["reasons"]) == ("current", [])
    assert (built.pages / one["page"]).is_file()
    run = one["run"]
    assert run["environment"] == MACHINE
    assert (run["device"], run["executorch"], run["torch"]) == ("A CPU", "1.5.1", "2.13.0")
    assert (run["date"], run["committed"]) == (date_of(project), True)


def test_the_data_say_what_is_not_current(project: Project) -> None:
    project.edit(SUMS, "1 + 2", "2 + 2")
    one = data(project.build())["small/sums"]
    assert (one["state"], one["reasons"], one["run"]) == ("stale", ["its code changed"], None)


def test_the_data_mark_a_local_run(project: Project) -> None:
    project.edit(SUMS, "1 + 2", "2 + 2")
    project.command("run", "--local")
    assert data(project.build())["small/sums"]["run"]["committed"] is False


def test_the_badge_counts_current_recipes(small: tuple[Project, Build]) -> None:
    _, built = small
    assert badge(built).startswith("recordings: 2 recipes current on ")


def test_the_badge_says_of_how_many(project: Project) -> None:
    project.edit(SUMS, "1 + 2", "2 + 2")
    assert badge(project.build()).startswith("recordings: 1 of 2 recipes current on ")


def test_the_badge_does_not_count_local_runs(project: Project) -> None:
    project.edit(SUMS, "1 + 2", "2 + 2")
    project.command("run", "--local")
    assert badge(project.build()).startswith("recordings: 1 of 2 recipes current on ")


def test_the_badge_counts_what_needs_a_gpu_where_there_is_any(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "missing", lambda need: None)
    project.recipe("small/device", "1", '["cuda"]')
    project.record("small/device")
    date = date_of(project, "small/device")
    assert badge(project.build()) == f"recordings: 1 recipes current on H200, {date}"


def test_the_badge_says_when_none_is_current(project: Project) -> None:
    project.edit("pyproject.toml", "torch==2.13.*", "torch==2.14.*")
    assert badge(project.build()) == "recordings: 0 of 2 recipes current"


def table_rows(built: Build, page: str) -> list[list[str]]:
    rows = re.findall(r"<tr.*?</tr>", built.html(page), re.DOTALL)
    cells = (re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows)
    return [[re.sub(r"<[^>]+>", "", it).strip() for it in row] for row in cells]


def test_the_matrix_has_a_column_for_each_environment(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("docs/index.md", "# Small\n\n```{environments}\n```\n")
    monkeypatch.setattr(environment, "describe", lambda: MACHINE | {"cpu": "Another CPU"})
    project.record("small/curve")
    head, curve, sums = table_rows(project.build(), "index")
    versions = "executorch 1.5.1, torch 2.13.0"
    assert head == ["Recipe", f"Another CPU, {versions}", f"A CPU, {versions}"]
    assert curve[0] == "Curve"
    assert re.fullmatch(rf"current, {date_of(project)}, \d+ s", curve[1])
    assert curve[2] == sums[1] == ""


def test_the_matrix_begins_with_the_place_of_most_recipes(project: Project) -> None:
    project.write("docs/index.md", "# Small\n\n```{environments}\n```\n")
    project.recipe("small/alone", "print(1)")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environment, "describe", lambda: MACHINE | {"cpu": "Another CPU"})
        project.record("small/alone")
    head = table_rows(project.build(), "index")[0]
    assert [it.partition(",")[0] for it in head] == ["Recipe", "A CPU", "Another CPU"]


def test_the_matrix_shows_what_has_no_outputs(project: Project) -> None:
    project.write("docs/index.md", "# Small\n\n```{environments}\n```\n")
    project.edit(SUMS, "1 + 2", "2 + 2")
    head, curve, sums = table_rows(project.build(), "index")
    assert (head[2], curve[2], sums[2]) == ("no outputs", "", "stale")


# -- links and versions -----------------------------------------------------------------

LINKS = '<html>{{ body }}{% for text, to in page_links %}<a class="l" href="{{ to }}">{% endfor %}'


def links(built: Build, page: str) -> list[str]:
    return re.findall(r'class="l" href="([^"]*)"', built.html(page))


@pytest.mark.parametrize(
    ("page", "source"),
    [
        ("index", "docs/index.md"),
        ("recipes/small/sums", "gallery/small/sums.py"),
        ("recipes/small/index", "gallery/small/GALLERY_HEADER.rst"),
        ("recipes/index", "gallery/GALLERY_HEADER.rst"),
    ],
)
def test_a_page_leads_to_its_source(project: Project, page: str, source: str) -> None:
    project.write("templates/page.html", LINKS)
    built = project.build("-D", "recordings_repository=https://github.com/o/r/")
    edit, view, report = links(built, page)
    assert edit == f"https://github.com/o/r/edit/main/{source}"
    assert view == f"https://github.com/o/r/blob/main/{source}"
    assert report.startswith("https://github.com/o/r/issues/new?title=")
    assert project.path(source).is_file()


def test_a_repository_may_be_named_as_git_does(project: Project) -> None:
    project.write("templates/page.html", LINKS)
    built = project.build("-D", "recordings_repository=https://github.com/o/r.git")
    assert links(built, "index")[0] == "https://github.com/o/r/edit/main/docs/index.md"


@pytest.mark.parametrize(
    ("setting", "address"),
    [
        ("recordings_repository", "git@github.com:o/r.git"),
        ("recordings_address", "example.org/docs"),
        ("recordings_address", "https://example.org/a b"),
    ],
)
def test_what_is_no_address_is_refused(project: Project, setting: str, address: str) -> None:
    built = project.build("-D", f"{setting}={address}")
    assert built.status != 0
    assert f"_URL is {address!r}: write a whole address" in built.warnings


def test_without_a_repository_there_are_no_links(project: Project) -> None:
    project.write("templates/page.html", LINKS)
    assert links(project.build(), "index") == []


VERSIONS = ("-D", "recordings_versions=1.6.0,1.5.1", "-D", "release=1.5.1")


def test_versions_are_listed_on_the_same_origin(project: Project) -> None:
    built = project.build(*VERSIONS, "-D", "recordings_address=https://example.org/docs/")
    found = json.loads((built.pages / "_static/switcher.json").read_text())
    assert [(one["version"], one["url"], one["preferred"]) for one in found] == [
        ("1.6.0", "/docs/1.6.0/", True),
        ("1.5.1", "/docs/1.5.1/", False),
    ]


def test_one_version_needs_no_list(project: Project) -> None:
    built = project.build("-D", "recordings_versions=1.5.1", "-D", "release=1.5.1")
    assert not (built.pages / "_static/switcher.json").exists()


def test_a_version_that_is_not_published_is_named(project: Project) -> None:
    built = project.build("-D", "recordings_versions=1.7.0,1.6.0", "-D", "release=1.5.1")
    assert built.status != 0
    assert "version 1.5.1, which is none of SITE_VERSIONS: 1.7.0 1.6.0" in built.warnings


def conf(monkeypatch: pytest.MonkeyPatch, **variables: str) -> dict[str, Any]:
    """What this site's conf.py sets where the environment has `variables`."""
    for name in ("SITE_URL", "REPOSITORY_URL", "SITE_VERSIONS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return runpy.run_path(str(REPOSITORY / "conf.py"))


def test_nothing_is_published_where_no_address_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    found = conf(monkeypatch)
    assert "sphinxext.opengraph" not in found["extensions"]
    assert (found["recordings_repository"], found["recordings_versions"]) == ("", [])


def test_an_address_turns_social_cards_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found = conf(monkeypatch, SITE_URL="https://example.org/docs")
    assert "sphinxext.opengraph" in found["extensions"]
    assert found["ogp_site_url"] == "https://example.org/docs/"
    assert (REPOSITORY / "docs" / found["ogp_image"]).is_file()


def test_a_version_has_an_address_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    site = {"SITE_URL": "https://example.org/docs/", "SITE_VERSIONS": "1.6.0 1.5.1"}
    found = conf(monkeypatch, **site)
    assert found["html_baseurl"] == f"https://example.org/docs/{found['release']}/"


def test_the_site_is_about_the_pinned_version(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = environment.pins(REPOSITORY / "pyproject.toml")["executorch"]
    assert pinned.contains(conf(monkeypatch)["release"])


def test_the_reading_order_names_every_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    order = conf(monkeypatch)["READING_ORDER"]
    names = {path.name for path in (REPOSITORY / "gallery").glob("*/*.py")}
    assert set(order) - {"*"} == names
    assert len(order) == len(set(order))
