"""Each import folder of OpenMMLab has one distribution: the maintained fork or upstream."""

from importlib import metadata

from mmrank.errors import UserError

#: Distributions of each import folder, the maintained fork first.
DISTRIBUTIONS = {
    'mmengine': ('onedl-mmengine', 'mmengine', 'mmengine-lite'),
    'mmcv': ('onedl-mmcv', 'mmcv', 'mmcv-lite', 'mmcv-full'),
    'mmdet': ('onedl-mmdetection', 'mmdet'),
    'mmpretrain': ('onedl-mmpretrain', 'mmpretrain'),
}


def check_owner(package: str) -> None:
    """Refuse, by a UserError, an import folder into which two distributions wrote."""
    owners = {}
    for name in DISTRIBUTIONS.get(package, ()):
        try:
            owners[name] = metadata.distribution(name).version
        except metadata.PackageNotFoundError:
            continue
    if len(owners) > 1:
        shown = ' and '.join(f'{name} {version}' for name, version in owners.items())
        raise UserError(
            f'{shown} are installed, which write the same folder {package}',
            fix=f'pip uninstall -y {" ".join(owners)}, then pip install the one that fits the rest '
            'of your OpenMMLab',
        )
