"""GRU-ODE-Bayes as an eager PyTorch loop: one Euler step at a time over the union of all times, weights copied over."""

import numpy as np
import torch


def _linear(source) -> torch.nn.Linear:
    layer = torch.nn.Linear(source.weight.shape[1], source.weight.shape[0], bias=source.bias is not None)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(np.asarray(source.weight)))
        if source.bias is not None:
            layer.bias.copy_(torch.tensor(np.asarray(source.bias)))
    return layer


class Bayes(torch.nn.Module):
    """The model's parts, without dropout."""

    def __init__(self, model):
        super().__init__()
        self.start = torch.nn.ModuleList(map(_linear, model.first.layers))
        f = model.ode.f
        self.reset, self.update, self.candidate = map(_linear, (f.reset, f.update, f.candidate))
        self.emit_first, self.emit_last = _linear(model.emission.first), _linear(model.emission.last)
        self.weight = torch.nn.Parameter(torch.tensor(np.asarray(model.jump.weight)))
        self.bias = torch.nn.Parameter(torch.tensor(np.asarray(model.jump.bias)))
        source = model.jump.cell
        self.cell = torch.nn.GRUCell(source.weight_ih.shape[1], source.weight_hh.shape[1])
        size = source.weight_hh.shape[1]
        with torch.no_grad():
            self.cell.weight_ih.copy_(torch.tensor(np.asarray(source.weight_ih)))
            self.cell.weight_hh.copy_(torch.tensor(np.asarray(source.weight_hh)))
            self.cell.bias_ih.copy_(torch.tensor(np.asarray(source.bias)))
            self.cell.bias_hh.zero_()
            self.cell.bias_hh[2 * size :] = torch.tensor(np.asarray(source.bias_n))

    def first(self, batch: int):
        h = torch.tanh(self.start[1](torch.relu(self.start[0](torch.zeros(1)))))
        return h.expand(batch, -1)

    def slope(self, h):
        r, z = torch.sigmoid(self.reset(h)), torch.sigmoid(self.update(h))
        return (1 - z) * (torch.tanh(self.candidate(r * h)) - h)

    def emit(self, h):
        return self.emit_last(torch.relu(self.emit_first(h))).chunk(2, dim=1)

    def jump(self, h, x, seen):
        mean, log_variance = self.emit(h)
        error = (x - mean) * torch.exp(-0.5 * log_variance)
        says = torch.stack([x, mean, log_variance, error], dim=-1)
        prepared = torch.relu(torch.einsum("bvk,vkp->bvp", says, self.weight) + self.bias) * seen[..., None]
        return self.cell(prepared.flatten(1), h), 0.5 * (error**2 + log_variance) * seen


class Step:
    """A training step over the rows of a batch of series; calling it returns the loss when all work is done."""

    def __init__(self, model, series, step: float):
        self.model, self.step = Bayes(model), step
        observed = np.asarray(series.observed)
        who, row = np.nonzero(observed.any(axis=2))
        times = np.asarray(series.times)[who, row]
        self.moments = []
        for moment in np.unique(times):
            at = times == moment
            x, o = np.asarray(series.values)[who[at], row[at]], observed[who[at], row[at]]
            parts = (torch.tensor(who[at]), torch.tensor(x), torch.tensor(o, dtype=torch.float32))
            self.moments.append((float(moment), *parts))
        self.batch, self.values = len(times), float(observed.sum())
        self.series = len(observed)

    def __call__(self) -> float:
        self.model.zero_grad()
        h, now, loss = self.model.first(self.series), 0.0, torch.zeros(())
        for moment, who, x, seen in self.moments:
            while now < moment - 1e-3 * self.step:
                h = h + self.step * self.model.slope(h)
                now += self.step
            after, each = self.model.jump(h[who], x, seen)
            loss = loss + each.sum()
            h = h.clone()
            h[who] = after
        loss = loss / self.values
        loss.backward()
        return loss.item()
