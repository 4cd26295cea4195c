"""What MkDocs cannot do by itself; see mkdocs.yml.

The READMEs of configs/ with their pictures, and the changelog, are pages of the site under their
own paths, so each table stands in one place. A link is written as it works in the repository. On
the site it leads to the page of the same file, or becomes plain text where the site has no such
page. A page may show a section of a README, and the troubleshooting page ends with the
messages of the source. notebook_pages.py makes the pages of the notebooks.
"""

import ast
import os
import re
import sys
from pathlib import Path, PurePosixPath

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, InclusionLevel

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / 'docs'))

import notebook_pages  # noqa: E402  lies beside this file
from messages import as_markdown  # noqa: E402  likewise

PAGES = ROOT / 'docs' / 'pages'
LINK = re.compile(r'(!?)\[((?:[^\[\]]|!?\[[^\]]*\](?:\([^)]*\))?)*)\]\(([^)\s]+)\)')
#: A Sphinx role of a docstring, in HTML: ':func:<code>~mmrank.x</code>'.
ROLE = re.compile(r':(?:attr|class|data|func|meth|mod):(<code>)~?')
#: A package of which a page shows all names.
NAMES = re.compile(r'^<!-- names: (\S+) -->$', re.MULTILINE)
#: A section that a page shows: '<!-- section: FILE: HEADING -->'.
SECTION = re.compile(r'^<!-- section: (\S+): (.*?) -->$', re.MULTILINE)
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
        # Pictures are reached from the pages that show them.
        level = 'NOT_IN_NAV' if 'resources' in path.parts else 'INCLUDED'
        files.append(
            File.generated(config, name, abs_src_path=str(path), inclusion=InclusionLevel[level])
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
    shown = NAMES.search(markdown)
    if shown:
        homes = homes_of(shown[1])
        index, entries = markdown[: shown.start()], [f'::: {homes[name]}.{name}' for name in homes]
        markdown = '\n\n'.join([link_names(index, homes), *entries])
    markdown = rewrite_text(markdown, page.file, files)
    return SECTION.sub(
        lambda found: rewrite_text(section(*found.groups()), page.file, files, found[1]), markdown
    )


def homes_of(package):
    """Module of each name that a package imports when it is first used."""
    stub = ast.parse((ROOT / package.replace('.', '/') / '__init__.pyi').read_text('utf-8'))
    homes = {}
    for node in stub.body:
        if isinstance(node, ast.ImportFrom):
            home = f'{package}.{node.module}' if node.level else node.module
            homes |= {x.name: home for x in node.names}
    return {name: homes[name] for name in sorted(homes)}


def link_names(text, homes):
    """``text`` with a link to the entry of each name in code."""

    def link(match):
        home = homes.get(match[1])
        return f'[{match[0]}](#{home}.{match[1]})' if home else match[0]

    return re.sub(r'`(\w+)`', link, text)


def section(name, heading):
    """Text below a heading of a file of the repository, to the next one."""
    level, in_code, lines = 0, False, []
    for line in (ROOT / name).read_text('utf-8').splitlines():
        in_code ^= line.startswith(('```', '~~~'))
        found = None if in_code else re.match('(#+) (.*)', line)
        if level and found and len(found[1]) <= level:
            break
        if level:
            lines.append(line)
        elif found and found[2] == heading:
            level = len(found[1])
    if not level:
        raise PluginError(f'{name} has no heading {heading!r}')
    return '\n'.join(lines).strip('\n')


def rewrite_text(markdown, file, files, source=None):
    """Rewrite all links but those of code blocks."""
    parts = FENCE.split(markdown)
    # Every second part is a code block, in which nothing is a link.
    parts[::2] = [rewrite(part, file, files, source) for part in parts[::2]]
    return ''.join(parts)


def on_page_content(html, page, config, files):
    """Show the name that a Sphinx role of a docstring refers to."""
    return ROLE.sub(r'\1', html)


def rewrite(text, file, files, source=None):
    """``text`` with the links of a page of the repository.

    ``source`` is the file of the repository that the text is from, if not
    that of the page.
    """
    if file.src_uri.startswith('notebooks/'):
        here = notebook_pages.SOURCES
    else:
        here = (ROOT / source if source else Path(file.abs_src_path)).parent

    def replace(match):
        image, label, target = match.groups()
        label = rewrite(label, file, files, source)
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
