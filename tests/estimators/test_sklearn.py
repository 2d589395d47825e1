"""The checks of scikit-learn that apply to estimators of data frames."""

import pytest
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils import estimator_checks, get_tags
from sklearn.utils.validation import check_is_fitted

from acenode.estimators import Classifier, Forecaster, Imputer

ESTIMATORS = (Forecaster, Classifier, Imputer)


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_parameters_default_constructible,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_set_params,
        estimator_checks.check_mixin_order,
        estimator_checks.check_valid_tag_types,
        estimator_checks.check_estimator_cloneable,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_estimators_unfitted,
    ],
    ids=lambda check: check.__name__,
)
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_scikit_learn_checks(kind, check):
    check(kind.__name__, kind())


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_parameters_are_stored_as_given_and_cloned(kind):
    values = ["heat", "flow"]
    given = kind(id="machine", values=values, hidden=4)
    assert isinstance(given, BaseEstimator) and given.values is values
    copy = clone(given)
    assert copy.get_params() == given.get_params() and copy is not given
    with pytest.raises(NotFittedError):
        check_is_fitted(copy)


def test_only_the_classifier_is_one_and_none_needs_a_target():
    assert [is_classifier(kind()) for kind in ESTIMATORS] == [False, True, False]
    assert not any(get_tags(kind()).target_tags.required for kind in ESTIMATORS)
    assert all(get_tags(kind()).input_tags.allow_nan for kind in ESTIMATORS)


def test_a_fitted_estimator_is_fitted(forecaster):
    check_is_fitted(forecaster)
