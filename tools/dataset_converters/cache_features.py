r"""Store the outputs of frozen stages once, for trainings of seconds on a CPU.

    python tools/dataset_converters/cache_features.py CONFIG \ data/grocery/stage5 --views 4

CONFIG trains on images and its first encoder is mmrank.TIMMStages with frozen_stages=N. Every image
of its train, val and test data runs through these stages: once by the pipeline of test_dataloader,
and --views times by train_dataloader's, each time with other random numbers. OUT.npy gets the
feature maps in float16, OUT.json the paths. A config whose encoder has start=N and whose pipelines
begin with mmrank.LoadCachedFeatures then trains the same network, on the stored views instead of
ever new ones. With --pool the encoder of that config is mmpretrain.GlobalAveragePooling alone.
"""

import sys
from collections.abc import Iterator

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.registry import DATASETS, MODELS, init_default_scope
from mmengine.runner import set_random_seed
from rich.progress import Progress

from mmrank.checkpoint_loading import guard_checkpoints
from mmrank.cli.config_options import add_config_option
from mmrank.cli.options import parse_at_least, tool_parser
from mmrank.datasets.transforms import FeatureCache
from mmrank.errors import UserError, show_user_errors
from mmrank.runners.config import apply_options, read_config

SPLITS = ('train', 'val', 'test')


def frozen_part(config: Config) -> torch.nn.Module:
    """The frozen stages of the encoder of a config, with their weights."""
    encoder = config.model.get('image_encoder', config.model.get('backbone'))
    first = dict(encoder[0] if isinstance(encoder, list | tuple) else encoder)
    frozen = first.pop('frozen_stages', 0)
    if first.get('type') != 'mmrank.TIMMStages' or not frozen:
        what = f'the first encoder of the config is {first.get("type")} with frozen_stages={frozen}'
        raise UserError(what, 'mmrank.TIMMStages with frozen_stages above 0')
    stages = MODELS.build(dict(first, stop=frozen))
    stages.init_weights()
    return stages.eval()


@torch.no_grad()
def maps(stages, preprocessor, args, items: list[dict], pipeline, step) -> Iterator[np.ndarray]:
    for start in range(0, len(items), args.batch_size):
        batch = [pipeline(dict(item)) for item in items[start : start + args.batch_size]]
        samples = [x['data_samples'] for x in batch]
        inputs = torch.stack([x['inputs'] for x in batch])
        data = preprocessor({'inputs': inputs, 'data_samples': samples})
        found = stages(data['inputs'])[-1]
        if args.pool:
            found = found.mean((2, 3), keepdim=True)
        yield from found.numpy()
        step(len(batch))


@show_user_errors(OSError)
def main() -> None:
    pool = 'store the mean of each map over its positions, for a network that is frozen as a whole'
    parser = tool_parser(
        __doc__, views=(4, 'random views of each image'), pool=(False, pool), batch_size=64, seed=0
    )
    parser.add_argument('config', metavar='CONFIG')
    parser.add_argument('out', metavar='OUT', help='without a suffix')
    add_config_option(parser)
    args = parse_at_least(parser, views=0, batch_size=1)
    guard_checkpoints(False)
    config = read_config(args.config)
    apply_options(config, args.cfg_options)
    init_default_scope(config.get('default_scope', 'mmpretrain'))
    set_random_seed(args.seed)
    stages = frozen_part(config)
    loaders = [x for split in SPLITS if (x := config.get(f'{split}_dataloader')) is not None]
    if not loaders:
        raise UserError('the config has no data loader. Fix: set one')
    by_path = {}
    for loader in loaders:
        data_set = DATASETS.build(dict(loader.dataset, pipeline=[]))
        for index in range(len(data_set)):
            info = data_set.get_data_info(index)
            by_path[info['img_path']] = info
    paths = sorted(by_path)
    items = [by_path[path] for path in paths]
    settings = config.model.get('data_preprocessor') or config.get('data_preprocessor') or {}
    preprocessor = MODELS.build({'type': 'mmpretrain.ClsDataPreprocessor', **settings})
    fixed = Compose(config.test_dataloader.dataset.pipeline)
    drawn = Compose(config.train_dataloader.dataset.pipeline)
    with Progress(transient=True) as progress:
        task = progress.add_task('Images', total=(1 + args.views) * len(items))

        def step(count: int) -> None:
            progress.advance(task, count)

        views = [
            maps(stages, preprocessor, args, items, pipeline, step)
            for pipeline in (fixed, *[drawn] * args.views)
        ]
        made_by = dict(stages=stages.stop, views=args.views, pooled=args.pool, seed=args.seed)
        FeatureCache.write(args.out, paths, views, {**made_by, 'model_name': stages.model_name})
    print(f'Wrote {len(items)} images x {1 + args.views} views to {args.out}')


if __name__ == '__main__':
    sys.exit(main())
