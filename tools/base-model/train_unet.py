"""Step 4: text encoder + UNet, trained together from scratch on cached latents (epsilon prediction, min-SNR weights,
10 % empty captions for classifier-free guidance, EMA)."""
import argparse, json, os, random, subprocess, sys
import numpy as np
import torch
import torch.distributed as dist
from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer
from fast_attn import FastAttn
from fast_norm import patch
from common import SCHED, TEXT, UNET, Clock, Ema, grid, load_pixels, log, path, to_float, to_u8

PROMPTS = ["a grinning face", "a red heart", "a pizza", "a rocket", "a cat face", "a house", "emoji of a hamburger", "a robot",
           "an octopus", "a sunflower", "a bicycle", "a guitar", "a crying face", "a castle", "an elephant", "a strawberry",
           "a smiling face with sunglasses", "an evergreen tree", "a soccer ball", "a penguin", "a police car", "a birthday cake",
           "a crown", "a turtle"]

# Well-known emoji are drawn more often than the others (--popular times): a short run then learns at least these properly.
POPULAR = """grinning face|crying face|smiling face with sunglasses|clown face|robot|ghost|cat face|panda|elephant|butterfly|octopus|turtle|
penguin|cactus|sunflower|mushroom|strawberry|hamburger|doughnut|hot beverage|bicycle|rocket|sailboat|house|castle|guitar|light bulb|trophy|
smiling face with heart-eyes|dog face|fox|frog|owl|fish|red heart|star|sun|evergreen tree|rose|red apple|pizza|birthday cake|airplane|automobile|
snowman|crown|balloon|key""".replace("\n", "").split("|")


@torch.no_grad()
def sample(unet, text, tok, vae, prompts, steps=25, cfg=4.0, seed=0, size=16):
    """Plain DDIM sampling; returns uint8 pictures."""
    ids = tok(prompts + [""] * len(prompts), padding="max_length", truncation=True, return_tensors="pt").input_ids
    ctx = text(ids).last_hidden_state
    sched = DDIMScheduler(**SCHED)
    sched.set_timesteps(steps)
    x = torch.cat([torch.randn(1, 4, size, size, generator=torch.Generator().manual_seed(seed + i)) for i in range(len(prompts))])
    for t in sched.timesteps:
        cond, none = unet(torch.cat([x, x]), t, encoder_hidden_states=ctx).sample.chunk(2)
        x = sched.step(none + cfg * (cond - none), t, x).prev_sample
    return to_u8(vae.decode(x / vae.config.scaling_factor).sample)


