"""50 steps of every optimizer of velatura by the packages that users know, on fixed gradients.

Writes crates/optim/tests/optimizers.json: shapes of the parameters, their start values, one list of gradients per step, the
schedule's share of each step, and for each case the parameters after steps 1, 10 and 50. All numbers are f32, written so that
they read back exactly.

`bound` is the largest relative difference that the case allows: 1e-5. Where the step size is fed back from differences of nearly
equal numbers (Prodigy, D-Adaptation), f32 itself costs more than that: there it is the distance of the reference from its own run
in f64, if that is larger.
"""

import json
import math
import pathlib

import automagic
import bits
import came_pytorch
import dadaptation
import lion_pytorch
import numpy
import prodigyopt
import schedulefree
import torch
import transformers

SEED = 20
STEPS = 50
SHAPES = [[4, 6], [7, 3], [5]]
TARGET = pathlib.Path(__file__).parents[3] / "crates/optim/tests/optimizers.json"
F32 = 1e-5
FED_BACK = "fed back"


def problem():
    """Start, gradients and shares. The gradients have a mean and noise, and are of very different sizes; one is always zero."""
    generator = torch.Generator().manual_seed(SEED)
    size = sum(math.prod(shape) for shape in SHAPES)
    start = torch.randn(size, generator=generator) * 0.3
    sizes = 10.0 ** (3 * torch.rand(size, generator=generator) - 3)
    sizes[-2] = 0.0
    noise = torch.randn(STEPS, size, generator=generator)
    mean = torch.randn(size, generator=generator)
    return start, (noise + mean) * sizes, [0.5 * (1 + math.cos(math.pi * step / STEPS)) for step in range(STEPS)]


def split(flat):
    sizes = [math.prod(shape) for shape in SHAPES]
    return [part.reshape(shape).clone() for part, shape in zip(flat.split(sizes), SHAPES)]


def distance(ours, theirs, start):
    """The largest difference of an element, relative to its value or to how far it has moved, whichever is more."""
    return float(((ours - theirs).abs() / theirs.abs().maximum((theirs - start).abs()).clamp(min=1e-30)).max())


def run(make, lr, scheduled, start, grads, shares):
    params = [torch.nn.Parameter(part) for part in split(start)]
    optimizer = make(params)
    after = {}
    for step in range(STEPS):
        for group in optimizer.param_groups:
            if group.get("lr") is not None:
                group["lr"] = lr * (shares[step] if scheduled else 1.0)
        for param, grad in zip(params, split(grads[step])):
            param.grad = grad
        optimizer.step()
        if step + 1 in (1, 10, STEPS):
            if hasattr(optimizer, "eval"):
                optimizer.eval()
            after[str(step + 1)] = torch.cat([param.detach().flatten() for param in params])
            if hasattr(optimizer, "train"):
                optimizer.train()
    return after


class Muon(torch.optim.Muon):
    """torch's Muon with f32 products for matrices, and its AdamW for vectors."""

    def __init__(self, params, **settings):
        super().__init__([p for p in params if p.ndim == 2], **settings)
        vectors = [p for p in params if p.ndim < 2]
        self.other = torch.optim.AdamW(vectors, lr=settings["lr"], betas=(settings.get("momentum", 0.95), 0.999), eps=1e-8,
                                       weight_decay=settings.get("weight_decay", 0.1), foreach=False)

    def step(self, closure=None):
        self.other.param_groups[0]["lr"] = self.param_groups[0]["lr"]
        self.other.step()
        rounded, torch.Tensor.bfloat16 = torch.Tensor.bfloat16, torch.Tensor.float
        try:
            super().step()
        finally:
            torch.Tensor.bfloat16 = rounded


def schedule_free(params, **settings):
    optimizer = schedulefree.AdamWScheduleFree(params, foreach=False, **settings)
    optimizer.train()
    return optimizer


