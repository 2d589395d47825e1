"""Convolutions on small feature maps: the layers, the fields made of them, and what is quick for a whole batch.

`layers` and `fields` are for one sample. For a batch `batch` has steps and gradients (`steps`), by large products on a
CPU (`products`) or by kernels on a GPU (`kernels`, `gradient`, and what both are made of: `block`).
"""

from .fields import ConvField as ConvField, ResidualBlock as ResidualBlock
from .layers import Conv as Conv, GroupNorm as GroupNorm
