"""Noise levels, noisy latents, velocity targets and min-SNR inputs of diffusers' DDIMScheduler.

Writes crates/diffusion/tests/schedules.json: for each scheduler config alphas_cumprod at some timesteps, and for a fixed
latent and noise the noisy latent and the velocity at them.
"""

import json
import pathlib

import diffusers
import torch

SEED = 21
TIMESTEPS = [0, 1, 2, 17, 250, 499, 500, 501, 750, 998, 999]
TARGET = pathlib.Path(__file__).parents[3] / "crates/diffusion/tests/schedules.json"
STABLE = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
CONFIGS = [{}, STABLE, STABLE | {"prediction_type": "v_prediction"},
           STABLE | {"rescale_betas_zero_snr": True, "prediction_type": "v_prediction"},
           {"beta_schedule": "squaredcos_cap_v2"}, {"beta_schedule": "linear", "rescale_betas_zero_snr": True}]


def main():
    generator = torch.Generator().manual_seed(SEED)
    latent, noise = torch.randn(6, generator=generator), torch.randn(6, generator=generator)
    cases = []
    for config in CONFIGS:
        scheduler = diffusers.DDIMScheduler(**config)
        each = [torch.tensor([t]) for t in TIMESTEPS]
        cases.append({"config": config, "alphas_cumprod": scheduler.alphas_cumprod[TIMESTEPS].tolist(),
                      "noisy": [scheduler.add_noise(latent[None], noise[None], t)[0].tolist() for t in each],
                      "velocity": [scheduler.get_velocity(latent[None], noise[None], t)[0].tolist() for t in each]})
    fixture = {"script": "tools/golden/diffusion/schedules.py", "seed": SEED, "diffusers": diffusers.__version__,
               "timesteps": TIMESTEPS, "latent": latent.tolist(), "noise": noise.tolist(), "cases": cases}
    TARGET.write_text(json.dumps(fixture))
    print(f"{TARGET}: {len(cases)} cases, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
