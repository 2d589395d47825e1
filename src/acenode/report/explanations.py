"""What may explain that our numbers are not the paper's, table by table.

Facts from reading the paper beside the code its authors released: where the two differ, the published number may come
from either. Ours follow the paper's text, and are chosen on validation data.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ..paper import activity, climate, double_ou, latent, physionet, settings
from ..paper.bayes import TEMPERATURE
from ..paper.history_features import BINS
from ..paper.images import AS_MANY, CROP, SETTINGS, TOLERANCE, WIDTH
from ..paper.physionet import ENSEMBLE_SIZE, STRONG
from .compared import Compared

RELEASED = "https://github.com/sheoyon-jhin/ACE-NODE"  # the authors' code and the seeds they list beside it


class About(NamedTuple):
    """An explanation of some rows only, by a part of their name."""

    part: str
    text: str


_TEST_CHOSEN = (
    "The released code keeps the best test accuracy over all epochs. Ours chooses the epoch on 5,000 training images "
    "set aside for it; the test images choose nothing."
)
_JOINT = (
    "The released code trains everything with one optimiser on one loss, and its penalty is not on the weights of g. "
    "Ours alternates as the paper's Algorithm 1 says, with the penalty on the weights of g."
)
_BUDGET = (
    f"All image rows are solved to {TOLERANCE:g}, where the paper has 1e-4 and 1e-5; in fewer than 160 epochs the "
    "learning rate falls as half a cosine, not in the published steps."
)
_UNEQUAL = (
    "In the released scripts the attentive model and its baselines differ in more than the attention: padding of the "
    "first convolution, epochs, learning rate, tolerance of the solver. Ours have all of these the same."
)
_SMALLER_F = (
    "By the published weight counts f of ACE-ODE-Net has one convolution on {} and that of ODE-Net has two, so the "
    "rows differ in more than the attention."
)
_RANDOM = (
    "In the released attentive model the softmax is computed and not used, g is the same network as f, and its last "
    "layer is drawn at random anew for every call. Ours is the paper's: softmax, and a g of its own that is trained."
)

_FED = About(
    "fed",
    "In the row called fed, f moves h itself and the attended state is its input, as an observation would be; the "
    "paper's f' sees nothing but the attended state.",
)
_BY_ROWS = About(
    "channel-independent",
    "In the row called between variables h has a row for each variable, moved by networks that all rows share, and "
    "only the attention lets a variable know of another; in the row called channel-independent nothing does.",
)
_MIXED = About(
    "mixed evenly",
    "In the row called uniform attention each variable sees the mean of all, which is an attention that does not "
    "choose: compared with it, the attention between variables shows what choosing adds.",
)
_SHARP = About("sharp", f"In the row called sharp the logits are multiplied by {TEMPERATURE:g}.")
_CLEANED = (
    "The released code keeps the -1 that stands for nothing and values that cannot be, such as a pH of 735; ours "
    "leaves them out and counts them. Solvers have its tolerances (1e-3 and 1e-4), the paper says 1e-4 and 1e-5."
)

_STEADY = About(
    "Fixed",
    f"The rows called Fixed compute the attention anew from the whole batch, so all of it steps together: with "
    f"{latent.STEADY.method} in steps of {latent.STEADY.step:g}, where the others have an adaptive solver.",
)

EXPLANATIONS: dict[str, tuple[str | About, ...]] = {
    "mnist": (
        _TEST_CHOSEN,
        _JOINT,
        _BUDGET,
        "The published weight count of ACE-ODE-Net fits a smaller f and one convolution in q, which is our row; the "
        "released script builds a larger model.",
        _SMALLER_F.format("MNIST"),
        "RKNet takes a single Runge-Kutta step over the whole interval in the released code, and in ours.",
    ),
    "svhn": (
        _TEST_CHOSEN,
        _JOINT,
        _BUDGET,
        _UNEQUAL + " On SVHN the attentive script also doubles its learning rate.",
        "The seeds that the authors list beside their code average 0.9581 ± 0.0024 for ACE-ODE-Net, level with "
        "Augmented-ODE-Net and ResNet; the paper prints 0.9601 ± 0.0010.",
        "The released test loader leaves out the last incomplete batch but divides by all images.",
        _SMALLER_F.format("SVHN"),
    ),
    "cifar10": (
        _TEST_CHOSEN,
        _JOINT,
        _BUDGET,
        _UNEQUAL + " On CIFAR10 only the attentive model has weight decay.",
        f"The released code trains on crops of {CROP} pixels and tests on whole images of 32; ours train and test on "
        "32.",
        "f of ACE-ODE-Net is that of ODE-Net on CIFAR10; g and q come on top of it, so the attentive row has more "
        "weights.",
        About(
            AS_MANY,
            f"{AS_MANY} has {SETTINGS['cifar10'].as_many} channels in place of {WIDTH} throughout, and so as many "
            "weights as ACE-ODE-Net; most of those added are in the first layers, not in f.",
        ),
        About(f"crops of {CROP}", f"The rows called crops of {CROP} are trained and tested as the released code does."),
        "The seeds that the authors list beside their code average 0.8582 ± 0.0031 for ACE-ODE-Net; the paper prints "
        "0.8599 ± 0.0012. By the paper's own table ResNet is better than ACE-ODE-Net here.",
    ),
    "silhouette": (
        "Neither the paper nor the released code says which features are clustered, on which images, nor into how many "
        "clusters. Ours are the pooled features that the classifier reads, of the first 5,000 test images, in ten "
        "clusters.",
    ),
    "ushcn": (
        "Runs called USHCN Maine are on one state's stations over more than a century, not on the national set of four "
        "years: their errors are not comparable with the published ones, only with each other.",
        "The published data are scaled with statistics of all stations, those of the test set and of the forecast "
        "window among them; ours with training stations only.",
        "In the released attentive model the attention does not evolve: it is computed anew from the correlation over "
        "the batch, test stations included, and g gets no gradient. That is the paper's own ablation called fixed.",
        "In the released base model the state does not move between observations, which may have touched its published "
        "number. The results listed beside the released code are others than the paper's for both models.",
        "The published weight decay of GRU-ODE-Bayes, 1e-4, goes with a loss summed over the values of a series; with "
        f"ours, their mean, that is {climate.WEIGHT_DECAY / climate.VALUES_A_SERIES:.0e}.",
        "A seed stands for a fold: seed k is tested on the stations of fold k, so the spread over seeds holds that "
        "between stations.",
        "Six of the baselines are quoted from the literature; the paper gives no architecture for them. Ours are our own "
        "definitions.",
        "The paper gives f' the attended state in every place, the leak of the GRU included. Then nothing bounds h, "
        "and runs of ACE-GRU-ODE-Bayes may diverge.",
        About("self-decay", "In the rows called self-decay, h itself is in the leak of the GRU."),
        f"Correlations lie between -1 and 1, so the first attention over {climate.SIZE} dimensions is nearly flat, and "
        "f' sees little but the mean of h.",
        _SHARP,
        _FED,
        _BY_ROWS,
        _MIXED,
    ),
    "physionet-classification": (
        "The released code has no validation set and prints the test score of every epoch. Ours chooses the epoch on a "
        "tenth of the training records; the test records choose nothing.",
        _RANDOM,
        "The label is read from the first latent state, before the ODE is solved: the attention can act on it only "
        "through the encoder that both losses share.",
        About("final-state readout", "The rows called final-state readout read it after the solve."),
        "The results listed beside the released code give ACE-Latent-ODE an AUC of 0.8464 ± 0.0024; the paper prints "
        "0.853 ± 0.003.",
        "The published scaling uses the test records too, and the published AUC counts each record once for every "
        "latent sample; ours averages the samples first.",
        "The released RNN-VAE reverses the order of the records where it should reverse time, which may be why its "
        "published number is near chance.",
        _CLEANED,
        "Our rows of 15 epochs were tested on a GPU before its compiler was found to make a wrong program of batches "
        "of that size for another table, and have not been tested again.",
        f"Unlike the paper, ours scales values to standard deviations and ends them at {physionet.FARTHEST:g}, adds "
        f"noise to them in training ({physionet.NOISE:g}) and has some weight decay "
        f"({physionet.MILD.weight_decay:g}), in all rows alike.",
        _STEADY,
        "The released RNN-Decay forgets all of its state at one rate; ours has a rate for each unit.",
        About(
            "with statistics",
            "The rows with statistics are not the paper's models: their encoder is also told seven statistics of every "
            f"variable (last value, mean, standard deviation, trend, extremes, number of values), each in {BINS} bins "
            "of equally many training records, and sees the last value of a variable where it has none. A part of "
            f"{STRONG.hide:.0%} of the variables is hidden from it in training, and parameters are averaged.",
        ),
        About("ensemble", f"In a ensemble {ENSEMBLE_SIZE} models answer with their mean probability."),
    ),
    "physionet-regression": (
        "What the tables call interpolation is the reconstruction of values that the model was shown.",
        "The published error (MSE) counts a variable that was never measured in a record as predicted without error. "
        "Beside it stands the error per value, which counts what was measured.",
        "The released code has no validation set, and its scaling uses the test records too.",
        _CLEANED,
        _RANDOM,
        f"Unlike the paper, ours validates and tests a moving average of the weights ({physionet.AVERAGE:g}), in all "
        "rows alike.",
        _STEADY,
        "By the paper's own table Latent-ODE is better than ACE-Latent-ODE at interpolation.",
        About(
            "leaning",
            "The rows residual to last value are not the paper's models: those read 41 variables from 20 numbers by "
            "one linear layer, while these start from the last known value of each and trust it less the older it is.",
        ),
    ),
    "activity": (
        "The data called Activity (0.1 m) are a copy whose coordinates are cut to 0.1 m, with times rebuilt from the "
        "order of the rows.",
        "The published column is called AUC; what the released code computes is the accuracy over time points.",
        "The published windows overlap by half and are split at random, so that training and test share time points, "
        "and both are then drawn again with replacement. A split by recording keeps them apart.",
        About(
            "split by window",
            "The rows called split by window have the published split, without the second drawing, and a tenth of "
            "training to validate.",
        ),
        "The released code has no validation set and prints the test score of every epoch.",
        _STEADY,
        "Networks 500 wide with the released code's first weights learn nothing but the commonest class for epochs; "
        "in ours the vector fields start with smaller ones.",
        f"Rows with an ODE learn at a rate of {activity.ODE_LEARNING_RATE:g}, the others at {activity.LEARNING_RATE:g}: by validation, with "
        "the higher one the ODEs grow stiff and stay at the commonest class.",
    ),
    "double-ou": (
        About(
            "self-decay",
            "In the rows called self-decay, h itself is in the leak of the GRU, where the paper has the attended h'.",
        ),
        f"Correlations lie between -1 and 1, so the first attention over {double_ou.SIZE} dimensions is nearly flat.",
        _SHARP,
        _FED,
        _BY_ROWS,
        _MIXED,
    ),
    settings.TABLE: (
        f"{settings.USUAL} is ACE-Latent-ODE of PhysioNet values; every other row has one thing otherwise. Learning "
        "rate and lambda are the same for all, not chosen for each.",
        "What the paper leaves open, the form of g': a continuous GRU and a linear map (GRU as g), a GRU for each row "
        "of the attention, a product of queries and keys.",
        "What the paper says and ours does not do: its gradient holds the attention constant for f.",
        "What the paper has as an ablation: a first attention from a linear layer, which it calls FC.",
        f"What goes beyond the paper: leaky, old attention fades; sharp, the logits are multiplied by {TEMPERATURE:g}; fed, "
        "f sees h beside the attended state; one step for all, no alternation.",
    ),
    "attention-size": (
        "By its weight count the published Large model is twice as wide throughout, not deeper in g as the text says. "
        "So its gain may be that of the width: the rows ODE-Net (width 128) and ACE-ODE-Net (deep g) would tell these "
        "apart.",
        "The published CIFAR10 number of the Large model is that of its best seed; the seeds listed beside the "
        "released code average 0.8772.",
    ),
    "attention-type": (
        "The released USHCN model is itself what the paper calls fixed attention. For that the paper has no number on "
        "USHCN: it says that the values were nonsensical.",
        _STEADY,
        "There is no released code for the attention from fully connected layers; ours is one linear layer from the "
        "state.",
    ),
}


def explained(table: str, lines: Sequence[Compared]) -> list[str]:
    """What there is to say of a table, and of those of its rows that have runs."""
    run = [line.row for line in lines if line.runs]
    every = EXPLANATIONS.get(table, ())
    told = [each for each in every if isinstance(each, str) or any(each.part in row for row in run)]
    return [each if isinstance(each, str) else each.text for each in told]
