"""Training in shards is training in whole copies, also after a kill."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from resume_run import run_ranks
from training_ends import assert_same, read_losses

from mmrank.apis.entry_point import check_folder, prepare_cpu_processes
from mmrank.engine.runners import refuse_strategy, strategy_class
from mmrank.engine.sharded.checkpoint import load_sharded
from mmrank.engine.sharded.fsdp_strategy import FSDPStrategy
from mmrank.errors import UserError

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
GATHER = ROOT / 'tools/model_converters/gather_checkpoint.py'
#: All that shards could break: the state of a loss, a forward under previous weights, an average of
#: the weights, clipping, and a parameter of shape ().
WHOLE = {
    'distributed': True,
    'loss': {'type': 'mmrank.StableAPLoss', 'mean_mode': 'exact'},
    'learned_scale': True,
    'clip_grad': {'max_norm': 0.05},
    'optimizer': {'type': 'mmrank.SUM', 'lr': 0.05, 'momentum': 0.9, 's': 1.0},
    # mmengine saves the batch norm statistics of the first process only.
    'hooks': [{'type': 'SyncBuffersHook'}, {'type': 'mmrank.PreviousWeightsHook'}],
}
SHARDED = {
    **WHOLE,
    'engine': {
        'runner_type': 'mmrank.FlexibleRunner',
        'strategy': {'type': 'mmrank.FSDPStrategy', 'wrap': ['Linear']},
    },
}


def end(work_dir, rank=0):
    """What a training ended with, without the prefix of a wrapper."""
    state = torch.load(work_dir / f'final_{rank}.pt', weights_only=False)
    state['model'] = {key.removeprefix('module.'): value for key, value in state['model'].items()}
    return state


def assert_close(actual, expected):
    """Compare the numbers that two engines ended with."""
    for name in ('model', 'ema', 'history', 'best'):
        torch.testing.assert_close(actual[name], expected[name], rtol=1e-5, atol=1e-7)
    states = actual['optimizer']['state'], expected['optimizer']['state']
    torch.testing.assert_close(*states, rtol=1e-5, atol=1e-7)


@pytest.fixture(scope='module')
def uninterrupted(tmp_path_factory):
    """A training in shards that ran through."""
    folder = tmp_path_factory.mktemp('whole')
    assert run_ranks(2, folder, SHARDED) == [0, 0]
    return folder


def test_equals_whole_copies(uninterrupted, tmp_path):
    assert run_ranks(2, tmp_path, WHOLE) == [0, 0]
    for rank in range(2):
        sharded, whole = end(uninterrupted, rank), end(tmp_path, rank)
        assert sharded['model']['loss.mean_positive.num_updates'].all()
        assert sharded['model']['scale'] != 1
        assert_close(sharded, whole)


@pytest.mark.parametrize('wrap', [['Linear'], []], ids=['layers', 'whole'])
@pytest.mark.slow
def test_gradient_caching(tmp_path, wrap):
    # Batches of four as two chunks, each gathered and embedded twice.
    cached = {'type': 'mmrank.GradCacheOptimWrapper', 'chunk': 2, 'batch_norm': 'chunk'}
    engine = {**SHARDED['engine']}
    engine['strategy'] = {**engine['strategy'], 'wrap': wrap}
    for folder, options in (('sharded', {**SHARDED, 'engine': engine}), ('whole', WHOLE)):
        options = {**options, 'optim_wrapper': cached}
        assert run_ranks(2, tmp_path / folder, options) == [0, 0]
    for rank in range(2):
        assert_close(end(tmp_path / 'sharded', rank), end(tmp_path / 'whole', rank))


@pytest.mark.slow
def test_resumes_after_a_kill(uninterrupted, tmp_path):
    assert 0 not in run_ranks(2, tmp_path, SHARDED, kill=('iteration', 5))
    assert (tmp_path / 'epoch_2.pth').is_dir()
    assert run_ranks(2, tmp_path, SHARDED, resume=True) == [0, 0]
    for rank in range(2):
        assert_same(end(tmp_path, rank), end(uninterrupted, rank))
        assert read_losses(tmp_path, rank) == read_losses(uninterrupted, rank)
    assert not list(tmp_path.glob('.*.tmp'))


@pytest.mark.slow
@pytest.mark.parametrize('ranks', [(2, 1, 3), (1, 2, 1)], ids=str)
def test_resumes_on_another_number_of_processes(tmp_path, ranks):
    hooks = [*SHARDED['hooks'], {'type': 'StateHook'}]
    options = {**SHARDED, 'hooks': hooks}
    for part, number in enumerate(ranks):
        last = part == len(ranks) - 1
        # Two epochs of 12 points by 4 on so many processes.
        steps = 2 * -(-3 // number)
        kill = None if last else ('iteration', steps // 2 + 1)
        assert (0 in run_ranks(number, tmp_path, options, kill, part > 0)) == last
        if part:
            saved = torch.load(tmp_path / f'saved{part}_0.pt')
            for rank in range(number):
                first = torch.load(tmp_path / f'first_{rank}.pt')
                for name in ('state_dict', 'ema_state_dict', 'optimizer'):
                    assert_same(first[name], saved[name], name)


@pytest.mark.slow
def test_goes_from_one_engine_to_the_other(uninterrupted, tmp_path):
    # A file of whole copies resumes in shards ...
    assert 0 not in run_ranks(2, tmp_path, WHOLE, kill=('iteration', 5))
    assert (tmp_path / 'epoch_2.pth').is_file()
    assert run_ranks(2, tmp_path, SHARDED, resume=True) == [0, 0]
    assert_close(end(tmp_path), end(uninterrupted))
    # ... and a folder of shards, gathered, in whole copies.
    other = tmp_path / 'other'
    other.mkdir()
    out = other / 'epoch_2.pth'
    command = [sys.executable, GATHER, uninterrupted / 'epoch_2.pth', out]
    subprocess.run(command, check=True, capture_output=True)
    (other / 'last_checkpoint').write_text(str(out))
    assert run_ranks(2, other, WHOLE, resume=True) == [0, 0]
    assert_close(end(other), end(uninterrupted))


def test_strategies_that_lose_something_are_refused():
    for name in ('FSDPStrategy', 'DeepSpeedStrategy', 'ColossalAIStrategy'):
        with pytest.raises(UserError, match=f"mmengine's {name} .*mmrank.FSD"):
            refuse_strategy({'type': name})
    from mmengine._strategy import FSDPStrategy as Theirs

    with pytest.raises(UserError, match='the same number of processes'):
        refuse_strategy({'type': Theirs})
    for fine in (
        None,
        {'type': 'DDPStrategy'},
        {'type': 'mmrank.FSDPStrategy'},
        {'type': FSDPStrategy},
    ):
        refuse_strategy(fine)


def test_processes_on_cpus_take_ddp(monkeypatch):
    name = 'torch.distributed.init_process_group'
    monkeypatch.setattr(name, lambda *args, **kwargs: None)
    base = {'launcher': 'pytorch', 'runner_type': 'FlexibleRunner'}
    from mmengine._strategy import DDPStrategy

    for kind in (None, 'DDPStrategy', 'mmengine.DDPStrategy', DDPStrategy):
        cfg = Config(base)
        if kind is not None:
            cfg.strategy = {'type': kind, 'sync_bn': 'torch'}
        prepare_cpu_processes(cfg)
        assert strategy_class(cfg.strategy)[1] == 'DDPStrategy'
        assert cfg.strategy.get('sync_bn') == (kind and 'torch')
        # Not the GPU of this rank.
        assert cfg.strategy.model_wrapper.device_ids is None
    cfg = Config({**base, 'strategy': {'type': FSDPStrategy}})
    prepare_cpu_processes(cfg)
    assert 'model_wrapper' not in cfg.strategy


def test_one_process_without_a_launcher(tmp_path):
    with pytest.raises(UserError, match='over the processes of a launcher'):
        FSDPStrategy(work_dir=str(tmp_path), env_kwargs={'launcher': 'none'})


def test_folder_needs_the_strategy(tmp_path, uninterrupted):
    folder = str(uninterrupted / 'epoch_2.pth')
    cfg = Config({'strategy': {'type': 'mmrank.FSDPStrategy'}})
    check_folder(cfg, folder)
    check_folder(Config({'strategy': {'type': FSDPStrategy}}), folder)
    with pytest.raises(UserError, match='gather_checkpoint.py'):
        check_folder(Config({}), folder)
    shutil.copytree(folder, tmp_path / 'epoch_2.pth')
    (tmp_path / 'epoch_2.pth' / 'rest.pth').unlink()
    with pytest.raises(UserError, match='lacks its file rest.pth'):
        load_sharded(tmp_path / 'epoch_2.pth')


def test_gathered_file(uninterrupted, tmp_path, run_script):
    folder = uninterrupted / 'epoch_4.pth'
    out = tmp_path / 'all.pth'
    assert run_script(GATHER, folder, out)[0] == 0
    state = torch.load(out, weights_only=False)
    expected = end(uninterrupted)
    assert state['optimizer']['state'].keys() == (expected['optimizer']['state'].keys())
    # The EMAHook puts the average in the place of the weights.
    for key, value in state['ema_state_dict'].items():
        if key.startswith('module.'):
            name = key.removeprefix('module.')
            assert torch.equal(value, expected['model'][name]), name
            average = state['state_dict'][name]
            assert torch.equal(average, expected['ema'][key]), name
    assert run_script(GATHER, folder, out, '--weights-only')[0] == 0
    small = torch.load(out, weights_only=False)
    assert small.keys() == {'state_dict', 'meta', 'message_hub'}
    code, _, err = run_script(GATHER, uninterrupted, out)
    assert (code, 'without manifest.json' in err) == (2, True)
