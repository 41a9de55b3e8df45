"""The tiny models that all other golden scripts run: diffusers folders with random weights, f32, no tokenizer.

sd1: convolutional projections, one head count for all blocks, quick_gelu CLIP, epsilon.
sd2: linear projections, a head count per block, gelu CLIP, two layers per block, v-prediction.
"""

import json

import diffusers
import safetensors.torch
import torch
import transformers

from common import GOLDEN, STYLES, generator

SEED = 1
SCHEDULE = dict(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False, set_alpha_to_one=False,
                steps_offset=1)
UNET = {
    "sd1": dict(block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8, cross_attention_dim=32,
                attention_head_dim=2, sample_size=8,
                down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D")),
    "sd2": dict(block_out_channels=(16, 24, 32), layers_per_block=2, norm_num_groups=8, cross_attention_dim=32,
                attention_head_dim=(1, 3, 4), sample_size=8, use_linear_projection=True,
                down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
                up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D")),
}
VAE = {
    "sd1": dict(block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, latent_channels=4, sample_size=32,
                down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2),
    "sd2": dict(block_out_channels=(8, 16, 16), layers_per_block=1, norm_num_groups=4, latent_channels=4, sample_size=32,
                down_block_types=("DownEncoderBlock2D",) * 3, up_block_types=("UpDecoderBlock2D",) * 3),
}
TEXT = dict(vocab_size=100, hidden_size=32, intermediate_size=96, num_attention_heads=4, max_position_embeddings=16,
            bos_token_id=98, eos_token_id=99, pad_token_id=99)
BRANCH_ENDS = ("to_out", "ff.net.2", "conv2", "proj_out", "out_proj", "fc2")
TEXT_STYLE = {"sd1": dict(hidden_act="quick_gelu", num_hidden_layers=3), "sd2": dict(hidden_act="gelu", num_hidden_layers=4)}


@torch.no_grad()
def randomize(model, words):
    """Weights that keep the signal's size and make every part matter, but let no rounding error grow as in a chaotic map:
    branches that end in a residual sum are damped, and values are such that bf16 holds them exactly."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator(SEED, *words, name))
        is_norm = "norm" in name
        if is_norm:
            parameter.copy_(noise * 0.2 + (1.0 if name.endswith("weight") else 0.0))
        elif "embedding.weight" in name:
            parameter.copy_(noise * 0.7)
        elif name.endswith("bias"):
            parameter.copy_(noise * 0.1)
        else:
            fan_in = parameter[0].numel()
            gain = 0.5 if any(part in name for part in BRANCH_ENDS) else 1.0
            parameter.copy_(noise * gain / fan_in**0.5)
        parameter.copy_(parameter.bfloat16())
    return model


def as_published(file):
    """Renames a text encoder's tensors as in the published Stable Diffusion 1.x folders: under `text_model.`, with the
    `position_ids` that old versions of transformers wrote. Version 5 writes bare names; both must load."""
    tensors = {f"text_model.{name.removeprefix('text_model.')}": tensor for name, tensor in safetensors.torch.load_file(file).items()}
    tensors["text_model.embeddings.position_ids"] = torch.arange(TEXT["max_position_embeddings"])[None]
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})


def main():
    for style in STYLES:
        folder = GOLDEN / style / "model"
        unet = randomize(diffusers.UNet2DConditionModel(**UNET[style]), (style, "unet"))
        vae = randomize(diffusers.AutoencoderKL(scaling_factor=0.18215, **VAE[style]), (style, "vae"))
        text = randomize(transformers.CLIPTextModel(transformers.CLIPTextConfig(**TEXT, **TEXT_STYLE[style])), (style, "text"))
        prediction = {"sd1": "epsilon", "sd2": "v_prediction"}[style]
        scheduler = diffusers.DDIMScheduler(prediction_type=prediction, **SCHEDULE)
        for name, part in (("unet", unet), ("vae", vae), ("text_encoder", text), ("scheduler", scheduler)):
            part.save_pretrained(folder / name)
        if style == "sd1":
            as_published(folder / "text_encoder/model.safetensors")
        index = {"_class_name": "StableDiffusionPipeline", "_diffusers_version": diffusers.__version__,
                 "scheduler": ["diffusers", "DDIMScheduler"], "text_encoder": ["transformers", "CLIPTextModel"],
                 "unet": ["diffusers", "UNet2DConditionModel"], "vae": ["diffusers", "AutoencoderKL"]}
        (folder / "model_index.json").write_text(json.dumps(index, indent=2) + "\n")
        for file in sorted(folder.rglob("*.safetensors")):
            print(f"{file.relative_to(GOLDEN)}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
