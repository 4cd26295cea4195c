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
from malformed_files import Call, damage_bytes
from mmengine.logging import HistoryBuffer
from mmengine.runner import CheckpointLoader
from tiny_tool_run import TEST, TRAIN, write_config
from training_ends import assert_same

from mmrank.checkpoint_loading import CheckpointError, load_checkpoint
from mmrank.engine.resume import checkpoint
from mmrank.engine.resume.checkpoint import _find_damage, find_last_whole_checkpoint


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


@pytest.fixture
def hub(tmp_path, monkeypatch, loads_as_data):
    """The folder of downloads, and a function that gives model zoos the address of a file."""
    monkeypatch.setattr(torch.hub, 'get_dir', lambda: str(tmp_path / 'hub'))

    def offer(file):
        for zoo in ('get_torchvision_models', 'get_external_models', 'get_mmcls_models'):
            names = {'net': f'https://host/{file}'}
            monkeypatch.setattr(mmengine.runner.checkpoint, zoo, lambda names=names: names)

    (tmp_path / 'hub/checkpoints').mkdir(parents=True)
    return tmp_path / 'hub/checkpoints', offer


@pytest.mark.parametrize(
    'source', ['{}', 'https://host/{}', 'torchvision://net', 'open-mmlab://net', 'mmcls://net']
)
def test_what_mmengine_loads_is_guarded(hub, marker, source):
    folder, offer = hub
    path = evil_file(folder / 'evil.pth', marker)
    offer(path.name)
    with pytest.raises(CheckpointError, match='evil(.pth)? calls'):
        CheckpointLoader.load_checkpoint(source.format(path if source == '{}' else path.name))


@pytest.mark.parametrize('source', ['https://host/{}', 'torchvision://net', 'openmmlab://net'])
def test_a_download_has_the_hash_of_its_name(hub, tmp_path, monkeypatch, source):
    folder, offer = hub
    good = tmp_path / 'good.pth'
    torch.save({'state_dict': {'weight': torch.ones(1)}}, good)
    name = f'net-{hashlib.sha256(good.read_bytes()).hexdigest()[:8]}.pth'
    offer(name)
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
    cached = folder / name
    data = cached.read_bytes()
    cached.write_bytes(data.replace(b'\x00\x00\x80\x3f', b'\x00\x00\x80\x40'))
    with pytest.raises(CheckpointError, match='has another checksum'):
        CheckpointLoader.load_checkpoint(source.format(name))
    # A date is no hash.
    dated = folder / 'net-20260131.pth'
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


def dtype(name, field, flags):
    """Pickles as a dtype whose state has a field with references to Python objects."""
    state = (3, '<', None, ('a',), {'a': (field, 0)}, 8, 1, flags)
    return Call(np.dtype, name, False, True, state=state)


def array(kind):
    """Pickles as an array of two numbers of eight bytes."""
    make, args = np.zeros(0).__reduce__()[:2]
    return Call(make, *args, state=(1, (2,), kind, False, b'A' * 16))


@pytest.mark.parametrize(
    ('value', 'words'),
    [
        (np.array([print, None], dtype=object), None),
        (Call(np.dtype, 'O'), None),
        (Call(eval, '1'), None),
        (Call(pickle.loads, b'N.'), None),
        # A state that lays references over bytes.
        (dtype('V8', np.dtype('O'), 0), 'dtype'),
        (array(dtype('O', 1, 63)), 'calls numpy.dtype'),
        (array(dtype('V8', 1, 63)), 'calls numpy.dtype'),
    ],
)
def test_ways_around_the_list(tmp_path, value, words):
    torch.save({'value': value}, tmp_path / 'evil.pth')
    with pytest.raises(CheckpointError, match=words):
        load_checkpoint(tmp_path / 'evil.pth')


def test_what_loads_as_something_harmless(tmp_path):
    # mmengine's histories refer to their methods, whose globals would be within reach. NumPy itself
    # takes the state of the dtype, and then releases what the bytes point to.
    method = Call(getattr, HistoryBuffer, '__init__')
    torch.save({'method': method, 'array': array(dtype('f8', 1, 63))}, tmp_path / 'evil.pth')
    loaded = load_checkpoint(tmp_path / 'evil.pth')
    assert loaded['method'] is None
    assert loaded['array'].dtype == np.dtype('f8')
    assert loaded['array'].dtype.fields is None
    assert not loaded['array'].dtype.hasobject


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


#: What stands in place of a checkpoint, or of the file that names the last one.
INSTEAD = [
    os.mkfifo,
    lambda path: path.mkdir(),
    lambda path: path.symlink_to('nowhere.pth'),
    lambda path: path.symlink_to(path.name),
]
#: What mmengine has not written into that file; ``{}`` is the folder.
POINTERS = [
    '',
    '\0' * 40,
    'x' * 5000,
    'epoch_' + '9' * 5000 + '.pth',
    '/' + 'd/' * 4000,
    'work\nepoch_3.pth',
    '{}/gone/epoch_3.pth',
    '{}/gone/final.pth',
    '{}/epoch_9.pth',
    '{}',
    '.',
    '~',
]


def damage(path, draw):
    """Change some bytes of a file, or put something else in its place."""
    content = path.read_bytes()
    if draw.random() < 0.75:
        # The directory at the end is small and has most fields.
        start = draw.choice([0, max(len(content) - 1500, 0)])
        path.write_bytes(content[:start] + damage_bytes(content[start:], draw))
        return
    path.unlink()
    draw.choice(INSTEAD)(path)


def write_pointer(path, draw):
    """What mmengine writes, or anything but that."""
    kind = draw.randrange(4)
    if kind == 0:
        draw.choice(INSTEAD)(path)
    elif kind == 1:
        path.write_text(draw.choice(POINTERS).format(path.parent))
    else:
        path.write_text(str(path.with_name('epoch_3.pth')))


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
            damage(path, draw)
        write_pointer(folder / 'last_checkpoint', draw)
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
