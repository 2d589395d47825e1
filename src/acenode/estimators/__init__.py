"""Estimators on data frames: fit, predict, explain, save and load."""

from .base import NotFittedError as NotFittedError
from .classifier import Classifier as Classifier
from .forecaster import Forecaster as Forecaster
from .imputer import Imputer as Imputer
from .registry import MODELS as MODELS
from .saved import ModelFolderError as ModelFolderError, load as load
