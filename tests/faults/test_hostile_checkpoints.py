"""No checkpoint runs code, however it is read; ``--resume`` steps back to the last good one."""

import hashlib
import os
import pickle
import random
import shutil
import zipfile
from functools import partial
from io import BytesIO
from urllib.request import urlopen

import mmengine.runner.checkpoint
import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.runner import CheckpointLoader
from tiny_tool_run import TEST, TRAIN, write_config
from training_ends import assert_same

from mmrank.checkpoint_loading import CheckpointError, load_checkpoint
from mmrank.engine.resume import checkpoint
from mmrank.engine.resume.checkpoint import _find_damage, find_last_whole_checkpoint


class Call:
    """Pickles as a call of a function."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


def evil_file(path, marker, zip_format=True, **content):
    """Write a checkpoint that makes ``marker`` when its pickle runs."""
    torch.save(
        {**content, 'state_dict': {}, 'evil': Call(os.mkdir, str(marker))},
        path,
        _use_new_zipfile_serialization=zip_format,
    )
    return path


@pytest.fixture
def marker(tmp_path):
    """A path that must not exist when the test ends."""
    path = tmp_path / 'marker'
    yield path
    assert not path.exists()


both_formats = pytest.mark.parametrize('zip_format', [True, False], ids=['zip', 'legacy'])


@both_formats
def test_loading_is_refused_by_name_and_judging_runs_nothing(tmp_path, marker, zip_format):
    path = evil_file(tmp_path / 'evil.pth', marker, zip_format)
    with pytest.raises(CheckpointError, match=r'evil.pth calls \w+.mkdir[^$]*--trust-checkpoint'):
        load_checkpoint(path)
    assert (_find_damage(path) is None) is zip_format
    pickle.dump(Call(os.mkdir, str(marker)), path.open('wb'))
    assert _find_damage(path) is not None


@both_formats
def test_resume(trained, tmp_path, marker, run_script, zip_format):
    meta = {'epoch': 1, 'iter': 3}
    evil_file(tmp_path / 'epoch_1.pth', marker, zip_format, meta=meta)
    (tmp_path / 'last_checkpoint').write_text(str(tmp_path / 'epoch_1.pth'))
    options = ['--work-dir', tmp_path, '--cfg-options', 'train_cfg.max_epochs=1']
    status, _, errors = run_script(TRAIN, trained[1], '--resume', *options)
    # The older format cannot be judged, so the training starts over.
    assert status == (2 if zip_format else 0)
    assert ('epoch_1.pth calls' in errors) is zip_format


def test_a_flipped_bit_is_refused_at_every_door(trained, tmp_path, run_script):
    path, config = tmp_path / 'flipped.pth', trained[1]
    data = bytearray((trained[0] / 'epoch_4.pth').read_bytes())
    with zipfile.ZipFile(trained[0] / 'epoch_4.pth') as archive:
        member = next(x for x in archive.infolist() if x.filename.endswith('/data/0'))
    data[member.header_offset + 128] ^= 1
    path.write_bytes(data)
    for tool, *options in (
        (TEST, config, path),
        (TRAIN, config, '--resume', path),
        (TRAIN, config, '--cfg-options', f'load_from={path}'),
    ):
        status, _, errors = run_script(tool, *options, '--work-dir', tmp_path / 'work')
        assert status == 2, errors
        assert f'flipped.pth is damaged: record {member.filename} has another checksum' in errors
    with pytest.raises(CheckpointError, match='has another checksum'):
        load_checkpoint(BytesIO(data))


@pytest.mark.parametrize('hook', ['CheckpointHook', 'mmrank.AtomicCheckpointHook'])
def test_resume_removes_nothing_elsewhere(trained, tmp_path, run_script, hook):
    victim = tmp_path / 'best_work'
    victim.mkdir()
    content = torch.load(trained[0] / 'epoch_3.pth', weights_only=False)
    infos = content['message_hub']['runtime_info']
    infos.update(best_ckpt=str(victim), best_score=1e9)
    torch.save(content, tmp_path / 'evil.pth')
    options = {'type': hook, 'save_best': 'distance', 'rule': 'less'}
    config = write_config(tmp_path, checkpoint=options)
    resume = ['--resume', tmp_path / 'evil.pth']
    status, *_ = run_script(TRAIN, config, *resume)
    assert status == 0
    assert list((tmp_path / 'work').glob('best_distance_*'))
    assert victim.exists()


def test_trust_is_an_option(trained, tmp_path, run_script):
    work_dir, config = trained
    made = tmp_path / 'made'
    content = torch.load(work_dir / 'epoch_4.pth', weights_only=False)
    content['evil'] = Call(os.mkdir, str(made))
    torch.save(content, tmp_path / 'old.pth')
    options = [config, tmp_path / 'old.pth', '--work-dir', tmp_path]
    status, _, errors = run_script(TEST, *options)
    assert status == 2
    assert 'old.pth calls' in errors
    assert 'Traceback' not in errors
    assert not made.exists()
    assert run_script(TEST, *options, '--trust-checkpoint')[0] == 0
    assert made.exists()


@pytest.mark.usefixtures('loads_as_data')
@pytest.mark.parametrize(
    'source', ['{}', 'https://host/{}', 'torchvision://evil', 'open-mmlab://evil', 'mmcls://evil']
)
def test_what_mmengine_loads_is_guarded(tmp_path, marker, monkeypatch, source):
    path = evil_file(tmp_path / 'evil.pth', marker)
    monkeypatch.setattr(torch.hub, 'get_dir', lambda: str(tmp_path))
    (tmp_path / 'checkpoints').symlink_to(tmp_path)
    for name in ('get_torchvision_models', 'get_external_models', 'get_mmcls_models'):
        names = {'evil': 'https://host/evil.pth'}
        monkeypatch.setattr(mmengine.runner.checkpoint, name, lambda names=names: names)
    with pytest.raises(CheckpointError, match='evil(.pth)? calls'):
        CheckpointLoader.load_checkpoint(source.format(path if source == '{}' else path.name))


@pytest.mark.usefixtures('loads_as_data')
@pytest.mark.parametrize('source', ['https://host/{}', 'torchvision://net', 'openmmlab://net'])
def test_a_download_has_the_hash_of_its_name(tmp_path, monkeypatch, source):
    good = tmp_path / 'good.pth'
    torch.save({'state_dict': {'weight': torch.ones(1)}}, good)
    name = f'net-{hashlib.sha256(good.read_bytes()).hexdigest()[:8]}.pth'
    monkeypatch.setattr(torch.hub, 'get_dir', lambda: str(tmp_path / 'hub'))
    for table in ('get_torchvision_models', 'get_external_models'):
        names = {'net': f'https://host/{name}'}
        monkeypatch.setattr(mmengine.runner.checkpoint, table, lambda names=names: names)
    fetched = []

    def fetch(request):
        fetched.append(request.full_url)
        return urlopen((tmp_path / 'served.pth').as_uri())

    monkeypatch.setattr(torch.hub, 'urlopen', fetch)
    torch.save({'state_dict': {'weight': torch.zeros(1)}}, tmp_path / 'served.pth')
    for _ in range(2):  # what was refused is not kept
        with pytest.raises(
            CheckpointError, match=r'invalid hash value \(expected "[0-9a-f]{8}"'
        ) as e:
            CheckpointLoader.load_checkpoint(source.format(name))
        assert 'Fix: correct the address; or download it elsewhere' in str(e.value)
    shutil.copy(good, tmp_path / 'served.pth')
    assert CheckpointLoader.load_checkpoint(source.format(name))['state_dict']['weight'] == 1
    assert fetched == [f'https://host/{name}'] * 3
    # What is in the cache is compared with its checksums.
    cached = tmp_path / 'hub/checkpoints' / name
    data = cached.read_bytes()
    cached.write_bytes(data.replace(b'\x00\x00\x80\x3f', b'\x00\x00\x80\x40'))
    with pytest.raises(CheckpointError, match='has another checksum'):
        CheckpointLoader.load_checkpoint(source.format(name))
    # A date is no hash.
    dated = tmp_path / 'hub/checkpoints/net-20260131.pth'
    shutil.copy(good, dated)
    assert CheckpointLoader.load_checkpoint(f'https://host/{dated.name}')


def test_a_reader_that_runs_code_cannot_be_asked_for(tmp_path, marker, monkeypatch, request):
    # Upstream mmengine needs the variable for its own checkpoints.
    monkeypatch.setenv('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD', '1')
    request.getfixturevalue('loads_as_data')
    torch.save({'weight': torch.ones(2)}, tmp_path / 'good.pth')
    assert CheckpointLoader.load_checkpoint(str(tmp_path / 'good.pth'))['weight'].sum() == 2
    path = str(evil_file(tmp_path / 'evil.pth', marker))
    # The caches of others, too.
    with_code = partial(torch.load, weights_only=False)
    for load in (CheckpointLoader.load_checkpoint, torch.load, with_code):
        with pytest.raises(CheckpointError, match='evil.pth calls'):
            load(path)


def test_config_text_of_the_checkpoint_does_not_run(trained, tmp_path, marker, run_script):
    work_dir, config = trained
    content = torch.load(work_dir / 'epoch_3.pth', weights_only=False)
    content['meta']['config'] = f'import os\nos.mkdir({str(marker)!r})\n'
    torch.save(content, tmp_path / 'epoch_3.pth')
    status, _, errors = run_script(
        TRAIN, config, '--resume', tmp_path / 'epoch_3.pth', '--work-dir', tmp_path / 'work'
    )
    assert status == 0, errors


def test_getattr_gives_nothing(tmp_path):
    # mmengine's histories refer so to their methods, whose globals would be within reach.
    value = Call(getattr, HistoryBuffer, '__init__')
    torch.save({'value': value}, tmp_path / 'evil.pth')
    assert load_checkpoint(tmp_path / 'evil.pth') == {'value': None}


class Dtype:
    """Pickles as a dtype whose state has a field with references to Python objects."""

    def __init__(self, name, field, flags):
        state = (3, '<', None, ('a',), {'a': (field, 0)}, 8, 1, flags)
        self.call = np.dtype, (name, False, True), state

    def __reduce__(self):
        return self.call


class Array:
    """Pickles as an array of two numbers of eight bytes."""

    def __init__(self, kind):
        self.kind = kind

    def __reduce__(self):
        parts = np.zeros(0).__reduce__()
        return *parts[:2], (1, (2,), self.kind, False, b'A' * 16)


@pytest.mark.parametrize(
    ('value', 'words'),
    [
        (np.array([print, None], dtype=object), None),
        (Call(np.dtype, 'O'), None),
        (Call(eval, '1'), None),
        (Call(pickle.loads, b'N.'), None),
        # A state that lays references over bytes.
        (Dtype('V8', np.dtype('O'), 0), 'dtype'),
        (Array(Dtype('O', 1, 63)), 'calls numpy.dtype'),
        (Array(Dtype('V8', 1, 63)), 'calls numpy.dtype'),
    ],
)
def test_ways_around_the_list(tmp_path, value, words):
    torch.save({'value': value}, tmp_path / 'evil.pth')
    with pytest.raises(CheckpointError, match=words):
        load_checkpoint(tmp_path / 'evil.pth')


def test_an_array_of_numbers_gets_no_field_of_objects(tmp_path):
    # NumPy itself takes this state, and then releases what the bytes point to.
    torch.save({'value': Array(Dtype('f8', 1, 63))}, tmp_path / 'evil.pth')
    loaded = load_checkpoint(tmp_path / 'evil.pth')['value']
    assert loaded.dtype == np.dtype('f8')
    assert loaded.dtype.fields is None
    assert not loaded.dtype.hasobject


def test_checkpoints_of_ours_load_unchanged(trained):
    path = trained[0] / 'epoch_4.pth'
    loaded = load_checkpoint(path)
    plain = torch.load(path, weights_only=False)
    for part in ('state_dict', 'optimizer'):
        assert_same(loaded[part], plain[part], part)
    histories = [x['message_hub']['log_scalars'] for x in (loaded, plain)]
    np.testing.assert_equal(*({k: x.data for k, x in each.items()} for each in histories))


def test_plain_values_load_unchanged(tmp_path):
    shared = np.arange(3)
    values = {
        'fortran': np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        'big-endian': np.arange(3, dtype='>i4'),
        'text': np.array(['a', 'bc']),
        'empty': np.array([]),
        'scalars': (np.float64(3), np.bool_(True), np.int8(-1)),
        'nested': [({1: None},), {1, 2}, b'', b'x', 1j],
        'shared': [shared, shared],
    }
    torch.save(values, tmp_path / 'plain.pth')
    loaded = load_checkpoint(tmp_path / 'plain.pth')
    np.testing.assert_equal(loaded, values)
    assert loaded['fortran'].flags.f_contiguous
    assert loaded['fortran'].flags.writeable
    assert loaded['shared'][0] is loaded['shared'][1]


def test_the_allow_list_of_others_is_kept(tmp_path):
    before = torch.serialization.get_safe_globals()
    torch.serialization.add_safe_globals([Call])
    try:
        torch.save({}, tmp_path / 'plain.pth')
        load_checkpoint(tmp_path / 'plain.pth')
        after = torch.serialization.get_safe_globals()
        assert set(after) == {*before, Call}
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)


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
