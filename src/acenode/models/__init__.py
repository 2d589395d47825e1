"""Models, each composed of the library's parts; swapping the ODE is the whole difference between variants."""

from .cru import CRU as CRU
from .encoders import GRUEncoder as GRUEncoder, Joined as Joined
from .filter import Cell as Cell, Filter as Filter
from .first_attention import OwnCorrelation as OwnCorrelation, PairEncoder as PairEncoder
from .grafiti import GraFITi as GraFITi
from .gru_ode_bayes import GRUODEBayes as GRUODEBayes, gru_ode_bayes as gru_ode_bayes
from .image import ImageClassifier as ImageClassifier, Stem as Stem, Verdict as Verdict
from .latent_ode import LatentODE as LatentODE
from .linodenet import LinODENet as LinODENet
from .mtan import MTAN as MTAN
from .neural_flow import NeuralFlow as NeuralFlow
from .ode_rnn import ODERNN as ODERNN
from .ode_rnn_forward import ForwardODERNN as ForwardODERNN
from .poisson import LatentPoisson as LatentPoisson
from .recurrent import (
    GRUD as GRUD,
    TLSTM as TLSTM,
    GRUSimple as GRUSimple,
    RNNDecay as RNNDecay,
    RNNDt as RNNDt,
    RNNImpute as RNNImpute,
)
from .trace import Trace as Trace
from .variational import RNNVAE as RNNVAE, SequentialVAE as SequentialVAE