def load_or_make(resume):
    if resume:
        return UNet2DConditionModel.from_pretrained(path("model", "unet")), CLIPTextModel.from_pretrained(path("model", "text_encoder"))
    unet = UNet2DConditionModel(**UNET)
    for name, p in unet.named_parameters():      # every residual branch starts at zero, as in the original latent diffusion code
        if name.startswith("conv_out.") or ".conv2." in name or ".proj_out." in name:
            torch.nn.init.zeros_(p)
    return unet, CLIPTextModel(CLIPTextConfig(**TEXT))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--minutes", type=float, default=40)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--text-lr", type=float, default=5e-4)
    ap.add_argument("--preview", type=float, default=8, help="minutes between preview pictures")
    ap.add_argument("--popular", type=float, default=10, help="how much more often the well-known emoji are drawn")
    ap.add_argument("--procs", type=int, default=2, help="single-threaded worker processes, each with batch/procs pictures per step")
    ap.add_argument("--rank", type=int, default=0, help="(internal)")
    ap.add_argument("--resume", action="store_true", help="go on from model/unet and model/text_encoder")
    a = ap.parse_args()
    # Many small operations do not scale over threads: one single-threaded process per core, gradients averaged once per step.
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29577")
    workers = [subprocess.Popen([sys.executable, *sys.argv, "--rank", str(r)]) for r in range(1, a.procs)] if a.rank == 0 else []
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=a.rank, world_size=a.procs)
    lead, bs = a.rank == 0, a.batch // a.procs
    torch.manual_seed(0)
    rng = random.Random(a.rank)
    tok = CLIPTokenizer.from_pretrained(path("model", "tokenizer"))
    vae = AutoencoderKL.from_pretrained(path("model", "vae")).eval()
    unet, text = load_or_make(a.resume)
    unet.to(memory_format=torch.channels_last)
    if lead:
        print(f"unet {unet.num_parameters() / 1e6:.2f} M, text {text.num_parameters() / 1e6:.2f} M, vae {vae.num_parameters() / 1e6:.2f} M")

    with open(path("data", "captions.json")) as f:
        data = json.load(f)
    base, caps = load_pixels("base.npz")[data["core"]], [c for c, k in zip(data["captions"], data["core"]) if k]
    with torch.no_grad():
        dists = [vae.encode(to_float(base[i:i + 128])).latent_dist for i in range(0, len(base), 128)]
        mean, std = (torch.cat([getattr(d, k) for d in dists]) * vae.config.scaling_factor for k in ("mean", "std"))
    if lead:
        print("latents", tuple(mean.shape), "mean", mean.mean((0, 2, 3)).tolist(), "std", mean.std((0, 2, 3)).tolist(), "noise", std.mean().item())
    enc = lambda s: torch.tensor(tok(s, padding="max_length", truncation=True).input_ids)
    ids, empty = [[enc(s) for s in c] for c in caps], enc("")

    def caption(i):
        r = rng.random()
        if r < 0.10:
            return empty
        if r < 0.16:      # made-up style words, so that a trigger word in front does not upset the base model
            word = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(2, 5)))
            return enc(f"{word} style, {caps[i][1]}" if rng.random() < 0.6 else f"{word} {caps[i][0]}")
        return rng.choice(ids[i])

    popularity = torch.tensor([a.popular if n in POPULAR else 1.0 for n, k in zip(data["names"], data["core"]) if k])
    model = torch.nn.ModuleDict({"unet": unet, "text": text}).train()
    params = list(model.parameters())
    if lead:
        print(int((popularity > 1).sum()), "popular of", len(popularity))
    ema = Ema(model, 0.998)
    patch(unet)                                  # fast CPU GroupNorm and attention for the trained copy; same results
    unet.set_attn_processor(FastAttn())
    opt = torch.optim.AdamW([{"params": unet.parameters(), "peak": a.lr}, {"params": text.parameters(), "peak": a.text_lr}],
                            betas=(0.9, 0.99), weight_decay=1e-3, fused=True)
    acp = DDIMScheduler(**SCHED).alphas_cumprod
    snr = acp / (1 - acp)
    weight = snr.clamp(max=5) / snr

    def loss_fn(x, noise, t, tokens):
        a_t = acp[t].view(-1, 1, 1, 1)
        noisy = a_t.sqrt() * x + (1 - a_t).sqrt() * noise
        with torch.autocast("cpu", torch.bfloat16):
            pred = unet(noisy, t, encoder_hidden_states=text(tokens).last_hidden_state).sample.float()
        return ((pred - noise).square().mean((1, 2, 3)) * weight[t]).mean()

    def save(show):
        ema.model["unet"].save_pretrained(path("model", "unet"))
        ema.model["text"].save_pretrained(path("model", "text_encoder"))
        if show:
            pics = sample(ema.model["unet"], ema.model["text"], tok, vae, PROMPTS)
            grid(list(pics), 8, path("model", f"preview_{step:06d}.png"))

    # one shared-memory gradient buffer per process; the last two numbers carry rank 0's clock and everyone's loss
    size = sum(p.numel() for p in params) + 2
    shared = [torch.from_file(f"/dev/shm/tiny-emoji-grad-{r}", shared=True, size=2 * size).view(2, size) for r in range(a.procs)]
    torch.manual_seed(a.rank)
    clock, step, seen, avg, shown, progress = Clock(a.minutes), 0, 0, None, 0, 0.0
    dist.barrier()
    while progress < 1:
        i = torch.multinomial(popularity, bs, replacement=True)
        x = (mean[i] + std[i] * torch.randn(bs, 4, 16, 16)).contiguous(memory_format=torch.channels_last)
        # timesteps stratified over the whole batch: lower-variance loss
        t = ((torch.arange(bs) * a.procs + a.rank + torch.rand(bs)) * (1000 / (bs * a.procs))).long().clamp(max=999)
        tokens = torch.stack([caption(j) for j in i.tolist()])
        loss = loss_fn(x, torch.randn_like(x), t, tokens)
        loss.backward()
        mine = shared[a.rank][step % 2]
        torch.cat([p.grad.reshape(-1) for p in params] + [torch.tensor([clock.progress if lead else 0.0, loss.item()])], out=mine)
        dist.barrier()
        total = torch.stack([s[step % 2] for s in shared]).sum(0) if a.procs > 2 else shared[0][step % 2] + shared[-1][step % 2] * (a.procs - 1)
        progress, mean_loss = total[-2].item(), total[-1].item() / a.procs
        total /= a.procs
        total *= min(1.0, 1.0 / (total[:-2].norm().item() + 1e-6))               # clip to norm 1
        for p, g in zip(params, total[:-2].split([p.numel() for p in params])):
            p.grad = g.view_as(p)
        for g in opt.param_groups:
            g["lr"] = clock.lr(g["peak"], p=progress)
        opt.step()
        opt.zero_grad(set_to_none=True)
        if lead:
            ema.update()
        step, seen = step + 1, seen + bs * a.procs
        avg = mean_loss if avg is None else 0.99 * avg + 0.01 * mean_loss
        if not lead:
            continue
        if step % 100 == 0 or step in (1, 3, 10, 30):
            log("unet_log.jsonl", step=step, sec=round(clock.seconds), rate=seen / clock.seconds, loss=avg, lr=opt.param_groups[0]["lr"])
        if clock.seconds - shown > a.preview * 60:
            shown = clock.seconds
            save(True)
    if lead:
        torch.set_num_threads(a.procs)
        save(True)
        log("unet_log.jsonl", done=True, steps=step, images=seen, loss=avg, sec=round(clock.seconds))
        for w in workers:
            w.wait()
        for r in range(a.procs):
            os.remove(f"/dev/shm/tiny-emoji-grad-{r}")


if __name__ == "__main__":
    main()
