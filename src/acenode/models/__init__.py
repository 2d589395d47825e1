"""Models, each composed of the library's parts; swapping the ODE is the whole difference between variants."""

from .encoders import GRUEncoder as GRUEncoder
from .first_look import FirstLook as FirstLook
from .latent_ode import LatentODE as LatentODE
from .ode_rnn import ODERNN as ODERNN
from .trace import Trace as Trace
