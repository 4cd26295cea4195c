r"""Draw the test embeddings of models on a plane, by t-SNE.

    mmrank draw embeddings \
        "stable AP=stable.py,work_dirs/stable/epoch_50.pth" "SmoothAP=features.npz"

NAME=PATH is a config with its checkpoint, which is tested once, or features that a test has written
(RetrievalMetric(out_file='features.npz')). All models show the same samples. Near points of the map
were near before; distances between groups mean little. Above each panel stands how many samples
have one of their own class nearest by cosine.
"""

from pathlib import Path

from mmrank.cli.draw.features import add_model_options, features_by_name
from mmrank.cli.options import check_outputs, parse_at_least, tool_parser
from mmrank.pictures.embedding_maps import choose_samples, make_map, plot_maps


def main() -> None:
    parser = tool_parser(
        __doc__,
        classes=(10, 'classes to show, the largest ones'),
        out=(Path('work_dirs/embedding_map/map.png'), 'image file'),
    )
    add_model_options(parser)
    args = parse_at_least(parser, classes=1)
    check_outputs(args, 'out')
    models = features_by_name(args, args.out.parent)
    first = next(iter(models.values()))
    rows = choose_samples(first.labels.numpy(), args.classes)
    maps = []
    for name, features in models.items():
        maps.append(make_map(name, features, rows))
        print(
            f'{name}: of {len(rows)} samples {maps[-1].purity:.1f} % have one of their class '
            f'nearest, on the map {maps[-1].map_purity:.1f} %'
        )
    print(f'Wrote {plot_maps(maps, args.out, first.classes)}')
