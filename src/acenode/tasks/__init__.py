"""What is asked of a model: losses and metrics."""

from .ensemble import Ensemble as Ensemble, EnsembleTask as EnsembleTask
from .forecast import Forecast as Forecast
from .heads import (
    GaussianHead as GaussianHead,
    Headed as Headed,
    ResidualDecoder as ResidualDecoder,
    RowHead as RowHead,
)
from .label import LabelHead as LabelHead, Labelled as Labelled, LabelSeries as LabelSeries
from .label_classes import Classified as Classified, LabelClasses as LabelClasses
from .label_images import LabelImages as LabelImages, Pictures as Pictures
from .label_points import LabelPoints as LabelPoints, PointLabels as PointLabels
from .reconstruct import PoissonHead as PoissonHead, Reconstruct as Reconstruct, ValueHead as ValueHead
from .task import Report as Report, Task as Task
