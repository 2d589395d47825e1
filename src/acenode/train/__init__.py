"""Training: Algorithm 1 over ensembles, with validation, checkpoints and progress."""

from .cache import enable_compilation_cache as enable_compilation_cache
from .checkpoint import CheckpointMismatch as CheckpointMismatch
from .evaluate import evaluate as evaluate, take as take
from .fit import Fit as Fit, Run as Run, device_kind as device_kind, fit as fit
from .groups import (
    fit_reference_statistics as fit_reference_statistics,
    groups as groups,
    hold_attention as hold_attention,
    parameter_count as parameter_count,
)
from .hosts import connect_hosts as connect_hosts
from .progress import (
    Bar as Bar,
    BudgetBar as BudgetBar,
    Lines as Lines,
    Progress as Progress,
    Quiet as Quiet,
    StopTraining as StopTraining,
)
from .recipe import Member as Member, Recipe as Recipe, members as members
from .self_check import WrongProgram as WrongProgram
