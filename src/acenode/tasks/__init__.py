"""What is asked of a model: losses and metrics."""

from .forecast import Forecast as Forecast
from .heads import GaussianHead as GaussianHead, Headed as Headed, RowHead as RowHead
from .label import LabelHead as LabelHead, Labelled as Labelled, LabelSeries as LabelSeries
from .label_images import LabelImages as LabelImages, Pictures as Pictures
from .task import Report as Report, Task as Task
