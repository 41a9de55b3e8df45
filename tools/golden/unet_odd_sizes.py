"""Writes crates/models/tests/unet_odd_sizes.safetensors: what diffusers' UNet (the tiny SD 2 style model of the golden files) makes of
latents whose sides don't halve evenly. The way up must then resize to the size of the skips instead of doubling.

Run with torch and diffusers installed: python tools/golden/unet_odd_sizes.py"""

import pathlib

import safetensors.torch
import torch

from common import generator, load_unet

OUT = pathlib.Path(__file__).parents[2] / "crates/models/tests/unet_odd_sizes.safetensors"
SEED = 8
SIZES = [(7, 9), (5, 6)]


@torch.no_grad()
def main():
    model, tensors = load_unet("sd2"), {}
    for index, size in enumerate(SIZES):
        random = generator(SEED, index)
        latent, context = torch.randn(1, 4, *size, generator=random), torch.randn(1, 3, 32, generator=random)
        steps = torch.tensor([412.0])
        tensors |= {f"case{index}.latent": latent, f"case{index}.context": context, f"case{index}.timesteps": steps,
                    f"case{index}.output": model(latent, steps, context).sample.contiguous()}
    safetensors.torch.save_file(tensors, str(OUT), metadata={"script": "tools/golden/unet_odd_sizes.py", "seed": str(SEED), "torch": torch.__version__})
    print(OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
