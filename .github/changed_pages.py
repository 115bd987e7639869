"""List the pages that differ between two built sites, for the summary of a workflow's job.

    python .github/changed_pages.py BEFORE AFTER

Pages are compared by their Markdown, which has what they say and not how they look.
"""

from __future__ import annotations

import difflib
import sys
from pathlib import Path


def files(site: Path, pattern: str) -> dict[str, bytes]:
    """The files of a site that match, by their path in it; none where there is no site."""
    return {path.relative_to(site).as_posix(): path.read_bytes() for path in site.rglob(pattern)}


def change(before: bytes | None, after: bytes | None) -> str:
    """How one file became another, in a word or two."""
    if before is None or after is None:
        return "new" if before is None else "removed"
    lines = (text.decode(errors="replace").splitlines() for text in (before, after))
    marks = [line[0] for line in difflib.unified_diff(*lines, n=0, lineterm="")][2:]
    return f"+{marks.count('+')} -{marks.count('-')} lines"


def differences(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    """The names of what is not the same in both, in order."""
    names = sorted(before.keys() | after.keys())
    return [name for name in names if before.get(name) != after.get(name)]


def summary(before: Path, after: Path) -> str:
    """What changed from one built site to the other, as Markdown."""
    if not files(after, "*.html"):
        return "There is no built site to compare.\n"
    old, new = files(before, "*.md"), files(after, "*.md")
    pages = differences(old, new)
    lines = [f"### {len(pages)} of {len(new)} pages changed", ""]
    if not old:
        lines += ["The site before could not be built: every page counts as new.", ""]
    lines += [f"- `{name}`: {change(old.get(name), new.get(name))}" for name in pages]
    figures = differences(files(before / "_images", "*"), files(after / "_images", "*"))
    lines += [f"- figure `{name}`" for name in figures]
    html = {Path(page).with_suffix("") for page in differences(*map(all_html, (before, after)))}
    if only_looks := len(html - {Path(page).with_suffix("") for page in pages}):
        lines += ["", f"{only_looks} more look different, and say the same."]
    return "\n".join(lines) + "\n"


def all_html(site: Path) -> dict[str, bytes]:
    """The HTML pages of a site."""
    return files(site, "*.html")


if __name__ == "__main__":
    sys.stdout.write(summary(Path(sys.argv[1]), Path(sys.argv[2])))
