"""A Markdown copy of every page, `llms.txt` and `llms-full.txt`, beside the HTML.

The translator is sphinx-markdown-builder's.  It is given the tree that the HTML page is made
of, so that facts, tables and included code are there as values.  Packages that do all of this
do not fit: sphinx-llm builds the whole site a second time in every build, and sphinx-llms-txt
copies the source of the pages, with its directives.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx_markdown_builder.contexts import IndentContext, SubContextParams, TableContext
from sphinx_markdown_builder.translator import MarkdownTranslator

from recordings import pages

INDEX, FULL = "llms.txt", "llms-full.txt"
#: What a page has for readers of HTML alone, by class.
HTML_ONLY = {"sphx-glr-download-link-note", "sphx-glr-example-tags"}


class Table(TableContext):  # type: ignore[misc]
    """A table whose cells are as they are; tabulate would write 20 for 20.0."""

    def make(self) -> str:
        """The table as Markdown."""
        head, *body = map(self.make_row, [*self.headers, *self.body])
        rows = [[cell.strip().replace("|", r"\|") for cell in row] for row in (head, *body)]
        rows.insert(1, ["---"] * len(head))
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)


class Translator(MarkdownTranslator):  # type: ignore[misc]
    """What sphinx-markdown-builder does not know of this site's pages."""

    def __init__(self, document: nodes.document, builder: Any) -> None:
        super().__init__(document, builder)
        self.page: str = builder.current_docname
        self.recipe = pages.status_of(builder.env, self.page)

    def dispatch_visit(self, node: nodes.Node) -> None:
        """Leave out what is for readers of HTML alone."""
        if isinstance(node, nodes.Element) and HTML_ONLY & set(node.get("classes", [])):
            raise nodes.SkipNode
        super().dispatch_visit(node)

    def unknown_visit(self, node: nodes.Node) -> None:
        """Show what is inside of nodes that are not known, such as those of layouts."""

    unknown_departure = unknown_visit
    visit_comment = visit_meta = MarkdownTranslator._skip

    def visit_raw(self, node: nodes.raw) -> None:
        """Show the text alternative of a figure; what else is raw is for readers of HTML alone."""
        if alt := node.get("alt"):
            self.add(f"Figure: {alt}", prefix_eol=2, suffix_eol=2)
        raise nodes.SkipNode

    def visit_table(self, _node: nodes.table) -> None:
        """Begin a table."""
        self._push_context(Table(params=SubContextParams(2, 2)))

    depart_table = MarkdownTranslator._pop_context

    def visit_title(self, node: nodes.title) -> None:
        """Begin a title; that of a note is no heading."""
        if isinstance(node.parent, nodes.Admonition):
            self.add(f"**{node.astext()}**", suffix_eol=2)
            raise nodes.SkipNode
        super().visit_title(node)

    def depart_title(self, node: nodes.title) -> None:
        """Say the state of a recipe below the title of its page."""
        self._pop_context(node)
        if self.recipe:
            self.add(f"**State: {self.recipe.state.value}.**", prefix_eol=2, suffix_eol=2)
            self.recipe = None

    def visit_target(self, node: nodes.target) -> None:
        """Leave out the labels that sphinx-gallery gives its pages."""
        if not node.get("refid", "").startswith("sphx-glr"):
            super().visit_target(node)

    def visit_PassthroughTextElement(self, _node: nodes.Element) -> None:  # noqa: N802
        """Begin a line for the link of a card, and end it."""
        self.ensure_eol(2)

    depart_PassthroughTextElement = visit_PassthroughTextElement  # noqa: N815

    def visit_sd_tab_label(self, _node: nodes.Element) -> None:
        """Open the name of a tab."""
        self.add("**", prefix_eol=2)

    def depart_sd_tab_label(self, _node: nodes.Element) -> None:
        """Close it."""
        self.add("**", suffix_eol=2)

    def visit_image(self, node: nodes.image) -> None:
        """Show an image that says something, in a paragraph of its own where it is in none."""
        if alt := node.get("alt"):
            eol = 0 if isinstance(node.parent, nodes.TextElement) else 2
            uri = node["uri"]
            if uri.startswith("/"):  # sphinx-gallery's images, which Sphinx does not know of
                uri = posixpath.join(self.builder.imgpath, posixpath.basename(uri))
            self.add(f"![{alt}]({uri})", prefix_eol=eol, suffix_eol=eol)
        raise nodes.SkipNode

    visit_imgsgnode = visit_image

    def visit_literal(self, node: nodes.literal) -> None:
        """Show code in a line."""
        text = node.astext().replace("\n", " ")
        fence = _fence(text, 1)
        space = " " * (len(fence) > 1)
        self.add(f"{fence}{space}{text}{space}{fence}")
        raise nodes.SkipNode

    def visit_literal_block(self, node: nodes.Element) -> None:
        """Show a block of code, or of output; sphinx-gallery has a node of its own for code."""
        text = node.astext().rstrip("\n")
        language = (node.get("language") or node.get("lang") or "").lower()
        fence = _fence(text, 3)
        self.add(f"{fence}{language}\n{text}\n{fence}", prefix_eol=2, suffix_eol=2)
        raise nodes.SkipNode

    visit_code_links_block = visit_literal_block

    def visit_field(self, node: nodes.field) -> None:
        """Show a field in one line."""
        name, body = node
        self.add(f"* **{name.astext()}:** {body.astext()}", prefix_eol=1, suffix_eol=1)
        raise nodes.SkipNode

    def visit_download_reference(self, node: nodes.Element) -> None:
        """Link to the file as the HTML page does."""
        target = posixpath.join(self.builder.dlpath, node.get("filename", ""))
        self.add(f"[{node.astext()}]({node.get('refuri', target)})")
        raise nodes.SkipNode

    def _fetch_ref_uri(self, node: nodes.reference) -> str:
        """Link from the Markdown of a page to that of another."""
        if refid := node.get("refid"):  # on the same page
            return f"#{refid}"
        uri: str = super()._fetch_ref_uri(node)
        page, hash_, anchor = uri.partition("#")
        name = posixpath.normpath(posixpath.join(posixpath.dirname(self.page), page))
        if node.get("internal") and name.removesuffix(".html") in self.builder.env.found_docs:
            page = page.removesuffix(".html") + ".md"
        return page + hash_ + anchor

    def _push_box(self, _title: str) -> None:
        """Quote notes and warnings; the HTML writer has given each a title of its own."""
        self._push_context(IndentContext("> ", empty=True, params=SubContextParams(2, 2)))


