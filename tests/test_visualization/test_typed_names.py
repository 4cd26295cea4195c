"""Names of classes and models in figures."""

import warnings

import pytest

from mmrank.visualization.figures import as_typed, fit_text, new_panels, save


@pytest.mark.parametrize('name', ['$5 note$', '$\\5$', 'a_{b}^$', '钳子', '_bg', 'é', '😀'])
def test_a_name_is_drawn_as_it_is(tmp_path, name):
    figure, axes = new_panels(1, 1)
    axes[0, 0].set_title(name)
    assert fit_text(name, 9, 8) == name
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert save(as_typed(figure), tmp_path / 'a.png').stat().st_size
