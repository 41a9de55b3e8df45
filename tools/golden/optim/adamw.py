"""50 steps of torch.optim.AdamW on fixed gradients.

Writes crates/optim/tests/adamw.json: start values, one list of gradients per step, the rate of each step, and the
parameters after steps 1, 10 and 50. All numbers are f32, written so that they read back exactly.
"""

import json
import math
import pathlib

import torch

SEED = 20
STEPS, SIZE = 50, 24
SETTINGS = {"betas": [0.9, 0.99], "eps": 1e-8, "weight_decay": 0.02}
TARGET = pathlib.Path(__file__).parents[3] / "crates/optim/tests/adamw.json"


def main():
    generator = torch.Generator().manual_seed(SEED)
    start = torch.randn(SIZE, generator=generator)
    # Gradients of very different sizes, some zero, so that eps and the bias corrections matter.
    sizes = 10.0 ** torch.linspace(-9, 3, SIZE)
    sizes[3] = 0.0
    grads = torch.randn(STEPS, SIZE, generator=generator) * sizes
    rates = [1e-2 * 0.5 * (1 + math.cos(math.pi * step / STEPS)) for step in range(STEPS)]

    parameter = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.AdamW([parameter], lr=1.0, betas=tuple(SETTINGS["betas"]), eps=SETTINGS["eps"],
                                  weight_decay=SETTINGS["weight_decay"], foreach=False)
    after = {}
    for step, rate in enumerate(rates):
        optimizer.param_groups[0]["lr"] = rate
        parameter.grad = grads[step].clone()
        optimizer.step()
        if step + 1 in (1, 10, STEPS):
            after[str(step + 1)] = parameter.detach().tolist()

    fixture = {"script": "tools/golden/optim/adamw.py", "seed": SEED, "torch": torch.__version__, "settings": SETTINGS,
               "start": start.tolist(), "rates": rates, "grads": grads.tolist(), "after": after}
    TARGET.write_text(json.dumps(fixture))
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
