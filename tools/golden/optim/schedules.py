"""Learning rates of diffusers' and torch's schedulers, stepped as a training loop steps them.

Writes crates/optim/tests/schedules.json: a list of cases, each with the name and settings in velatura's vocabulary,
the base rate, the length of the run, and the rate that each optimizer step used.
"""

import json
import pathlib

import diffusers
import torch
from diffusers.optimization import get_scheduler

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


def main():
    cases = []
    for name in ("constant", "constant_with_warmup", "linear", "cosine"):
        for warmup, total in ((0, 1), (0, 40), (7, 40), (1, 3), (40, 40), (60, 40)):
            if name == "constant" and warmup:
                continue
            used = rates(lambda o: get_scheduler(name, o, num_warmup_steps=warmup, num_training_steps=total), total)
            cases.append({"name": name, "params": {"warmup_steps": warmup}, "total": total, "rates": used})
    for minimum in (0.0, 1e-5):
        used = rates(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=40, eta_min=minimum), 40)
        cases.append({"name": "cosine", "params": {"eta_min": minimum}, "total": 40, "rates": used})
        used = rates(lambda o: torch.optim.lr_scheduler.LinearLR(o, 1.0, minimum / BASE, total_iters=40), 40)
        cases.append({"name": "linear", "params": {"min_lr": minimum}, "total": 40, "rates": used})
    fixture = {"script": "tools/golden/optim/schedules.py", "seed": None, "diffusers": diffusers.__version__,
               "base_lr": BASE, "cases": cases}
    TARGET.write_text(json.dumps(fixture))
    print(f"{TARGET}: {len(cases)} cases, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
