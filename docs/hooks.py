"""What mkdocs asks while it makes the site: pages that lie outside docs/, and links that lead out of it.

The pages are the repository's own, so that nothing is written twice. A link to a file that has no page leads to the
repository, if mkdocs.yml names it (`repo_url`); without, the file's name stands there as text. mkdocs checks links
within the site; that a file outside is there is checked here.
"""

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
"""Files of the repository's root that have a page of the site, and where."""
_LOG = logging.getLogger("mkdocs.hooks")  # --strict counts its warnings
_PLACES = {page: file for file, page in OUTSIDE.items()}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/."""
    root = Path(config.docs_dir).parent
    for file, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(root / file).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the links of a page, which are right in the repository, into those of the site."""
    place = _PLACES.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    here = posixpath.dirname(page.file.src_uri)

    def turned(link: re.Match[str]) -> str:
        image, text, target, anchor = link[1], link[2], link[3], link[4] or ""
        if not target or "://" in target:
            return link[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
        is_page = file.startswith("docs/") and not file.startswith("docs/log/")
        found = OUTSIDE.get(file, file.removeprefix("docs/") if is_page else "")
        if found:
            return f"{image}[{text}]({posixpath.relpath(found, here or '.')}{anchor})"
        if not (Path(config.docs_dir).parent / file).exists():
            _LOG.warning("%s: no file %s", place, file)
        if config.repo_url:
            return f"{image}[{text}]({config.repo_url.rstrip('/')}/blob/HEAD/{file}{anchor})"
        return text if text.startswith("`") else f"`{file}`" if text == target else text

    return _LINK.sub(turned, markdown)
