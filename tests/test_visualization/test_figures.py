"""Texts of figures: shortened, broken and placed."""

import warnings

import pytest

from mmrank.visualization.figures import (
    _text_width,
    fit_text,
    fit_two_lines,
    new_panels,
    save,
    shorten,
)


def test_names_are_shortened_in_the_middle():
    assert shorten('retinanet', 9) == 'retinanet'
    one, other = (shorten(f'retinanet_r50_fpn_{i}', 9) for i in (1, 2))
    assert one == 'reti…pn_1'
    assert len(one) == len(other) == 9
    assert one != other
    assert shorten('abcd', 3) == 'a…d'


@pytest.mark.parametrize('text', ['W' * 30, 'i' * 30, 'WWWW ' * 9, 'owl', ''])
@pytest.mark.parametrize('weight', ['normal', 'bold'])
def test_text_fits(text, weight):
    line = fit_text(text, 1.0, 8, weight)
    lines = fit_two_lines(text, 1.0, 8)
    assert len(lines) == (2 if text.count(' ') else 1)
    assert _text_width(line, 8, weight) <= 1.0
    assert all(_text_width(shown, 8, 'normal') <= 1.0 for shown in lines)
    if text == 'owl':
        assert (line, lines) == ('owl', ['owl'])
    if len(text) == 30:
        # As much as there is room for: one more would be too wide.
        longer = shorten(text, len(line) + 1)
        assert _text_width(longer, 8, weight) > 1.0 or line == text


@pytest.mark.parametrize('name', ['$5 note$', '$\\5$', 'a_{b}^$', '钳子', '_bg', 'é', '😀'])
def test_a_name_is_drawn_as_it_is(tmp_path, name):
    figure, axes = new_panels(1, 1)
    axes[0, 0].set(title=name, xscale='log')
    axes[0, 0].plot([1, 1000], [0, 1])
    assert fit_text(name, 9, 8) == name
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert save(figure, tmp_path / 'a.png').stat().st_size
    ticks = [x for x in axes[0, 0].get_xticklabels() if x.get_text().startswith('$')]
    assert ticks
    assert all(x.get_parse_math() for x in ticks)
