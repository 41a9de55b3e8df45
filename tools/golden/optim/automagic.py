"""Automagic's three forms, from their published description (ai-toolkit), one parameter at a time in plain tensor operations.

Parameters are matrices of their first axis by all others, or vectors, as for Adafactor.
"""

import math

import torch


class Form(torch.optim.Optimizer):
    def __init__(self, params, lr, weight_decay=0.0, beta2=0.999, eps=1e-30, clip_threshold=1.0, lr_bump=1e-6, min_lr=1e-7, max_lr=1e-3):
        super().__init__(params, {})
        self.start, self.decay, self.beta2, self.eps, self.clip = lr, weight_decay, beta2, eps, clip_threshold
        self.bump, self.limits, self.count = lr_bump, (min_lr, max_lr), 0

    def direction(self, p):
        """g/√v with v as rows and columns, its root mean square at most the threshold."""
        state, square = self.state[p], p.grad ** 2 + self.eps
        means = [square.mean(dim=1), square.mean(dim=0)] if p.ndim == 2 else [square]
        old = state.get("means", [torch.zeros_like(mean) for mean in means])
        state["means"] = means = [self.beta2 * a + (1 - self.beta2) * b for a, b in zip(old, means)]
        v = means[0][:, None] * means[1][None] / means[0].mean() if p.ndim == 2 else means[0]
        update = p.grad / v.sqrt()
        return update / max(1.0, float((update ** 2).mean().sqrt()) / self.clip)

    @torch.no_grad()
    def step(self):
        self.count += 1
        for p in self.param_groups[0]["params"]:
            update = self.direction(p)
            rate = self.rate(p, update)
            p.sub_(rate * (self.decay * p + self.bounded(update)))
        self.end()

    def bounded(self, update):
        return update

    def end(self):
        pass


class Automagic(Form):
    def rate(self, p, update):
        state, positive = self.state[p], update > 0
        if self.count == 1:
            state["rate"] = torch.full_like(p, self.start)
        else:
            agrees = positive == state["positive"]
            state["rate"] = torch.where(agrees, state["rate"] + self.bump, state["rate"] - self.bump)
        state["rate"] = state["rate"].clamp(*self.limits)
        state["positive"] = positive
        return state["rate"]


class Automagic2(Form):
    def rate(self, p, update):
        state, positive = self.state[p], update > 0
        if self.count == 1:
            state["rate"] = self.start
        else:
            up = (positive == state["positive"]).float().mean() >= 0.5
            state["rate"] = min(max(state["rate"] + (self.bump if up else -self.bump), self.limits[0]), self.limits[1])
        state["positive"] = positive
        return state["rate"]


class Automagic3(Form):
    HISTORY = 8

    def rate(self, p, update):
        if self.count == 1:
            self.common, self.votes, self.weight = self.start, 0.0, 0.0
        signs = self.state[p].setdefault("signs", [])
        signs.append(update > 0)
        del signs[: -self.HISTORY]
        if len(signs) == self.HISTORY:
            weight, window = self.bounded(update).abs().double(), torch.stack(signs)
            flips = (window[1:] ^ window[:-1]).sum(dim=0)
            self.votes += float((weight * (flips == 0)).sum() - (weight * (flips == self.HISTORY - 1)).sum())
            self.weight += float(weight.sum())
        return self.common

    def bounded(self, update):
        return update.clamp(-self.clip, self.clip)

    def end(self):
        if self.weight:
            self.common *= math.exp(self.votes / self.weight)
        self.votes = self.weight = 0.0


RULES = {"automagic": Automagic, "automagic2": Automagic2, "automagic3": Automagic3}
