"""What ``pyproject.toml`` cannot say: the folder ``mmrank/.mim``.

OpenMMLab's ``mim`` looks there for the configs, the entry-point tools and ``model-index.yml`` of
an installed package: a wheel carries a copy of them, an editable install gets links to the
checkout.
"""

import os
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
MIM_ENTRIES = ('configs', 'tools', 'model-index.yml')
# These make and test the environment of a checkout; there is none in a wheel.
MIM_IGNORED = ('__pycache__', '*.py[cod]', 'bootstrap.py', 'release.py', 'docker', 'tests')


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


setup(cmdclass={'build_py': BuildPyWithMim})
