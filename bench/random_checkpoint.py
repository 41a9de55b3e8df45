"""Writes a full-size Stable Diffusion checkpoint (original single-file layout, fp16) with random weights, to measure with.

    python bench/random_checkpoint.py sd15|sd21 OUT.safetensors
"""
import math, os, sys
import torch
from safetensors.torch import save_file

NAMES = os.path.join(os.path.dirname(__file__), "..", "crates", "weights", "tests", "key_lists")


def tensors(arch):
    generator = torch.Generator().manual_seed(0)
    with open(os.path.join(NAMES, f"{arch}.txt")) as lines:
        for line in lines:
            name, _, shape = line.split(" = ")[0].strip().partition(" ")
            if not name.startswith(("model.diffusion_model.", "first_stage_model.", "cond_stage_model.")) or "position_ids" in name or not shape[:1].isdigit():
                continue
            shape = [int(n) for n in shape.split("x")]
            if len(shape) > 1:                     # outputs keep the spread of inputs
                value = (torch.rand(shape, generator=generator) - 0.5) * (1.2 / math.sqrt(math.prod(shape[1:])))
            else:
                value = torch.ones(shape) if name.endswith("weight") else torch.zeros(shape)
            yield name, value.half()


save_file(dict(tensors(sys.argv[1])), sys.argv[2], metadata={"format": "pt"})
