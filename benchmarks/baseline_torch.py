"""The same training step in PyTorch with torchdiffeq, with the weights copied over."""

from collections.abc import Callable

import numpy as np
import torch
import torchdiffeq
from system import ATOL, RTOL, Problem, layers

from acenode.ode import correlation

SOLVERS = {"odeint": torchdiffeq.odeint, "odeint_adjoint": torchdiffeq.odeint_adjoint}


def missing_device(device: str) -> str | None:
    """Why torch cannot run there, in a sentence; `None` if it can."""
    if device == "gpu" and not torch.cuda.is_available():
        return "torch sees no CUDA device"
    return None


class Field(torch.nn.Module):
    """The right-hand side for a whole batch."""

    def __init__(self, linears: list):
        super().__init__()
        half = len(linears) // 2
        self.f, self.g = _mlp(linears[:half]), _mlp(linears[half:])
        self.evaluations = 0

    def forward(self, t, y):
        self.evaluations += 1
        h, a = y
        attended = torch.einsum("bij,bj->bi", torch.softmax(a, -1), h)
        return self.f(attended), self.g(attended).reshape(a.shape)


def _mlp(linears: list) -> torch.nn.Sequential:
    parts = []
    for source in linears:
        linear = torch.nn.Linear(source.in_features, source.out_features)
        with torch.no_grad():
            linear.weight.copy_(torch.tensor(np.asarray(source.weight)))
            linear.bias.copy_(torch.tensor(np.asarray(source.bias)))
        parts += [linear, torch.nn.Tanh()]
    return torch.nn.Sequential(*parts[:-1])


class Step:
    """One training step; calling it returns the loss when all work is done."""

    def __init__(self, solver: str, given: Problem, device: str):
        self.odeint: Callable = SOLVERS[solver]
        self.device = torch.device("cuda" if device == "gpu" else "cpu")
        self.field = Field(layers(given.ode)).to(self.device)
        self.h0 = self._copy(given.h0)
        self.a0 = self._copy(correlation(given.h0)).expand(len(self.h0), -1, -1)
        self.times = self._copy(given.times)
        self.evaluations = 0  # of the forward pass

    def _copy(self, array) -> torch.Tensor:
        return torch.tensor(np.asarray(array), device=self.device)

    def __call__(self) -> float:
        self.field.zero_grad()
        self.field.evaluations = 0
        h, _ = self.odeint(self.field, (self.h0, self.a0), self.times, rtol=RTOL, atol=ATOL, method="dopri5")
        self.evaluations = self.field.evaluations
        value = h.square().mean()
        value.backward()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return value.item()

    def gradients(self) -> list[np.ndarray]:
        """Of every layer's weight and bias, first those of f', then those of g'."""
        return [p.grad.detach().cpu().numpy() for net in (self.field.f, self.field.g) for p in net.parameters()]
