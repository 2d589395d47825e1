"""What a model is trained for: losses and metrics."""

from .classification import (
    BinaryClassification as BinaryClassification,
    ClassificationHead as ClassificationHead,
    ImageClassification as ImageClassification,
    LabelledImages as LabelledImages,
    LabelledPoints as LabelledPoints,
    LabelledQuery as LabelledQuery,
    LabelledSeries as LabelledSeries,
    PointClassification as PointClassification,
    SeriesClassification as SeriesClassification,
)
from .ensemble import Ensemble as Ensemble, EnsembleTask as EnsembleTask
from .forecast import Forecast as Forecast
from .heads import GaussianHead as GaussianHead, Headed as Headed, RowHead as RowHead
from .metrics import edge_auc as edge_auc, influence_correlation as influence_correlation
from .reconstruction import PoissonHead as PoissonHead, Reconstruction as Reconstruction, ValueHead as ValueHead
from .regression import Regression as Regression, SeriesTarget as SeriesTarget
from .task import Report as Report, Task as Task
