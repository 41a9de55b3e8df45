"""Writes crates/weights/tests/key_lists/{sd15,sd21}.txt: names and shapes of the real single-file checkpoints of
Stable Diffusion 1.5 and 2.1, each line with what the diffusers layout calls the same tensor.

    <original name> <shape> = <canonical name> <shape> [+ <canonical name> <shape> ...]
    <original name> <shape> = -                          (in the file, not in the model)

The names come from the architectures as diffusers and transformers define them (on torch's meta device: no weights), the way
to the original layout is written out below, and diffusers' own converter must lead back from it to exactly the same names and
shapes. Run with torch, diffusers and transformers installed: python tools/golden/key_lists.py"""
import os
import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from diffusers.loaders import single_file_utils as convert
from transformers import CLIPTextConfig, CLIPTextModel

OUT = os.path.join(os.path.dirname(__file__), "..", "..", "crates", "weights", "tests", "key_lists")
UNET = dict(sample_size=64, in_channels=4, out_channels=4, layers_per_block=2, block_out_channels=(320, 640, 1280, 1280),
            down_block_types=("CrossAttnDownBlock2D",) * 3 + ("DownBlock2D",), up_block_types=("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 3)
VAE = dict(in_channels=3, out_channels=3, latent_channels=4, layers_per_block=2, block_out_channels=(128, 256, 512, 512), sample_size=512,
           down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4)
MODELS = {
    "sd15": dict(unet=dict(UNET, cross_attention_dim=768, attention_head_dim=8),
                 text=dict(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, vocab_size=49408)),
    "sd21": dict(unet=dict(UNET, cross_attention_dim=1024, attention_head_dim=[5, 10, 20, 20], use_linear_projection=True, sample_size=96),
                 text=dict(hidden_size=1024, intermediate_size=4096, num_hidden_layers=23, num_attention_heads=16, vocab_size=49408,
                           hidden_act="gelu", projection_dim=512)),
}
RESNET = {"norm1": "in_layers.0", "conv1": "in_layers.2", "time_emb_proj": "emb_layers.1", "norm2": "out_layers.0", "conv2": "out_layers.3",
          "conv_shortcut": "skip_connection"}
ATTENTION = {"group_norm": "norm", "to_q": "q", "to_k": "k", "to_v": "v", "to_out": "proj_out"}
OPENCLIP = {"layer_norm1": "ln_1", "layer_norm2": "ln_2", "fc1": "mlp.c_fc", "fc2": "mlp.c_proj", "out_proj": "attn.out_proj"}


def unet_name(key, attention_up):
    p = key.split(".")
    if p[0] in ("down_blocks", "up_blocks"):
        i, kind, j = int(p[1]), p[2], int(p[3])
        if kind == "downsamplers":
            place = f"input_blocks.{3 * (i + 1)}.0.op"
        elif kind == "upsamplers":
            place = f"output_blocks.{3 * i + 2}.{2 if i in attention_up else 1}.conv"
        else:
            n, side = (1 + 3 * i + j, "input_blocks") if p[0] == "down_blocks" else (3 * i + j, "output_blocks")
            place = f"{side}.{n}.{0 if kind == 'resnets' else 1}"
        rest = p[5:] if kind.endswith("samplers") else ([RESNET[p[4]]] + p[5:] if kind == "resnets" else p[4:])
    elif p[0] == "mid_block":
        place = "middle_block." + {"resnets0": "0", "attentions0": "1", "resnets1": "2"}[p[1] + p[2]]
        rest = [RESNET[p[3]]] + p[4:] if p[1] == "resnets" else p[3:]
    else:
        place, rest = {"time_embedding": ("time_embed." + ("0" if "linear_1" in key else "2"), p[2:]), "conv_in": ("input_blocks.0.0", p[1:]),
                       "conv_norm_out": ("out.0", p[1:]), "conv_out": ("out.2", p[1:])}[p[0]]
    return ".".join(["model.diffusion_model", place] + rest)


def vae_name(key):
    p = key.split(".")
    if p[0] in ("quant_conv", "post_quant_conv") or p[1] in ("conv_in", "conv_out"):
        return "first_stage_model." + key
    if p[1] == "conv_norm_out":
        return f"first_stage_model.{p[0]}.norm_out.{p[2]}"
    shortcut = lambda name: "nin_shortcut" if name == "conv_shortcut" else name
    if p[1] == "mid_block":
        if p[2] == "resnets":
            return f"first_stage_model.{p[0]}.mid.block_{int(p[3]) + 1}.{shortcut(p[4])}.{p[5]}"
        return f"first_stage_model.{p[0]}.mid.attn_1.{ATTENTION[p[4]]}.{p[-1]}"
    side, level = ("down", int(p[2])) if p[0] == "encoder" else ("up", 3 - int(p[2]))
    if p[3] == "resnets":
        return f"first_stage_model.{p[0]}.{side}.{level}.block.{p[4]}.{shortcut(p[5])}.{p[6]}"
    return f"first_stage_model.{p[0]}.{side}.{level}.{side}sample.conv.{p[-1]}"


def text_rows(state, open_clip):
    """Yields (original name, shape, [canonical names])."""
    if not open_clip:
        for key, shape in state.items():
            yield "cond_stage_model.transformer." + key, shape, [key]
        return
    start = "cond_stage_model.model."
    for key, shape in state.items():
        p = key.split(".")
        if "token_embedding" in key:
            yield start + "token_embedding.weight", shape, [key]
        elif "position_embedding" in key:
            yield start + "positional_embedding", shape, [key]
        elif "final_layer_norm" in key:
            yield start + "ln_final." + p[-1], shape, [key]
        elif p[-2] == "q_proj":
            fused = [key.replace("q_proj", part) for part in ("q_proj", "k_proj", "v_proj")]
            yield f"{start}transformer.resblocks.{p[3]}.attn.in_proj_{p[-1]}", [3 * shape[0]] + shape[1:], fused
        elif p[-2] not in ("k_proj", "v_proj"):
            yield f"{start}transformer.resblocks.{p[3]}.{OPENCLIP[p[-2]]}.{p[-1]}", shape, [key]


def extras(open_clip, width):
    """What the real files hold besides the model: the schedule's buffers, and OpenCLIP's unused last block and heads."""
    for name in ("betas", "alphas_cumprod", "alphas_cumprod_prev", "sqrt_alphas_cumprod", "sqrt_one_minus_alphas_cumprod",
                 "log_one_minus_alphas_cumprod", "sqrt_recip_alphas_cumprod", "sqrt_recipm1_alphas_cumprod", "posterior_variance",
                 "posterior_log_variance_clipped", "posterior_mean_coef1", "posterior_mean_coef2"):
        yield name, [1000]
    if not open_clip:
        yield "cond_stage_model.transformer.text_model.embeddings.position_ids", [1, 77]
        yield "model_ema.decay", []
        yield "model_ema.diffusion_modelinput_blocks00weight", [320, 4, 3, 3]
        return
    yield "cond_stage_model.model.logit_scale", []
    yield "cond_stage_model.model.text_projection", [width, width]
    last = "cond_stage_model.model.transformer.resblocks.23."
    for name, shape in (("ln_1", [width]), ("ln_2", [width]), ("attn.out_proj", [width, width]), ("mlp.c_fc", [4 * width, width]),
                        ("mlp.c_proj", [width, 4 * width])):
        yield last + name + ".weight", shape
        yield last + name + ".bias", shape[:1]
    yield last + "attn.in_proj_weight", [3 * width, width]
    yield last + "attn.in_proj_bias", [3 * width]


def shapes(model):
    return {k: list(v.shape) for k, v in model.state_dict().items() if v.is_floating_point()}


def check(original, unet, vae, text, unet_model, vae_model, config):
    """diffusers' converter must find its own names in the original layout."""
    meta = {k: torch.empty(s, device="meta") for k, s in original.items()}
    same = lambda new, old, what: sorted((k, list(v.shape)) for k, v in new.items()) == sorted(old.items()) or exit(f"{what}: names differ")
    same(convert.convert_ldm_unet_checkpoint(dict(meta), config=dict(unet_model.config)), unet, "unet")
    new = convert.convert_ldm_vae_checkpoint(dict(meta), config=dict(vae_model.config))
    same({k: v.squeeze() if ".attentions." in k and v.ndim == 4 else v for k, v in new.items()}, vae, "vae")
    if config["text"]["num_hidden_layers"] == 12:
        new = convert.convert_ldm_clip_checkpoint(dict(meta))
        same({k: v for k, v in new.items() if "position_ids" not in k}, text, "text encoder")


def main():
    dims = lambda shape: "x".join(map(str, shape)) or "scalar"
    for name, config in MODELS.items():
        with torch.device("meta"):
            unet_model, vae_model = UNet2DConditionModel(**config["unet"]), AutoencoderKL(**VAE)
            text_model = CLIPTextModel(CLIPTextConfig(max_position_embeddings=77, **config["text"]))
        unet, vae = shapes(unet_model), shapes(vae_model)
        text = {("" if k.startswith("text_model.") else "text_model.") + k: s for k, s in shapes(text_model).items()}
        open_clip = name == "sd21"
        up = {int(k.split(".")[1]) for k in unet if k.startswith("up_blocks.") and ".attentions." in k}
        rows = [(unet_name(k, up), s, ["unet." + k], s) for k, s in unet.items()]
        for key, s in vae.items():
            rows.append((vae_name(key), s + [1, 1] if ".attentions." in key and len(s) == 2 else s, ["vae." + key], s))
        rows += [(k, s, ["text_encoder." + c for c in ours], text[ours[0]]) for k, s, ours in text_rows(text, open_clip)]
        check({k: s for k, s, _, _ in rows}, unet, vae, text, unet_model, vae_model, config)
        lines = [f"{k} {dims(s)} = " + " + ".join(f"{c} {dims(cs)}" for c in ours) for k, s, ours, cs in rows]
        lines += [f"{k} {dims(s)} = -" for k, s in extras(open_clip, config["text"]["hidden_size"])]
        assert sum(len(ours) for _, _, ours, _ in rows) == len(unet) + len(vae) + len(text)
        os.makedirs(OUT, exist_ok=True)
        with open(os.path.join(OUT, name + ".txt"), "w") as f:
            f.write(f"# {name}: original layout = diffusers layout; written by tools/golden/key_lists.py\n" + "\n".join(sorted(lines)) + "\n")
        print(name, len(rows), "model tensors,", len(lines) - len(rows), "others")


if __name__ == "__main__":
    main()
