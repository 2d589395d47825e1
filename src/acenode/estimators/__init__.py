"""Estimators on data frames, scikit-learn compatible: fit, predict, explain, save and load."""

from sklearn.exceptions import NotFittedError as NotFittedError

from .classifier import Classifier as Classifier
from .forecaster import Forecaster as Forecaster
from .imputer import Imputer as Imputer
from .registry import MODELS as MODELS, Entry as Entry
from .regressor import Regressor as Regressor
from .saved import ModelFolderError as ModelFolderError, load as load
