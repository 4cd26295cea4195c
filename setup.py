"""Packaging of mmrank.

The metadata is ordinary setuptools. The one addition is ``mmrank/.mim``, the folder in which
OpenMMLab's ``mim`` looks for the configs, the entry-point tools and ``model-index.yml`` of an
installed package: a wheel carries a copy of them, an editable install gets links to the checkout.
"""

import os
import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
MIM_ENTRIES = ('configs', 'tools', 'model-index.yml')
# These make and test the environment of a checkout; there is none in a wheel.
MIM_IGNORED = ('__pycache__', '*.py[cod]', 'bootstrap.py', 'docker', 'tests')


def read_version() -> str:
    """Return the version without importing the package."""
    text = (ROOT / 'mmrank' / 'version.py').read_text(encoding='utf-8')
    match = re.search(r"^__version__ = '([^']+)'", text, re.MULTILINE)
    if match is None:
        raise RuntimeError("mmrank/version.py has no line __version__ = '...'")
    return match.group(1)


def read_readme() -> str:
    """Return the long description; empty where there is no README.

    Pictures and links to files of the checkout lead nowhere on a package
    index: the pictures are left out, of such a link the text stays.
    """
    path = ROOT / 'README.md'
    text = path.read_text(encoding='utf-8') if path.is_file() else ''
    text = re.sub(r'!\[[^\]]*\]\((?!https?:)[^)]*\)\n*', '', text)
    return re.sub(r'\[([^\]]*)\]\((?!https?:)[^)]*\)', r'\1', text)


def read_requirements(name: str) -> list:
    """Return the requirement lines of ``requirements/<name>.txt``."""
    text = (ROOT / 'requirements' / f'{name}.txt').read_text(encoding='utf-8')
    lines = (line.split('#')[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def remove(path: Path) -> None:
    """Remove a link, a file or a whole folder, if it is there."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)


def add_mim(package_dir: Path, link: bool) -> None:
    """Recreate ``package_dir/.mim``.

    Args:
        package_dir: The folder of the package, in the checkout or in the
            build folder.
        link: Link to the checkout instead of copying from it.
    """
    mim_dir = package_dir / '.mim'
    remove(mim_dir)
    mim_dir.mkdir(parents=True)
    for entry in MIM_ENTRIES:
        source, target = ROOT / entry, mim_dir / entry
        if link:
            try:
                relative = os.path.relpath(source, mim_dir)
                target.symlink_to(relative, target_is_directory=source.is_dir())
                continue
            except OSError:
                # Windows without the right to make links: copy instead.
                remove(target)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns(*MIM_IGNORED))
        else:
            shutil.copyfile(source, target)


class BuildPyWithMim(build_py):
    """``build_py`` that adds ``.mim`` to what it builds."""

    def run(self) -> None:
        """Build the modules, then link or copy the OpenMMLab extras."""
        super().run()
        if getattr(self, 'editable_mode', False):
            add_mim(ROOT / 'mmrank', link=True)
        else:
            add_mim(Path(self.build_lib) / 'mmrank', link=False)


def chosen(names: tuple, file: str = 'optional') -> list:
    """Return the lines of a file that begin with one of these."""
    return [x for x in read_requirements(file) if x.startswith(names)]


def project_urls() -> dict:
    """Return the links of the metadata, from the address that a release is made with."""
    url = os.environ.get('PROJECT_URL', '').rstrip('/')
    pages = {'Source': '', 'Issues': '/issues', 'Changelog': '/blob/main/CHANGELOG.md'}
    return {name: url + page for name, page in pages.items()} if url else {}


# Only the first names a package of OpenMMLab.
EXTRAS = {
    'openmmlab': read_requirements('openmmlab'),
    'optional': read_requirements('optional'),
    'detection': chosen(('pycocotools', 'faster-coco-eval')),
    'metric-learning': chosen(('pytorch-metric-learning',)),
    'text': read_requirements('text'),
    'adapters': read_requirements('adapters'),
    'pretrained': read_requirements('pretrained'),
    'tests': read_requirements('tests'),
}
_, *beside = EXTRAS.values()
EXTRAS['all'] = sorted({line for lines in beside for line in lines})
EXTRAS['docs'] = read_requirements('docs')

setup(
    name='mmrank',
    version=read_version(),
    description='Train vision models on average precision, inside OpenMMLab',
    long_description=read_readme(),
    long_description_content_type='text/markdown',
    author='mmrank contributors',
    project_urls=project_urls(),
    license='Apache-2.0',
    license_files=['LICENSE'],
    keywords='average precision, ranking loss, object detection, '
    'image retrieval, contrastive learning, two towers, OpenMMLab',
    classifiers=[
        'Development Status :: 3 - Alpha',
        'Intended Audience :: Developers',
        'Intended Audience :: Science/Research',
        'Operating System :: OS Independent',
        'Programming Language :: Python :: 3',
        'Programming Language :: Python :: 3 :: Only',
        'Programming Language :: Python :: 3.10',
        'Programming Language :: Python :: 3.11',
        'Programming Language :: Python :: 3.12',
        'Programming Language :: Python :: 3.13',
        'Topic :: Scientific/Engineering :: Artificial Intelligence',
        'Topic :: Scientific/Engineering :: Image Recognition',
    ],
    packages=find_packages(include=('mmrank', 'mmrank.*')),
    # The lists of public names, which are read when a name is first used.
    package_data={'': ['*.pyi', 'py.typed']},
    entry_points={'console_scripts': ['mmrank = mmrank.cli.main:main']},
    python_requires='>=3.10',
    install_requires=read_requirements('runtime'),
    extras_require=EXTRAS,
    cmdclass={'build_py': BuildPyWithMim},
    zip_safe=False,
)
