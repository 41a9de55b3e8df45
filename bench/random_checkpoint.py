"""Writes a full-size Stable Diffusion checkpoint with random weights in fp16, to measure with.

    python bench/random_checkpoint.py sd15|sd21 OUT.safetensors      original single-file layout
    python bench/random_checkpoint.py sdxl-blocks OUT                a diffusers folder

sdxl-blocks is SDXL's UNet (blocks of 320, 640 and 1280 channels, heads of 64, transformers 2 and 10 deep) in the frame of SD 2: text
states of 1024 numbers under a small text encoder, and nothing but time in the time embedding. The work of a step is SDXL's.
"""
import json, math, os, sys
import torch
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = os.path.join(HERE, "..", "crates", "weights", "tests", "key_lists")
GENERATOR = torch.Generator().manual_seed(0)


def random_tensor(name, shape):
    if len(shape) > 1:                     # outputs keep the spread of inputs
        return ((torch.rand(shape, generator=GENERATOR) - 0.5) * (1.2 / math.sqrt(math.prod(shape[1:])))).half()
    return (torch.ones(shape) if name.endswith("weight") else torch.zeros(shape)).half()


def single_file(arch):
    with open(os.path.join(NAMES, f"{arch}.txt")) as lines:
        for line in lines:
            name, _, shape = line.split(" = ")[0].strip().partition(" ")
            if not name.startswith(("model.diffusion_model.", "first_stage_model.", "cond_stage_model.")) or "position_ids" in name or not shape[:1].isdigit():
                continue
            yield name, random_tensor(name, [int(n) for n in shape.split("x")])


def sdxl_blocks(folder):
    from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel
    from peer_step import SDXL_BLOCKS
    with torch.device("meta"):
        parts = {
            "unet": UNet2DConditionModel(**SDXL_BLOCKS),
            "vae": AutoencoderKL(block_out_channels=(32,) * 4, down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4),
            "text_encoder": CLIPTextModel(CLIPTextConfig(hidden_size=1024, intermediate_size=1024, num_hidden_layers=1, num_attention_heads=16)),
        }
    DDIMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear").save_config(f"{folder}/scheduler")
    index = {"_class_name": "StableDiffusionPipeline", "scheduler": ["diffusers", "DDIMScheduler"]}
    for name, model in parts.items():
        library, file = ("transformers", "model") if name == "text_encoder" else ("diffusers", "diffusion_pytorch_model")
        index[name] = [library, type(model).__name__]
        config = model.config if library == "transformers" else model
        getattr(config, "save_pretrained" if library == "transformers" else "save_config")(f"{folder}/{name}")
        tensors = {key: random_tensor(key, list(t.shape)) for key, t in model.state_dict().items() if "position_ids" not in key}
        save_file(tensors, f"{folder}/{name}/{file}.safetensors", metadata={"format": "pt"})
    with open(f"{folder}/model_index.json", "w") as f:
        json.dump(index, f)


if __name__ == "__main__":
    arch, out = sys.argv[1:]
    if arch == "sdxl-blocks":
        sdxl_blocks(out)
    else:
        save_file(dict(single_file(arch)), out, metadata={"format": "pt"})