def missing(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Have pages written that have no Markdown yet, though nothing about them changed."""
    if app.builder.name != "html":
        return []
    return [page for page in sorted(env.found_docs) if not _file(app, page).is_file()]


def write_page(
    app: Sphinx, page: str, _template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Write the Markdown of a page when its HTML is written, and link to it from there.

    Its first sentence describes the page to those who only link to it.
    """
    if tree is None or app.builder.name != "html":
        return
    translator = Translator(tree, app.builder)
    tree.walkabout(translator)
    text = translator.astext()
    _write(_file(app, page), text)
    # What search engines and social cards show; that of sphinxext-opengraph begins with the stamp.
    if says := escape(_summary(text).replace("`", "")):
        context["metatags"] += f'<meta name="description" content="{says}" />\n'
        context["meta"] = {**(context["meta"] or {}), "og:description": says}
    name = f"{posixpath.basename(page)}.md"
    context["metatags"] += f'<link rel="alternate" type="text/markdown" href="{name}" />\n'


def write_indexes(app: Sphinx, exception: Exception | None) -> None:
    """Write `llms.txt` and `llms-full.txt`, in the order in which readers meet the pages."""
    if exception or app.builder.name != "html":
        return
    env, root = app.env, app.config.root_doc
    texts = {page: _file(app, page).read_text(encoding="utf-8") for page in env.found_docs}
    parts = {root: [root]}
    for top in env.toctree_includes.get(root, []):
        parts[top] = list(_below(env, top))
    listed = {page for part in parts.values() for page in part}
    summary = app.config.recordings_summary or _summary(texts[root])
    lines = [f"# {app.config.project}", "", f"> {summary}"]
    for top, part in parts.items():
        lines += ["", f"## {env.titles[top].astext()}", ""]
        lines += [_entry(env, page, texts[page]) for page in part]
    lines += ["", "## Optional", "", f"- [{FULL}]({FULL}): all of these pages in one file."]
    lines += [_entry(env, page, texts[page]) for page in sorted(texts.keys() - listed)]
    _write(Path(app.outdir, INDEX), "\n".join(lines) + "\n")
    whole = (
        f"<!-- {page}.md: links below are relative to this address -->\n\n{texts[page]}"
        for part in parts.values()
        for page in part
    )
    _write(Path(app.outdir, FULL), "\n".join(whole))


def _below(env: BuildEnvironment, page: str) -> Iterator[str]:
    """A page, then those below it, as the tables of contents order them."""
    yield page
    for child in env.toctree_includes.get(page, []):
        yield from _below(env, child)


def _entry(env: BuildEnvironment, page: str, text: str) -> str:
    """A page's line in `llms.txt`: its title, address, first sentence and recipe's state."""
    status = pages.status_of(env, page)
    state = f" State: {status.state.value}." if status else ""
    return f"- [{env.titles[page].astext()}]({page}.md): {_summary(text)}{state}"


def _fence(text: str, least: int) -> str:
    """More backticks in a row than `text` has."""
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))


def _summary(text: str) -> str:
    """The first sentence of a page's Markdown, its links as their words."""
    first = next((part for part in text.split("\n\n") if re.match(r"[\w`\[]", part)), "")
    words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(first.split()))
    return re.sub(r":$", ".", re.split(r"(?<=[.?!]) ", words, maxsplit=1)[0])


def _file(app: Sphinx, page: str) -> Path:
    return Path(app.outdir, f"{page}.md")


def _write(path: Path, text: str) -> None:
    """Write a file that changed, to a temporary name that is then renamed."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def setup(app: Sphinx) -> None:
    """Connect to the events of an HTML build."""
    app.setup_extension("sphinx_markdown_builder")
    app.add_config_value("recordings_summary", "", "html", [str])
    app.connect("env-updated", missing)
    app.connect("html-page-context", write_page)
    app.connect("build-finished", write_indexes)
