"""The converters of interactions."""

from mmrank.datasets import InteractionDataset, TopKDataset


def test_made_up_interactions_refuse_bad_numbers(run, tmp_path):
    out = run('dataset_converters/make_interactions', tmp_path, '--users 5 --items 9', status=2)
    assert 'num_items=9 must not exceed' in out


def test_ratings_are_split_as_they_are(run, tmp_path):
    lines = [
        f'{user}::{item}::{3 + (user + item) % 3}::7' for user in range(12) for item in range(10)
    ]
    # An item that one user knows stays in training.
    lines += ['3::77::5::7', '3::78::1::7']
    source = tmp_path / 'ratings.dat'
    source.write_text('\n'.join(lines) + '\n')
    tool = 'dataset_converters/split_interactions'
    run(tool, source, tmp_path / 'out', '--separator :: --min-rating 4 --share 0.3')
    train = (tmp_path / 'out/train.dat').read_text().splitlines()
    test = (tmp_path / 'out/test.dat').read_text().splitlines()
    kept = [x for x in lines if int(x.split('::')[2]) >= 4]
    assert sorted(train + test) == sorted(kept)
    assert '3::77::5::7' in train
    form = dict(data_root=tmp_path / 'out', file_format='movielens')
    dataset = InteractionDataset('train.dat', **form)
    assert dataset.interactions.shape == (12, 11)
    held_out = TopKDataset('test.dat', 'train.dat', **form)
    assert held_out.interactions.num_unknown == 0
    by_user = [x.split('::')[0] for x in test]
    assert all(by_user.count(str(u)) in (1, 2) for u in range(12))
    assert 'share must be in' in run(tool, source, tmp_path, '--separator :: --share 1.5', status=2)


def test_header_goes_to_both_parts(run, tmp_path):
    source = tmp_path / 'pairs.csv'
    source.write_text('user,item\n' + ''.join(f'{i},{j}\n' for i in 'abc' for j in 'xyz'))
    run('dataset_converters/split_interactions', source, tmp_path / 'out', '--share', 0.4)
    for name, count in (('train', 6), ('test', 3)):
        text = (tmp_path / 'out' / f'{name}.csv').read_text().splitlines()
        assert text[0] == 'user,item'
        assert len(text) == 1 + count
