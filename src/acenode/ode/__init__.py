"""The method: neural ODEs, and the attention that evolves beside them."""

from .attention import (
    Attention as Attention,
    Elementwise as Elementwise,
    Pairwise as Pairwise,
    Residual as Residual,
)
from .coevolve import CoEvolvingODE as CoEvolvingODE
from .constant import Constant as Constant
from .conv import Conv as Conv, ConvField as ConvField, GroupNorm as GroupNorm, ResidualBlock as ResidualBlock
from .covariance import (
    Covariance as Covariance,
    KalmanUpdate as KalmanUpdate,
    TangentField as TangentField,
    covariance_attention as covariance_attention,
)
from .evolve import AugmentedODE as AugmentedODE, NeuralODE as NeuralODE, ResidualStack as ResidualStack
from .fast_weights import (
    DeltaRule as DeltaRule,
    DeltaRuleUpdate as DeltaRuleUpdate,
    FastWeights as FastWeights,
)
from .fields import (
    ConditionedGRUField as ConditionedGRUField,
    ConditionedMLPField as ConditionedMLPField,
    GRUField as GRUField,
    MLPField as MLPField,
    RowField as RowField,
    VectorField as VectorField,
)
from .initial import (
    ConvInitial as ConvInitial,
    Correlation as Correlation,
    Dense as Dense,
    Identity as Identity,
    Learned as Learned,
    Zeros as Zeros,
    correlation as correlation,
)
from .least_squares import (
    LeastSquares as LeastSquares,
    LeastSquaresField as LeastSquaresField,
    LeastSquaresInitial as LeastSquaresInitial,
    LeastSquaresUpdate as LeastSquaresUpdate,
)
from .pairwise_fields import (
    GRULinear as GRULinear,
    GRURows as GRURows,
    QueryKey as QueryKey,
    SelfDecay as SelfDecay,
    pairwise_field as pairwise_field,
)
from .path import Path as Path
from .signed import MessageField as MessageField, Signed as Signed
from .solver import BatchCoupled as BatchCoupled, Solver as Solver, Stats as Stats, Status as Status
from .updates import (
    Assimilation as Assimilation,
    AttentionUpdate as AttentionUpdate,
    Correction as Correction,
    MessageDeltaRule as MessageDeltaRule,
    PairUpdate as PairUpdate,
)
