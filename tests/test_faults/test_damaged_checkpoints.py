"""``--resume`` steps back to the last good checkpoint, whatever is damaged."""

import os
import random

import pytest
import torch

from mmrank.checkpoint_loading import load_checkpoint
from mmrank.engine.resume import checkpoint
from mmrank.engine.resume.checkpoint import find_last_whole_checkpoint

#: Folders with damage: 2,000 in the slow test.
NUM_FAST, NUM_SLOW = 150, 2000


def flip_bits(path, draw):
    """Flip one to three bits."""
    data = bytearray(path.read_bytes())
    for _ in range(draw.randint(1, 3)):
        # The directory at the end is small and has most fields.
        start = draw.choice([0, max(len(data) - 1500, 0)])
        data[draw.randrange(start, len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def truncate(path, draw):
    """Cut the file somewhere."""
    os.truncate(path, draw.randrange(path.stat().st_size))


def replace(path, draw):
    """Put something else in place of the file."""
    path.unlink()
    draw.choice(
        [
            path.mkdir,
            lambda: path.symlink_to('nowhere.pth'),
            lambda: path.symlink_to(path.name),
            lambda: path.write_bytes(draw.randbytes(draw.randrange(3000))),
            lambda: path.write_bytes(b'PK\x03\x04' + draw.randbytes(300)),
            lambda: os.mkfifo(path) if hasattr(os, 'mkfifo') else path.mkdir(),
        ]
    )()


def good_pointer(pointer, folder, draw):
    """What mmengine writes."""
    pointer.write_text(str(folder / 'epoch_3.pth'))


def odd_pointer(pointer, folder, draw):
    """Anything but that."""
    texts = [
        b'',
        b'\x00' * 40,
        b'x' * 5000,
        b'epoch_' + b'9' * 5000 + b'.pth',
        b'/' + b'd/' * 4000,
        b'work\nepoch_3.pth',
        draw.randbytes(200),
        str(folder / 'gone' / 'epoch_3.pth').encode(),
        str(folder / 'gone' / 'final.pth').encode(),
        str(folder).encode(),
        b'.',
        b'~',
        str(folder / 'epoch_9.pth').encode(),
    ]
    draw.choice(
        [
            pointer.mkdir,
            lambda: os.mkfifo(pointer) if hasattr(os, 'mkfifo') else None,
            lambda: pointer.symlink_to('nowhere'),
            lambda: pointer.symlink_to(pointer.name),
            lambda: pointer.write_bytes(draw.choice(texts)),
            lambda: pointer.write_bytes(draw.choice(texts)),
            lambda: pointer.write_bytes(draw.choice(texts)),
        ]
    )()


@pytest.fixture(scope='module')
def contents():
    """Three small checkpoints, as values."""
    generator = torch.Generator().manual_seed(0)
    return [
        {
            'meta': {'epoch': epoch, 'iter': 3 * epoch, 'cfg': 'a = 1\n'},
            'state_dict': {'w': torch.randn(20, generator=generator)},
            'optimizer': {'w': torch.randn(20, generator=generator)},
            'message_hub': {'log_scalars': {}},
        }
        for epoch in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    'seeds',
    [range(NUM_FAST), pytest.param(range(NUM_FAST, NUM_SLOW), marks=pytest.mark.slow)],
    ids=['slice', 'all'],
)
def test_resume_steps_back(tmp_path, monkeypatch, contents, seeds):
    warnings = []
    monkeypatch.setattr(checkpoint, 'print_log', lambda text, **_: warnings.append(text))
    outcomes = {'newest': 0, 'before': 0, 'none': 0}
    for seed in seeds:
        draw = random.Random(seed)
        folder = tmp_path / f'{seed}'
        folder.mkdir()
        paths = [folder / f'epoch_{epoch}.pth' for epoch in (1, 2, 3)]
        for path, content in zip(paths, contents):
            torch.save(content, path)
        damaged = paths[draw.choice([1, 2, 2, 2, 3]) :]
        damaged = draw.choice([damaged, paths[-1:], paths, []])
        for path in damaged:
            draw.choice([flip_bits, flip_bits, truncate, replace])(path, draw)
        make = draw.choice([good_pointer, odd_pointer])
        make(folder / 'last_checkpoint', folder, draw)
        warnings.clear()

        found = find_last_whole_checkpoint(folder)

        said = '\n'.join(warnings)
        passed_over = paths
        if found is not None:
            taken = [str(path) for path in paths].index(found)
            passed_over = paths[taken + 1 :]
            loaded, content = load_checkpoint(found), contents[taken]
            assert loaded['meta'] == content['meta'], seed
            for part in ('state_dict', 'optimizer'):
                same = torch.equal(loaded[part]['w'], content[part]['w'])
                assert same, seed
        for path in passed_over:
            assert path in damaged, f'seed {seed}: {path.name} is good'
            assert f'- {path} ' in said, seed
        kind = 'none' if found is None else 'before'
        outcomes['newest' if found == str(paths[-1]) else kind] += 1
    # Each outcome comes up, so that none of the checks above is idle.
    assert min(outcomes.values()) > len(seeds) // 20, outcomes
