"""LoRA in the UNet and the text encoder, by peft: gradients of every factor, and 20 steps of AdamW.

loss = mean over the batch of weight · mean((output − target)²); sd1: epsilon, weight 1; sd2: v-prediction, min-SNR γ = 5.
"""

import json

import torch
from peft import LoraConfig, inject_adapter_in_model

from common import GOLDEN, STYLES, generator, load_scheduler, load_text_encoder, load_unet, randn, save

SEED = 5
RANK, ALPHA, GAMMA = 4, 8, 5.0
LINEAR = ["to_q", "to_k", "to_v", "to_out.0", "ff.net.0.proj", "ff.net.2", "proj_in", "proj_out"]
CONV = ["conv1", "conv2", "conv_shortcut", "time_emb_proj", "downsamplers.0.conv", "upsamplers.0.conv"]
TEXT = ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"]
STEPS, BATCH, TOKENS, LATENT = 20, 2, 7, (4, 8, 12)
ADAMW = dict(lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)


def adapt(model, targets):
    model.requires_grad_(False)
    return inject_adapter_in_model(LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=targets, lora_dropout=0.0), model)


def factors(model, component):
    """Canonical name → parameter: `unet.<module>.lora_down` and `.lora_up`, in torch layout."""
    named = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if component == "text_encoder" and not name.startswith("text_model."):
            name = f"text_model.{name}"
        name = name.replace(".lora_A.default.weight", ".lora_down").replace(".lora_B.default.weight", ".lora_up")
        named[f"{component}.{name}"] = parameter
    return named


@torch.no_grad()
def start(named, words, up):
    """The factors' start values: down as kaiming-uniform makes it, up with standard deviation `up`."""
    for name, parameter in named.items():
        random = generator(SEED, *words, name)
        if name.endswith("lora_down"):
            bound = (parameter[0].numel()) ** -0.5
            parameter.copy_((torch.rand(parameter.shape, generator=random) * 2 - 1) * bound)
        else:
            parameter.copy_(torch.randn(parameter.shape, generator=random) * up)


def batch(words):
    steps = torch.randint(0, 1000, (BATCH,), generator=generator(SEED, *words, "timesteps"))
    return {"latent": randn(BATCH, *LATENT, words=(SEED, *words, "latent")),
            "noise": randn(BATCH, *LATENT, words=(SEED, *words, "noise")), "timesteps": steps,
            "context": randn(BATCH, TOKENS, 32, words=(SEED, *words, "context"))}


def prepare(scheduler, item):
    """Adds the noisy latent, the target and the loss weights to a batch."""
    alpha = scheduler.alphas_cumprod[item["timesteps"]]
    snr = alpha / (1 - alpha)
    item["noisy"] = scheduler.add_noise(item["latent"], item["noise"], item["timesteps"])
    if scheduler.config.prediction_type == "epsilon":
        item["target"], item["weight"] = item["noise"], torch.ones(BATCH)
    else:
        item["target"] = scheduler.get_velocity(item["latent"], item["noise"], item["timesteps"])
        item["weight"] = snr.clamp(max=GAMMA) / (snr + 1)
    return item


def loss_of(unet, item, context):
    output = unet(item["noisy"], item["timesteps"], context).sample
    return (item["weight"] * (output - item["target"]).square().mean(dim=(1, 2, 3))).mean()


def save_gradients(style, kind, named, item, loss):
    loss.backward()
    missing = [name for name, parameter in named.items() if parameter.grad is None or parameter.grad.abs().max() == 0]
    assert not missing, f"no gradient: {missing}"
    tensors = dict(item) | {"loss": loss}
    tensors |= named | {f"grad.{name}": parameter.grad for name, parameter in named.items()}
    sizes = torch.stack([parameter.grad.norm() for parameter in named.values()])
    print(f"{style} {kind}: loss {loss.item():.4f}, gradient norms {sizes.min():.2e} to {sizes.max():.2e}")
    save(GOLDEN / style / f"lora_{kind}.safetensors", "lora_training.py", SEED, tensors, rank=RANK, alpha=ALPHA)


def gradients(style, kind, targets):
    unet, scheduler = adapt(load_unet(style), targets), load_scheduler(style)
    named = factors(unet, "unet")
    start(named, (style, kind), up=0.1)
    item = prepare(scheduler, batch((style, kind)))
    save_gradients(style, kind, named, item, loss_of(unet, item, item["context"]))


def text_gradients(style):
    """The loss reaches the text encoder's factors through the UNet's cross-attention."""
    unet, text, scheduler = load_unet(style).requires_grad_(False), adapt(load_text_encoder(style), TEXT), load_scheduler(style)
    named = factors(text, "text_encoder")
    start(named, (style, "text"), up=0.1)
    item = prepare(scheduler, batch((style, "text")))
    item["ids"] = torch.randint(0, 98, (BATCH, 16), generator=generator(SEED, style, "ids"))
    item["context"] = text(item["ids"]).last_hidden_state
    save_gradients(style, "text", named, item, loss_of(unet, item, item["context"]))


def training(style):
    unet, scheduler = adapt(load_unet(style), LINEAR), load_scheduler(style)
    named = factors(unet, "unet")
    start(named, (style, "training"), up=0.0)
    tensors = {f"initial.{name}": parameter.clone() for name, parameter in named.items() if name.endswith("lora_down")}
    optimizer = torch.optim.AdamW(named.values(), foreach=False, **ADAMW)
    losses = []
    for step in range(STEPS):
        item = prepare(scheduler, batch((style, "training", step)))
        tensors |= {f"step{step:02}.{key}": item[key] for key in ("latent", "noise", "timesteps", "context")}
        loss = loss_of(unet, item, item["context"])
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tensors |= {f"final.{name}": parameter for name, parameter in named.items()}
    tensors["losses"] = torch.tensor(losses)
    with torch.no_grad():
        untrained = [loss_of(load_unet(style), item, item["context"]) for item in
                     (prepare(scheduler, batch((style, "training", step))) for step in range(STEPS))]
    gain = torch.stack(untrained) - tensors["losses"]
    print(f"{style} training: losses {losses[0]:.4f} … {losses[-1]:.4f}, below the untrained model's by up to {gain.max():.4f}")
    save(GOLDEN / style / "training.safetensors", "lora_training.py", SEED, tensors, rank=RANK, alpha=ALPHA, steps=STEPS,
         optimizer=json.dumps({"name": "adamw", **ADAMW}), prediction=scheduler.config.prediction_type,
         min_snr_gamma=GAMMA if style == "sd2" else "none")


def main():
    for style in STYLES:
        gradients(style, "linear", LINEAR)
        gradients(style, "conv", CONV)
        text_gradients(style)
        training(style)


if __name__ == "__main__":
    main()
