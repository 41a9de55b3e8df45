"""What the golden scripts share: where fixtures lie, how they are written, the tiny models, random numbers.

A fixture is a safetensors file of f32 tensors in PyTorch's layouts (pictures and latents NCHW, tokens [B, T, C], weights
as in checkpoints). Its metadata says which script made it, from which seed, with which versions.
"""

import pathlib

import diffusers
import peft
import safetensors.torch
import torch
import transformers

GOLDEN = pathlib.Path(__file__).parents[2] / "crates/conform/tests/golden"
STYLES = ("sd1", "sd2")

torch.use_deterministic_algorithms(True)


def generator(*words):
    """Random numbers that depend on the words only, so that adding a case changes no other."""
    import hashlib
    digest = hashlib.sha256(repr(words).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:6], "little"))


def randn(*shape, words):
    return torch.randn(*shape, generator=generator(*words))


def save(path, script, seed, tensors, **notes):
    """Writes a fixture; all tensors become f32 and contiguous, all notes strings."""
    metadata = {"script": f"tools/golden/{script}", "seed": str(seed), "torch": torch.__version__,
                "diffusers": diffusers.__version__, "transformers": transformers.__version__, "peft": peft.__version__}
    metadata |= {key: str(value) for key, value in notes.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {key: tensor.detach().float().contiguous().clone() for key, tensor in tensors.items()}
    bad = [key for key, tensor in tensors.items() if not torch.isfinite(tensor).all()]
    if bad:
        raise SystemExit(f"{path}: not finite: {bad}")
    safetensors.torch.save_file(tensors, str(path), metadata=metadata)
    print(f"{path.relative_to(GOLDEN)}: {len(tensors)} tensors, {path.stat().st_size} bytes")


def load_unet(style):
    return diffusers.UNet2DConditionModel.from_pretrained(GOLDEN / style / "model/unet").eval()


def load_vae(style):
    return diffusers.AutoencoderKL.from_pretrained(GOLDEN / style / "model/vae").eval()


def load_text_encoder(style):
    return transformers.CLIPTextModel.from_pretrained(GOLDEN / style / "model/text_encoder").eval()


def load_scheduler(style):
    return diffusers.DDIMScheduler.from_pretrained(GOLDEN / style / "model/scheduler")