def cases():
    """(name, settings, lr, whether the schedule applies, constructor, bound)"""
    torch_own = dict(foreach=False)
    for decay in (0.0, 0.02):
        settings = {"betas": [0.9, 0.99], "eps": 1e-8, "weight_decay": decay}
        yield "adamw", settings, 1e-2, True, lambda p, s=settings: torch.optim.AdamW(p, lr=1, **s, **torch_own), F32
        yield "adam", settings, 1e-2, True, lambda p, s=settings: torch.optim.Adam(p, lr=1, **s, **torch_own), F32
        yield "adamw8bit", settings, 1e-2, True, lambda p, s=settings: bits.Adam8bit(p, lr=1, decoupled=True, **s), F32
        yield "adam8bit", settings, 1e-2, True, lambda p, s=settings: bits.Adam8bit(p, lr=1, decoupled=False, **s), F32
        settings = {"betas": [0.9, 0.98], "weight_decay": decay}
        yield "lion", settings, 1e-3, True, lambda p, s=settings: lion_pytorch.Lion(p, lr=1, **s), F32
        yield "lion8bit", settings, 1e-3, True, lambda p, s=settings: bits.Lion8bit(p, lr=1, **s), F32
        settings = {"momentum": 0.9, "nesterov": True, "weight_decay": decay}
        yield "sgdnesterov", settings, 1e-2, True, lambda p, s=settings: torch.optim.SGD(p, lr=1, **s, **torch_own), F32
        settings = {"weight_decay": decay, "lr_decay": 0.1, "initial_accumulator_value": 0.01, "eps": 1e-10}
        yield "adagrad", settings, 1e-2, True, lambda p, s=settings: torch.optim.Adagrad(p, lr=1, **s, **torch_own), F32
        settings = {"betas": [0.9, 0.99], "weight_decay": decay, "decoupled_weight_decay": decay > 0}
        yield "radam", settings, 1e-2, True, lambda p, s=settings: torch.optim.RAdam(p, lr=1, **s, **torch_own), F32
        settings = {"betas": [0.9, 0.999, 0.9999], "weight_decay": decay}
        yield "came", settings, 1e-3, True, lambda p, s=settings: came_pytorch.CAME(p, lr=1, **s), F32
        settings = {"weight_decay": decay, "warmup_steps": 5 if decay else 0, "r": 2.0 if decay else 0.0}
        yield "adamw_schedulefree", settings, 1e-2, False, lambda p, s=settings: schedule_free(p, lr=1e-2, **s), F32
        settings = {"weight_decay": decay, "adjust_lr_fn": "match_rms_adamw" if decay else "original"}
        yield "muon", settings, 1e-3, True, lambda p, s=settings: Muon(p, lr=1e-3, **s), F32
        for name in ("automagic", "automagic2", "automagic3"):
            settings = {"weight_decay": decay, "beta2": 0.99} | ({} if name == "automagic3" else {"lr_bump": 1e-4, "max_lr": 5e-3})
            yield name, settings, 1e-3, False, lambda p, n=name, s=settings: automagic.RULES[n](p, lr=1e-3, **s), F32
    settings = {"weight_decay": 0.1, "momentum": 0.9, "dampening": 0.3}
    yield "sgd", settings, 1e-2, True, lambda p, s=settings: torch.optim.SGD(p, lr=1, **s, **torch_own), F32
    yield "sgd", {}, 1e-2, True, lambda p: torch.optim.SGD(p, lr=1, **torch_own), F32

    adafactor = transformers.optimization.Adafactor
    plain = {"scale_parameter": False, "relative_step": False, "warmup_init": False}
    for settings in (plain, plain | {"beta1": 0.9, "weight_decay": 0.02, "clip_threshold": 0.5}, plain | {"scale_parameter": True}):
        yield "adafactor", settings, 1e-2, True, lambda p, s=settings: adafactor(p, lr=1, **s), F32
    for warmup in (False, True):
        settings = {"scale_parameter": True, "relative_step": True, "warmup_init": warmup}
        yield "adafactor", settings, 1.0, False, lambda p, s=settings: adafactor(p, lr=None, **s), F32

    for settings in ({}, {"weight_decay": 0.02, "use_bias_correction": True, "d0": 1e-4, "d_coef": 0.5},
                     {"weight_decay": 0.02, "decouple": False, "safeguard_warmup": True, "growth_rate": 1.1, "betas": [0.9, 0.99]},
                     {"slice_p": 3, "beta3": 0.9}):
        yield "prodigy", settings, 1.0, True, lambda p, s=settings: prodigyopt.Prodigy(p, lr=1.0, **s), FED_BACK
    yield "prodigy8bit", {"slice_p": 1}, 1.0, True, lambda p: bits.Prodigy8bit(p, lr=1.0), F32
    for settings in ({}, {"weight_decay": 0.02, "decouple": True, "use_bias_correction": True, "growth_rate": 1.2}, {"weight_decay": 0.1}):
        yield "dadaptadam", settings, 1.0, True, lambda p, s=settings: dadaptation.DAdaptAdam(p, lr=1.0, **s), FED_BACK
    for settings in ({}, {"weight_decay": 0.02, "betas": [0.95, 0.98]}):
        yield "dadaptlion", settings, 1.0, True, lambda p, s=settings: dadaptation.DAdaptLion(p, lr=1.0, **s), FED_BACK


def numbers(values):
    """The shortest text of each f32 that reads back the same, as JSON can hold it."""
    return [float(numpy.format_float_scientific(numpy.float32(v), unique=True)) for v in values.tolist()]


def main():
    start, grads, shares = problem()
    found = []
    for name, settings, lr, scheduled, make, bound in cases():
        after = run(make, lr, scheduled, start, grads, shares)
        if bound == FED_BACK:
            exact = run(make, lr, scheduled, start.double(), grads.double(), shares)
            bound = max(F32, *(distance(after[step].double(), exact[step], start.double()) for step in after))
            print(f"{name} {settings}: {bound:.1e}")
        found.append({"optimizer": name, "params": settings, "lr": lr, "scheduled": scheduled, "bound": bound,
                      "after": {step: numbers(values) for step, values in after.items()}})
    versions = {package.__name__: getattr(package, "__version__", "?") for package in (torch, transformers, schedulefree)}
    fixture = {"script": "tools/golden/optim/optimizers.py", "seed": SEED, "versions": versions, "shapes": SHAPES,
               "start": numbers(start), "shares": shares, "grads": [numbers(grad) for grad in grads], "cases": found}
    TARGET.write_text(json.dumps(fixture, separators=(",", ":")))
    print(f"{TARGET}: {len(found)} cases, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
