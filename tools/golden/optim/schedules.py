"""Learning rates of diffusers', transformers', torch's and pytorch_optimizer's schedulers, stepped as a training loop steps them.

Writes crates/optim/tests/schedules.json: a list of cases, each with the name and settings in velatura's vocabulary,
the base rate, the length of the run, and the rate that each optimizer step used.
"""

import json
import pathlib

import diffusers
import torch
import transformers.optimization as transformers
from diffusers.optimization import get_scheduler
from pytorch_optimizer.lr_scheduler.rex import REXScheduler
from torch.optim import lr_scheduler as own

BASE = 3e-4
TARGET = pathlib.Path(__file__).parents[3] / "crates/optim/tests/schedules.json"


def rates(make, total):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE)
    scheduler = make(optimizer)
    used = []
    for _ in range(total):
        used.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return used


def rex(total, minimum):
    """pytorch_optimizer's REX counts its own steps: the rate of step t is what its formula gives for t of `total`."""
    scheduler = REXScheduler(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE), total, max_lr=BASE, min_lr=minimum)
    found = []
    for scheduler.step_t in range(total):
        found.append(scheduler.get_linear_lr())
    return found


def with_warmup():
    """(name, settings, constructor from optimizer, warm-up and length)"""
    for name in ("constant_with_warmup", "linear", "cosine"):
        yield name, {}, lambda o, w, t, n=name: get_scheduler(n, o, num_warmup_steps=w, num_training_steps=t)
    for cycles in (1, 3):
        yield "cosine_with_restarts", {"num_cycles": cycles}, lambda o, w, t, c=cycles: get_scheduler(
            "cosine_with_restarts", o, num_warmup_steps=w, num_training_steps=t, num_cycles=c)
    for power in (1.0, 2.5):
        yield "polynomial", {"power": power, "lr_end": 1e-7}, lambda o, w, t, p=power: get_scheduler(
            "polynomial", o, num_warmup_steps=w, num_training_steps=t, power=p)
    yield "inverse_sqrt", {}, lambda o, w, t: transformers.get_inverse_sqrt_schedule(o, w)
    yield "inverse_sqrt", {"timescale": 30}, lambda o, w, t: transformers.get_inverse_sqrt_schedule(o, w, timescale=30)


def without_warmup():
    """(name, settings, constructor, length)"""
    for minimum in (0.0, 1e-5):
        yield "cosine", {"eta_min": minimum}, lambda o, m=minimum: own.CosineAnnealingLR(o, T_max=40, eta_min=m), 40
        yield "linear", {"min_lr": minimum}, lambda o, m=minimum: own.LinearLR(o, 1.0, m / BASE, total_iters=40), 40
        for mult in (1, 2):
            settings = {"T_0": 7, "T_mult": mult, "eta_min": minimum}
            yield "cosine_with_restarts", settings, lambda o, m=mult, e=minimum: own.CosineAnnealingWarmRestarts(o, 7, m, e), 40
    yield "step", {"step_size": 9, "gamma": 0.3}, lambda o: own.StepLR(o, 9, 0.3), 40
    yield "exponential", {"gamma": 0.9}, lambda o: own.ExponentialLR(o, 0.9), 40
    for settings in ({}, {"pct_start": 0.1, "anneal_strategy": "linear", "div_factor": 10, "final_div_factor": 100},
                     {"pct_start": 0.25, "three_phase": True}, {"pct_start": 0.5, "anneal_strategy": "linear", "three_phase": True}):
        yield "one_cycle", settings, lambda o, s=settings: own.OneCycleLR(o, max_lr=BASE, total_steps=40, cycle_momentum=False, **s), 40
    for decay_type in ("cosine", "linear", "1-sqrt"):
        settings = {"warmup_steps": 5, "decay_steps": 12, "decay_type": decay_type}
        yield "warmup_stable_decay", settings, lambda o, d=decay_type: transformers.get_wsd_schedule(o, 5, 12, 40, decay_type=d), 40
    settings = {"decay_steps": 12, "min_lr_ratio": 0.1}
    yield "warmup_stable_decay", settings, lambda o: transformers.get_wsd_schedule(o, 0, 12, 40, min_lr_ratio=0.1), 40


def main():
    cases = [{"name": "constant", "params": {}, "total": 3, "rates": [BASE] * 3}]
    for name, settings, make in with_warmup():
        for warmup, total in ((0, 1), (0, 40), (7, 40), (1, 3), (40, 40), (60, 40)):
            if name == "polynomial" and warmup == total:
                # diffusers divides by the 0 steps that are left.
                continue
            if name == "inverse_sqrt" and settings and warmup > settings["timescale"]:
                continue
            used = rates(lambda o: make(o, warmup, total), total)
            cases.append({"name": name, "params": settings | {"warmup_steps": warmup}, "total": total, "rates": used})
    for name, settings, make, total in without_warmup():
        cases.append({"name": name, "params": settings, "total": total, "rates": rates(make, total)})
    for minimum in (0.0, 1e-5):
        cases.append({"name": "rex", "params": {"min_lr": minimum}, "total": 40, "rates": rex(40, minimum)})
    fixture = {"script": "tools/golden/optim/schedules.py", "seed": None, "diffusers": diffusers.__version__,
               "torch": torch.__version__, "base_lr": BASE, "cases": cases}
    TARGET.write_text(json.dumps(fixture, separators=(",", ":")))
    print(f"{TARGET}: {len(cases)} cases, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
