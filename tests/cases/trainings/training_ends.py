"""Compares what two trainings have left behind, bit by bit."""

from pathlib import Path

import torch


def assert_same(actual, expected, where='') -> None:
    """Compare nested containers of tensors bit by bit."""
    assert type(actual) is type(expected), where
    if isinstance(actual, torch.Tensor):
        # A step in float16 that overflows has a gradient of NaN.
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True, msg=where)
    elif isinstance(actual, dict):
        assert actual.keys() == expected.keys(), where
        for key in actual:
            assert_same(actual[key], expected[key], f'{where}.{key}')
    elif isinstance(actual, (list, tuple)):
        assert len(actual) == len(expected), where
        for index, pair in enumerate(zip(actual, expected)):
            assert_same(*pair, f'{where}[{index}]')
    else:
        assert actual == expected, where


def read_losses(work_dir: Path, rank: int = 0) -> dict[str, str]:
    """Losses by iteration; one trained on twice must agree with itself."""
    losses = {}
    text = (work_dir / f'losses_{rank}.txt').read_text()
    for line in text.splitlines():
        iteration, loss = line.split()
        assert losses.setdefault(iteration, loss) == loss, iteration
    return losses


def assert_same_run(work_dir: Path, whole: Path, names, ranks: int) -> None:
    """Compare checkpoints of some names and all losses, bit by bit; no temporary file is left."""
    for name in names:
        assert_same(contents(work_dir / name), contents(whole / name), name)
    for rank in range(ranks):
        assert read_losses(work_dir, rank) == read_losses(whole, rank)
    assert not list(work_dir.glob('.*.tmp'))


def contents(path: Path) -> dict:
    """What two equal trainings have in common in a checkpoint."""
    checkpoint = torch.load(path, weights_only=False)
    meta, hub = checkpoint.pop('meta'), checkpoint.pop('message_hub')
    checkpoint['at'] = {key: meta[key] for key in ('epoch', 'iter', 'seed')}
    checkpoint['logged'] = {
        name: [torch.as_tensor(x) for x in values.data]
        for name, values in hub['log_scalars'].items()
        if not name.endswith(('time', 'memory'))
    }
    names = ('best_score', 'mmrank_validated_at', 'keep_ckpt_ids')
    infos = {name: hub['runtime_info'].get(name) for name in names}
    return {**checkpoint, 'infos': infos}
