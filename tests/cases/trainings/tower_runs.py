"""Trainings of two towers on files of pairs, as configs of a runner."""

from mmengine.config import Config


def tower_config(root, work_dir, model, batch_size=20, sampling='in_batch', ending='', **settings):
    """Trains on ``train.csv`` and evaluates on ``test.csv`` of a folder.

    ``ending`` follows the names of the files, and ``settings`` are those of the runner.
    """
    loader = dict(num_workers=0, collate_fn=dict(type='mmrank.pair_collate'))
    sampler = dict(type='mmrank.InBatchPairSampler', batch_size=batch_size, seed=0)
    train, test = f'train.csv{ending}', f'test.csv{ending}'
    pairs = dict(type='mmrank.InteractionDataset', data_root=str(root), ann_file=train)
    held_out = dict(
        type='mmrank.TopKDataset', data_root=str(root), ann_file=test, train_ann_file=train
    )
    config = dict(
        model=model,
        work_dir=str(work_dir),
        train_dataloader=dict(
            batch_size=batch_size * (2 if sampling == 'sogram' else 1),
            dataset=dict(pairs, sampling=sampling),
            sampler=sampler,
            **loader,
        ),
        val_dataloader=dict(
            batch_size=512,
            dataset=held_out,
            sampler=dict(type='DefaultSampler', shuffle=False),
            **loader,
        ),
        val_evaluator=dict(type='mmrank.TopKMetric', k=(1, 3, 5)),
        val_cfg=dict(),
        optim_wrapper=dict(optimizer=dict(type='Adagrad', lr=0.3)),
        custom_hooks=[dict(type='mmrank.PairCountsHook')],
        default_scope='mmengine',
        randomness=dict(seed=0),
        log_level='ERROR',
        experiment_name=str(work_dir),
    )
    return Config({**config, **settings})
