"""The first iterations of a row of a plan, on made-up data in the layout of the real ones."""

from pathlib import Path

import torch
from mmengine.runner import Runner
from published_configs import ROOT, load

from mmrank.apis.entry_point import build_runner, set_collate
from mmrank.apis.seeds.plan import read_plan


def start(plan: str, set_name: str, method: str, folder: Path, monkeypatch, **options) -> Runner:
    """Train two iterations of a row in a folder that holds ``data/...``; read one test sample.

    Args:
        plan (str): Path of the plan, from the root of the repository on.
        set_name (str): A set of it.
        method (str): Name of the row.
        folder (Path): Folder that holds the made-up data as the config names them.
        monkeypatch: Fixture that changes the working directory.
        **options: Overrides by key, where made-up data are smaller than a batch.

    Returns:
        Runner: It has trained; its last loss is finite.
    """
    monkeypatch.chdir(ROOT)
    (row,) = [x for x in read_plan(plan, set_name).methods if x.name == method]
    cfg = load(Path(ROOT, row.config), {**row.cfg_options, **options})
    set_collate(cfg)
    monkeypatch.chdir(folder)
    cfg.work_dir = str(folder / 'out')
    cfg.train_cfg = dict(type='IterBasedTrainLoop', max_iters=2, val_interval=1000)
    cfg.train_dataloader.update(num_workers=0, persistent_workers=False)
    test_data = cfg.get('test_dataloader')
    for name in ('val', 'test'):
        for part in ('dataloader', 'cfg', 'evaluator'):
            cfg[f'{name}_{part}'] = None
    cfg.custom_hooks = [x for x in cfg.get('custom_hooks', []) if 'Eval' not in x['type']]
    cfg.launcher = 'none'
    runner = build_runner(cfg)
    runner.train()
    losses = [x for name, x in runner.message_hub.log_scalars.items() if name == 'train/loss']
    assert losses
    assert torch.isfinite(torch.tensor(losses[0].current()))
    if test_data:
        test_data.update(num_workers=0, persistent_workers=False)
        assert next(iter(Runner.build_dataloader(test_data)))
    return runner
