"""Execute with sphinx-gallery, or give it recorded outputs: the only seam with its internals.

sphinx-gallery generates a recipe's page in one function, which calls ``execute_script`` for
the outputs.  With ``plot_gallery`` off that function runs nothing and returns an empty
output for each block.  We let it do so and put the recorded outputs in their places.
"""

from __future__ import annotations

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


class _StdoutTee(gen_rst._LoggingTee):  # type: ignore[misc]
    """Captures stdout only: warnings and logs of libraries are not a recipe's output."""

    def set_std_and_reset_position(self) -> _StdoutTee:
        super().set_std_and_reset_position()
        sys.stderr = self.origs[1]
        return self


def executor_config(folder: Path) -> dict[str, Any]:
    """sphinx-gallery's configuration for running one recipe, with `folder` as the source."""
    wanted = {
        "abort_on_example_error": True,
        "capture_repr": (),  # as when the script is run by itself
        "image_scrapers": ("matplotlib",) if find_spec("matplotlib") else (),
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


def install(statuses: Mapping[str, Status]) -> None:
    """From now on, sphinx-gallery shows what `statuses` have recorded.

    Args:
        statuses: The status of every recipe, by name.
    """
    by_path = {str(one.recipe.path): one for one in statuses.values()}

    def replayed(
        script_blocks: list[Any],
        script_vars: dict[str, Any],
        gallery_conf: dict[str, Any],
        file_conf: dict[str, Any],
    ) -> tuple[list[str], float]:
        if script_vars["execute_script"]:
            raise ExtensionError(
                "sphinx-gallery is set to execute; recipes are run by `python -m recordings run`:"
                " set plot_gallery to False in sphinx_gallery_conf"
            )
        outputs, seconds = _execute_script(script_blocks, script_vars, gallery_conf, file_conf)
        images = Path(script_vars["image_path_iterator"].image_path).parent
        for left in images.glob(f"sphx_glr_{Path(script_vars['src_file']).stem}_*"):
            left.unlink()
        status = by_path[str(Path(script_vars["src_file"]).resolve())]
        if (recording := status.shown) and status.folder:
            for index, output in zip(status.recipe.code_blocks, recording.outputs, strict=True):
                outputs[index] = output
            for name in sorted(recording.figures):
                shutil.copyfile(recording.figure_path(status.folder, name), images / name)
                script_vars["image_path_iterator"].next()
        return outputs, seconds

    gen_rst.execute_script = replayed
