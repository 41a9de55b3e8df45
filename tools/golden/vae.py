"""AutoencoderKL: picture to mean and log variance, latent to picture. No scaling factor is applied on either side."""

import torch

from common import GOLDEN, STYLES, load_vae, randn, save

SEED = 3
PICTURES = {"sd1": (2, 3, 24, 40), "sd2": (2, 3, 20, 28)}


@torch.no_grad()
def main():
    for style in STYLES:
        model = load_vae(style)
        pixels = randn(*PICTURES[style], words=(SEED, style, "pixels")).clamp(-1, 1)
        posterior = model.encode(pixels).latent_dist
        assert posterior.logvar.abs().max() < 19, "the log variance must not be clamped"
        latent = randn(*posterior.mean.shape, words=(SEED, style, "latent"))
        decoded = model.decode(latent).sample
        print(f"{style}: mean std {posterior.mean.std():.3f}, logvar std {posterior.logvar.std():.3f}, decoded std {decoded.std():.3f}")
        tensors = {"pixels": pixels, "mean": posterior.mean, "logvar": posterior.logvar, "latent": latent, "decoded": decoded}
        save(GOLDEN / style / "vae.safetensors", "vae.py", SEED, tensors, scaling="mean and latent are unscaled")


if __name__ == "__main__":
    main()
