"""Two-tower models: towers, losses, evaluation; test_in_batch_configs.py has whole runs."""

import pytest
import torch
from in_batch_enumeration import in_batch_loss
from small_models import two_tower

from mmrank.datasets import InteractionDataset
from mmrank.registry import MODELS

XMC = '0,2 0:1.5 3:2\n2 5:-1\n1,0 1:1 3:1\n'


@pytest.mark.parametrize('pointwise', ['square', 'logistic'])
@pytest.mark.parametrize('mode', ['unbiased', 'in_batch', 'sogram'])
def test_distinct_entities_give_the_loss_of_the_pairs(tmp_path, mode, pointwise):
    pairs = [f'{i},{j}\n' for i in range(24) for j in range(i % 2, 12, 2)]
    (tmp_path / 'train.csv').write_text(''.join(pairs))
    sampling = 'sogram' if mode == 'sogram' else 'in_batch'
    dataset = InteractionDataset(tmp_path / 'train.csv', sampling)
    pairs = dataset.interactions
    loss = dict(type='mmrank.InBatchLoss', mode=mode, pointwise=pointwise)
    model = MODELS.build(two_tower(*pairs.shape, loss))
    model.pair_loss.set_pairs(
        torch.from_numpy(pairs.rows), torch.from_numpy(pairs.cols), pairs.shape
    )
    batch = dataset.__getitems__(list(range(0, 40, 2)))
    # Many pairs share an entity, or the test shows nothing.
    assert len(batch['left']['ids']) < len(batch['rows'])
    f, g = model.left.table.weight, model.right.table.weight
    counts = model.pair_loss.counts
    expected = in_batch_loss(
        f[batch['rows']] @ g[batch['cols']].t(),
        batch['rows'],
        batch['cols'],
        counts.row_counts,
        counts.col_counts,
        mode,
        pointwise=pointwise,
    )
    actual = model(mode='loss', **batch)['loss']
    torch.testing.assert_close(actual, expected)
    for x, y in zip(torch.autograd.grad(actual, [f, g]), torch.autograd.grad(expected, [f, g])):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-7)


def test_sparse_linear_tower_is_a_matrix_product(tmp_path):
    path = tmp_path / 'train.txt'
    path.write_text(XMC)
    dataset = InteractionDataset(path, file_format='xmc')
    tower = MODELS.build(dict(type='mmrank.SparseLinearTower', num_features=6, channels=4))
    batch = dataset.__getitems__([0, 1, 2, 4])
    assert batch['left']['ids'].tolist() == [0, 1, 2]
    dense = torch.tensor([[1.5, 0, 0, 2, 0, 0], [0, 0, 0, 0, 0, -1], [0, 1, 0, 1, 0, 0]])
    torch.testing.assert_close(tower(batch['left']), dense @ tower.linear.weight)
    with pytest.raises(ValueError, match='no features'):
        tower(dict(ids=torch.arange(2)))


def test_right_embeddings_follow_the_weights():
    model = MODELS.build(two_tower(2, 6, channels=1, top_k=2)).eval()
    none = torch.zeros(0, dtype=torch.long)
    batch = dict(left=dict(ids=torch.tensor([0])), num_right=6, seen=dict(rows=none, cols=none))

    def best():
        return model(mode='predict', **batch)[0]['top_k'].tolist()

    with torch.no_grad():
        model.left.table.weight.fill_(1)
        model.right.table.weight[:, 0] = torch.arange(6)
    assert best() == [5, 4]
    with torch.no_grad():
        model.right.table.weight.neg_()
    assert best() == [0, 1]
    # As hooks that swap averaged weights in do before evaluation.
    model.right.table.weight.data.neg_()
    model.eval()
    assert best() == [5, 4]
    batch['seen'] = dict(rows=torch.tensor([0]), cols=torch.tensor([5]))
    assert best() == [4, 3]


def test_calls_that_do_not_fit():
    model = MODELS.build(two_tower(24, 12))
    with pytest.raises(ValueError, match="mode='train'"):
        model(mode='train')
    with pytest.raises(ValueError, match='ids holds'):
        model.left(dict(ids=torch.tensor([24])))
