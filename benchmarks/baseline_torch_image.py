"""ACE-ODE-Net's ODE in PyTorch with torchdiffeq, with the weights copied over: one joint training step."""

import numpy as np
import torch
import torchdiffeq

SOLVERS = {"odeint": torchdiffeq.odeint, "odeint_adjoint": torchdiffeq.odeint_adjoint}


class TimeConv(torch.nn.Module):
    def __init__(self, source):
        super().__init__()
        channels = source.weight.shape[0]
        self.conv = torch.nn.Conv2d(channels + 1, channels, 3, padding=1)
        both = np.concatenate([np.asarray(source.clock)[..., None], np.asarray(source.weight)], axis=3)
        with torch.no_grad():
            self.conv.weight.copy_(torch.tensor(both.transpose(0, 3, 1, 2)))
            self.conv.bias.copy_(torch.tensor(np.asarray(source.bias)))

    def forward(self, t, x):
        clock = torch.full_like(x[:, :1], 1.0) * t
        return self.conv(torch.cat([clock, x], dim=1))


def _norm(source) -> torch.nn.GroupNorm:
    return torch.nn.GroupNorm(source.groups, source.affine.shape[1])


class Field(torch.nn.Module):
    """GN, ReLU, Conv, ..., GN: one of f and g."""

    def __init__(self, source):
        super().__init__()
        self.norms = torch.nn.ModuleList(map(_norm, source.norms))
        self.convs = torch.nn.ModuleList(map(TimeConv, source.convs))

    def forward(self, t, x):
        for norm, conv in zip(self.norms, self.convs, strict=False):
            x = conv(t, torch.relu(norm(x)))
        return self.norms[-1](x)


class Coupled(torch.nn.Module):
    """The right-hand side of Equation 3 with Equation 5."""

    def __init__(self, ode):
        super().__init__()
        self.f, self.g = Field(ode.f), Field(ode.g)
        self.evaluations = 0

    def forward(self, t, y):
        self.evaluations += 1
        h, a = y
        attended = h * torch.sigmoid(a)
        return self.f(t, attended), self.g(t, attended)


class Step:
    """One joint training step of the ODE alone; calling it returns the loss when all work is done."""

    def __init__(self, solver: str, ode, h0, tolerance: float, device: str):
        self.odeint, self.tolerance = SOLVERS[solver], tolerance
        self.device = torch.device("cuda" if device == "gpu" else "cpu")
        self.field = Coupled(ode).to(self.device)
        self.h0 = self._copy(h0)
        self.a0 = self._copy(ode.initial(h0))
        self.times = torch.tensor([0.0, 1.0], device=self.device)
        self.evaluations = 0

    def _copy(self, array) -> torch.Tensor:
        return torch.tensor(np.asarray(array).transpose(0, 3, 1, 2).copy(), device=self.device)

    def __call__(self) -> float:
        self.field.zero_grad()
        self.field.evaluations = 0
        tolerance = dict(rtol=self.tolerance, atol=self.tolerance)
        h, _ = self.odeint(self.field, (self.h0, self.a0), self.times, method="dopri5", **tolerance)
        self.evaluations = self.field.evaluations
        value = h[-1].square().mean()
        value.backward()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return value.item()

    def first_gradient(self) -> np.ndarray:
        """Of the weights of f's first convolution, as we store them."""
        grad = self.field.f.convs[0].conv.weight.grad.detach().cpu().numpy()
        return grad[:, 1:].transpose(0, 2, 3, 1)
