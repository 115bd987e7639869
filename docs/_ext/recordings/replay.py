"""Execute with sphinx-gallery, or give it recorded outputs: the only seam with its internals.

sphinx-gallery generates a recipe's page in one function, which calls ``execute_script`` for
the outputs.  With ``plot_gallery`` off that function runs nothing and returns an empty
output for each block.  We let it do so and put the recorded outputs in their places.
"""

from __future__ import annotations

import filecmp
import re
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sphinx.errors import ExtensionError
from sphinx_gallery import gen_gallery, gen_rst

from recordings.recording import Status

_execute_script = gen_rst.execute_script
_identify_names = gen_rst.identify_names


class _StdoutTee(gen_rst._LoggingTee):  # type: ignore[misc]
    """Captures stdout only: warnings and logs of libraries are not a recipe's output."""

    def set_std_and_reset_position(self) -> _StdoutTee:
        super().set_std_and_reset_position()
        sys.stderr = self.origs[1]
        return self


def executor_config(folder: Path, *, draws: bool) -> dict[str, Any]:
    """sphinx-gallery's configuration for running one recipe, with `folder` as the source.

    Without figures to keep it does without matplotlib, which takes longer to import than all else.
    """
    draws = draws and bool(find_spec("matplotlib"))
    if not draws:
        import_no_matplotlib()
    wanted = {
        "abort_on_example_error": True,
        "capture_repr": (),  # as when the script is run by itself
        "image_scrapers": ("matplotlib",) if draws else (),
    }
    config: dict[str, Any] = gen_gallery._fill_gallery_conf_defaults(wanted)
    return config | {"src_dir": str(folder)}


def execute(
    blocks: list[Any], variables: dict[str, Any], config: dict[str, Any], file_config: Any
) -> list[str]:
    """Execute a recipe's blocks; return the reStructuredText of what each one printed.

    Changes sphinx-gallery for the rest of the process, which is there for this one recipe.
    """
    gen_rst._LoggingTee = _StdoutTee
    outputs, _ = _execute_script(blocks, variables, config, file_config)
    found: list[str] = outputs
    return found


def import_no_matplotlib() -> None:
    """Have sphinx-gallery not set up matplotlib, where it is: a build that runs nothing draws
    nothing, and the import takes a second.

    To be called before sphinx-gallery reads its configuration.
    """
    gen_gallery._import_matplotlib = _nothing


def _nothing() -> None:
    pass


def link_names(*, possible: bool) -> None:
    """Have sphinx-gallery look for names in code to link to their documentation, or not.

    Where a site knows of no documentation it finds none, and makes a node of every word of code
    in search of it: half of a build.
    """
    gen_rst.identify_names = _identify_names if possible else _no_names


def _no_names(*_: object) -> dict[str, Any]:
    return {}


def install(statuses: Mapping[str, Status], config: Mapping[str, Any]) -> None:
    """From now on, sphinx-gallery shows what `statuses` have recorded.

    Args:
        statuses: The status of every recipe, by name.
        config: sphinx-gallery's configuration.

    Raises:
        ExtensionError: The configuration is to execute.
    """
    if config["plot_gallery"]:
        raise ExtensionError(
            "sphinx-gallery is set to execute; recipes are run by `python -m recordings run`:"
            " set plot_gallery to False in sphinx_gallery_conf"
        )
    by_path = {str(one.recipe.path): one for one in statuses.values()}

    def replayed(
        script_blocks: list[Any],
        script_vars: dict[str, Any],
        gallery_conf: dict[str, Any],
        file_conf: dict[str, Any],
    ) -> tuple[list[str], float]:
        outputs, seconds = _execute_script(script_blocks, script_vars, gallery_conf, file_conf)
        script = Path(script_vars["src_file"])
        status = by_path.get(str(script.resolve()))
        if status is None:
            raise ExtensionError(
                f"{script}: a recipe is a file of its own in gallery/<caller>,"
                " a folder with a GALLERY_HEADER.rst"
            )
        figures: dict[str, Path] = {}
        if (recording := status.shown) and status.folder:
            for index, output in zip(status.recipe.code_blocks, recording.outputs, strict=True):
                outputs[index] = output
            for name in sorted(recording.figures):
                figures[name] = recording.figure_path(status.folder, name)
                script_vars["image_path_iterator"].next()
        _place(figures, Path(script_vars["image_path_iterator"].image_path))
        return outputs, seconds

    gen_rst.execute_script = replayed


def _place(figures: Mapping[str, Path], template: Path) -> None:
    """Have exactly `figures` where sphinx-gallery looks for the images of a recipe.

    Args:
        figures: Where each figure comes from, by its name.
        template: sphinx-gallery's path of an image of the recipe, ``{0:03}`` for its number.
    """
    stem = template.name.removesuffix("_{0:03}.png")
    ours = re.compile(rf"{re.escape(stem)}_\d{{3}}\.\w+")
    left = [one for one in template.parent.iterdir() if ours.fullmatch(one.name)]
    for image in left:
        if image.name not in figures:
            image.unlink()
            for thumbnail in (template.parent / "thumb").glob(f"{stem}_thumb.*"):
                thumbnail.unlink()  # it may show what is gone
    for name, source in figures.items():
        image = template.parent / name
        if not image.is_file() or not filecmp.cmp(source, image, shallow=False):
            shutil.copyfile(source, image)
