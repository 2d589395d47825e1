"""The attention over images: one scale, in its place over the image, and without images too."""

import matplotlib
import numpy as np
import pytest

from acenode.paper.images import Drawn
from acenode.report.image_plots import attention_maps

matplotlib.use("Agg")
MAPS = {"times": [0.0, 0.5, 1.0], "maps": np.linspace(0.2, 0.7, 2 * 3 * 4).reshape(2, 3, 2, 2).tolist()}


@pytest.mark.parametrize("colours", [1, 3])
def test_maps_lie_over_their_images(colours):
    figure = attention_maps(MAPS, Drawn(np.zeros((2, 8, 8, colours)), np.array([1.0, 4.0, 7.0])))
    panels = [axis for axis in figure.axes if axis.images]
    alone, over = panels[::4], [axis for k, axis in enumerate(panels) if k % 4]
    assert len(alone) == 2 and len(over) == 6
    assert all(len(axis.images) == 1 for axis in alone)
    assert {axis.images[1].get_clim() for axis in over} == {(0.2, 0.7)}
    assert all(list(axis.images[1].get_extent()) == [1, 7, 7, 1] for axis in over)
    assert all((axis.get_xlim(), axis.get_ylim()) == ((0, 8), (8, 0)) for axis in over)
    np.testing.assert_array_equal(over[-1].images[1].get_array(), MAPS["maps"][1][2])


def test_without_images_the_maps_stand_alone():
    figure = attention_maps(MAPS)
    panels = [axis for axis in figure.axes if axis.images]
    assert [len(axis.images) for axis in panels] == [1] * 6
    assert [axis.get_title() for axis in panels[:3]] == ["t = 0", "t = 0.5", "t = 1"]
    assert figure.axes[-1].get_ylabel() == "attention, mean over channels"
