"""Optimizers with 8-bit states, from bitsandbytes' code book and quantiser (on the CPU), written out step by step.

bitsandbytes' own optimizers need a GPU; their state is what `quantize_blockwise` makes of it. The one rule that velatura adds is
here too: a second moment that is not 0 takes the smallest code at least.
"""

import torch
from bitsandbytes.functional import create_dynamic_map

BLOCK = 256
SIGNED, UNSIGNED = create_dynamic_map(signed=True), create_dynamic_map(signed=False)


class Coded:
    """A tensor in blocks of 8 bits."""

    def __init__(self, like, book):
        self.shape, self.book, self.blocks = like.shape, book, None

    def read(self):
        if self.blocks is None:
            return torch.zeros(self.shape)
        return torch.cat([self.book[codes] * scale for codes, scale in self.blocks]).reshape(self.shape)

    def write(self, values):
        self.blocks = [self.encode(block) for block in values.flatten().split(BLOCK)]

    def encode(self, block):
        scale = block.abs().max()
        if scale == 0:
            return torch.full(block.shape, int((self.book == 0).nonzero()[0])), scale
        codes = ((block / scale)[:, None].double() - self.book[None].double()).abs().argmin(dim=1)
        if self.book is UNSIGNED:
            codes = codes.maximum((block > 0).long())
        return codes, scale


class Adam8bit(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, eps, weight_decay, decoupled):
        super().__init__(params, dict(lr=lr))
        self.betas, self.eps, self.weight_decay, self.decoupled, self.count = betas, eps, weight_decay, decoupled, 0

    @torch.no_grad()
    def step(self):
        self.count += 1
        (beta1, beta2), group = self.betas, self.param_groups[0]
        for p in group["params"]:
            state = self.state[p]
            if not state:
                state["m"], state["v"] = Coded(p, SIGNED), Coded(p, UNSIGNED)
            grad = p.grad
            if self.decoupled:
                p.mul_(1 - group["lr"] * self.weight_decay)
            else:
                grad = grad + self.weight_decay * p
            m = state["m"].read().lerp_(grad, 1 - beta1)
            v = state["v"].read().mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
            denominator = (v.sqrt() / (1 - beta2 ** self.count) ** 0.5).add_(self.eps)
            p.addcdiv_(m, denominator, value=-group["lr"] / (1 - beta1 ** self.count))
            state["m"].write(m)
            state["v"].write(v)


class Lion8bit(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, dict(lr=lr))
        self.betas, self.weight_decay = betas, weight_decay

    @torch.no_grad()
    def step(self):
        (beta1, beta2), group = self.betas, self.param_groups[0]
        for p in group["params"]:
            state = self.state[p]
            if not state:
                state["m"] = Coded(p, SIGNED)
            m = state["m"].read()
            p.mul_(1 - group["lr"] * self.weight_decay)
            p.add_((m * beta1 + p.grad * (1 - beta1)).sign(), alpha=-group["lr"])
            state["m"].write(m.mul_(beta2).add_(p.grad, alpha=1 - beta2))


class Prodigy8bit(torch.optim.Optimizer):
    """Prodigy with its default settings, every element looked at. The step uses the moments as they are stored."""

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-8, d0=1e-6):
        super().__init__(params, dict(lr=lr))
        self.betas, self.eps, self.d0, self.d, self.d_max, self.numerator = betas, eps, d0, d0, d0, 0.0

    @torch.no_grad()
    def step(self):
        (beta1, beta2), d, group = self.betas, self.d, self.param_groups[0]
        beta3, rate, norm = beta2 ** 0.5, d * group["lr"], 0.0
        self.numerator *= beta3
        for p in group["params"]:
            state = self.state[p]
            if not state:
                state.update(m=Coded(p, SIGNED), v=Coded(p, UNSIGNED), s=torch.zeros_like(p), p0=p.clone())
            self.numerator += d / self.d0 * rate * float((p.grad.double() * (state["p0"] - p).double()).sum())
            state["m"].write(state["m"].read() * beta1 + p.grad * (d * (1 - beta1)))
            state["v"].write(state["v"].read() * beta2 + p.grad ** 2 * (d * d * (1 - beta2)))
            state["s"].mul_(beta3).add_(p.grad, alpha=d / self.d0 * rate)
            norm += float(state["s"].double().abs().sum())
        estimate = self.numerator / norm
        if d == self.d0:
            d = max(d, estimate)
        self.d_max = max(self.d_max, estimate)
        self.d = self.d_max
        for p in group["params"]:
            p.addcdiv_(self.state[p]["m"].read(), self.state[p]["v"].read().sqrt() + self.d * self.eps, value=-rate)
