"""UNet2DConditionModel: noisy latent, timestep and text context to the model's output, for several shapes."""

import torch

from common import GOLDEN, STYLES, load_unet, randn, save

SEED = 4
# latent height and width, context tokens, timesteps (one per batch item; Euler's may lie between the integers)
CASES = [((8, 12), 7, (1.0, 500.0)), ((8, 8), 16, (999.0, 37.0)), ((4, 16), 1, (333.25,))]


@torch.no_grad()
def main():
    for style in STYLES:
        model = load_unet(style)
        tensors = {}
        for index, ((height, width), tokens, timesteps) in enumerate(CASES):
            words = (SEED, style, index)
            latent = randn(len(timesteps), 4, height, width, words=(*words, "latent"))
            context = randn(len(timesteps), tokens, 32, words=(*words, "context"))
            steps = torch.tensor(timesteps)
            output = model(latent, steps, context).sample
            effect = (output - model(latent, steps, context.roll(1, -1)).sample).std() / output.std()
            print(f"{style} case {index}: output std {output.std():.3f}, share that another context changes {effect:.3f}")
            tensors |= {f"case{index}.latent": latent, f"case{index}.timesteps": steps, f"case{index}.context": context,
                        f"case{index}.output": output}
        save(GOLDEN / style / "unet.safetensors", "unet.py", SEED, tensors, cases=len(CASES))


if __name__ == "__main__":
    main()
