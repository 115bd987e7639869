"""What the search knows, after a whole build and after one that wrote a single page."""

from __future__ import annotations

import json
import re
from typing import Any

from conftest import Build, Project

ENTRY = """# Errors

```{index} ! 0x12
```

```{index} pair: refused; tensor
```

Text.
"""


def search_index(built: Build) -> dict[str, Any]:
    text = (built.pages / "searchindex.js").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(re.sub(r"^Search.setIndex\(|\)$", "", text))
    return found


def test_index_entries_survive_a_build_of_another_page(project: Project) -> None:
    project.write("docs/errors.md", ENTRY)
    project.edit("docs/index.md", "recipes/index", "errors\nrecipes/index")
    before = search_index(project.build())
    assert before["indexentries"].keys() == {"0x12", "refused", "tensor"}
    project.edit("docs/index.md", "The total", "Now the total")
    after = search_index(project.build())
    assert after["indexentries"] == before["indexentries"]


def test_an_index_entry_goes_with_its_page(project: Project) -> None:
    project.write("docs/errors.md", ENTRY)
    project.edit("docs/index.md", "recipes/index", "errors\nrecipes/index")
    project.build()
    project.path("docs/errors.md").unlink()
    project.edit("docs/index.md", "errors\n", "")
    assert search_index(project.build())["indexentries"] == {}
