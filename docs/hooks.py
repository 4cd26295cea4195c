"""What MkDocs cannot do by itself; see mkdocs.yml.

The READMEs of configs/ with their pictures, and the changelog, are pages of
the site under their own paths, so each table stands in one place. A link is
written as it works in the repository. On the site it leads to the page of the
same file, or becomes plain text where the site has no such page. The
troubleshooting page ends with the messages of the source. notebook_pages.py
makes the pages of the notebooks.
"""

import os
import re
import sys
from pathlib import Path, PurePosixPath

from mkdocs.structure.files import File, InclusionLevel

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / 'docs'))

import notebook_pages  # noqa: E402  lies beside this file
from messages import as_markdown  # noqa: E402  likewise

PAGES = ROOT / 'docs' / 'pages'
LINK = re.compile(
    r'(!?)\[((?:[^\[\]]|!?\[[^\]]*\](?:\([^)]*\))?)*)\]\(([^)\s]+)\)'
)
FENCE = re.compile(r'^(```.*?^```|~~~.*?^~~~)', re.DOTALL | re.MULTILINE)


def on_files(files, config):
    """Add the files of the repository that are pages of the site."""
    added = [
        ROOT / 'CHANGELOG.md',
        *sorted(ROOT.glob('configs/*/README.md')),
        *sorted(ROOT.glob('configs/*/resources/*')),
    ]
    for path in added:
        name = path.relative_to(ROOT).as_posix()
        # READMEs are reached from the pages, not from the navigation.
        level = 'INCLUDED' if path.parent == ROOT else 'NOT_IN_NAV'
        files.append(
            File.generated(
                config,
                name,
                abs_src_path=str(path),
                inclusion=InclusionLevel[level],
            )
        )
    for source in notebook_pages.sources():
        page = notebook_pages.page_of(source)
        name = f'notebooks/{source.stem}.md'
        files.append(File.generated(config, name, content=page.markdown))
        for name, content in page.files.items():
            uri = f'notebooks/{name}'
            files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown, page, config, files):
    """Lead each link to the page of the file that it names."""
    if page.file.src_uri == 'troubleshooting.md':
        markdown = markdown.replace('<!-- messages -->', as_markdown())
    parts = FENCE.split(markdown)
    # Every second part is a code block, in which nothing is a link.
    parts[::2] = [rewrite(part, page.file, files) for part in parts[::2]]
    return ''.join(parts)


def rewrite(text, file, files):
    """``text`` with the links of a page of the repository."""
    here = notebook_pages.SOURCES
    if not file.src_uri.startswith('notebooks/'):
        here = Path(file.abs_src_path).parent

    def replace(match):
        image, label, target = match.groups()
        label = rewrite(label, file, files)
        path, _, anchor = target.partition('#')
        if '://' in target or not path:
            return f'{image}[{label}]({target})'
        found = Path(os.path.normpath(here / path))
        if found.is_dir() and (found / 'README.md').is_file():
            found /= 'README.md'
        if not found.exists():
            # MkDocs warns, and a strict build fails.
            return f'{image}[{label}]({target})'
        base = PAGES if PAGES in found.parents else ROOT
        uri = found.relative_to(base).as_posix()
        if found.parent == notebook_pages.SOURCES:
            uri = f'notebooks/{found.stem}.md'
        if files.get_file_from_path(uri) is None:
            return label
        start = PurePosixPath(file.src_uri).parent.as_posix()
        link = os.path.relpath(uri, start)
        return f'{image}[{label}]({link}{"#" * bool(anchor)}{anchor})'

    return LINK.sub(replace, text)
