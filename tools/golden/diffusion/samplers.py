"""DDIMScheduler and EulerDiscreteScheduler of diffusers, fed with a fixed sequence of made-up model outputs.

Writes crates/diffusion/tests/samplers.json: the start noise and the model outputs, and for each case the timesteps, the
scaled start noise, the first scaled model input, and the state after every step.
"""

import itertools
import json
import pathlib

import diffusers
import torch

SEED = 22
SIZE, MOST_STEPS = 5, 12
TARGET = pathlib.Path(__file__).parents[3] / "crates/diffusion/tests/samplers.json"
STABLE = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
CLASSES = {"ddim": (diffusers.DDIMScheduler, {"clip_sample": False}), "euler": (diffusers.EulerDiscreteScheduler, {})}


def run(name, config, steps, noise, outputs):
    scheduler_class, fixed = CLASSES[name]
    scheduler = scheduler_class(**fixed | {k: v for k, v in config.items() if not (name == "euler" and k in ("set_alpha_to_one", "clip_sample"))})
    scheduler.set_timesteps(steps)
    state = start = noise * scheduler.init_noise_sigma
    first, states = None, []
    for i, t in enumerate(scheduler.timesteps):
        scaled = scheduler.scale_model_input(state, t)
        first = scaled if first is None else first
        state = scheduler.step(outputs[i], t, state).prev_sample
        states.append(state.tolist())
    return {"sampler": name, "config": config, "steps": steps, "timesteps": [float(t) for t in scheduler.timesteps],
            "start": start.tolist(), "first_input": first.tolist(), "states": states}


def main():
    generator = torch.Generator().manual_seed(SEED)
    noise = torch.randn(SIZE, generator=generator)
    outputs = torch.randn(MOST_STEPS, SIZE, generator=generator)
    cases = []
    grid = itertools.product(CLASSES, ("leading", "trailing", "linspace"), ("epsilon", "v_prediction"), (0, 1), (1, 7, MOST_STEPS))
    for name, spacing, prediction, offset, steps in grid:
        config = STABLE | {"timestep_spacing": spacing, "prediction_type": prediction, "steps_offset": offset,
                           "set_alpha_to_one": offset == 0}
        cases.append(run(name, config, steps, noise, outputs))
    for name in CLASSES:
        cases.append(run(name, STABLE, 7, noise, outputs))  # the spacing that each class takes by default
        zero = {"rescale_betas_zero_snr": True, "prediction_type": "v_prediction", "timestep_spacing": "trailing"}
        cases.append(run(name, STABLE | zero, 7, noise, outputs))
    cases.append(run("ddim", STABLE | {"clip_sample": True}, 7, noise, outputs))
    fixture = {"script": "tools/golden/diffusion/samplers.py", "seed": SEED, "diffusers": diffusers.__version__,
               "noise": noise.tolist(), "outputs": outputs.tolist(), "cases": cases}
    TARGET.write_text(json.dumps(fixture))
    print(f"{TARGET}: {len(cases)} cases, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
