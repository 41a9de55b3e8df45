//! THE table of names: ours (diffusers') | the original checkpoint's | what it is.
//!
//! `place` rows say where a group of layers sits; `group` rows say how the layers inside are called. To support another name,
//! add a row; no code has to change.

/// What a module is; decides which tensors it has and whether a LoRA can sit on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Scale and shift, `weight` and `bias`.
    Norm,
    /// A matrix [O, I], with or without bias.
    Linear,
    /// A convolution [O, I, kh, kw] with bias; 1×1 ones may be stored as a matrix.
    Conv,
    /// A matrix that original files store as a 1×1 convolution.
    Pointwise,
    /// A lookup table, `weight` only.
    Embedding,
    /// No module: the name is the tensor's whole name.
    Bare,
    /// A third of a fused `in_proj_weight`/`in_proj_bias`: 0 = q, 1 = k, 2 = v.
    Third(u8),
}

pub(super) type Layer = (&'static str, &'static str, Role);

/// What sits at a place: one module, or a group of them.
pub(super) enum Holds {
    One(Role),
    Group(&'static [Layer]),
}

pub(super) type Place = (&'static str, &'static str, Holds);

use Holds::{Group, One};
use Role::{Bare, Conv, Embedding, Linear, Norm, Pointwise, Third};

const RESNET: &[Layer] = &[
    ("norm1", "in_layers.0", Norm),
    ("conv1", "in_layers.2", Conv),
    ("time_emb_proj", "emb_layers.1", Linear),
    ("norm2", "out_layers.0", Norm),
    ("conv2", "out_layers.3", Conv),
    ("conv_shortcut", "skip_connection", Conv),
];

/// The same names in both layouts. `proj_in` and `proj_out` are convolutions in SD 1 and matrices in SD 2.
const TRANSFORMER: &[Layer] = &[
    ("norm", "norm", Norm),
    ("proj_in", "proj_in", Conv),
    ("transformer_blocks.{k}.norm1", "transformer_blocks.{k}.norm1", Norm),
    ("transformer_blocks.{k}.attn1.to_q", "transformer_blocks.{k}.attn1.to_q", Linear),
    ("transformer_blocks.{k}.attn1.to_k", "transformer_blocks.{k}.attn1.to_k", Linear),
    ("transformer_blocks.{k}.attn1.to_v", "transformer_blocks.{k}.attn1.to_v", Linear),
    ("transformer_blocks.{k}.attn1.to_out.0", "transformer_blocks.{k}.attn1.to_out.0", Linear),
    ("transformer_blocks.{k}.norm2", "transformer_blocks.{k}.norm2", Norm),
    ("transformer_blocks.{k}.attn2.to_q", "transformer_blocks.{k}.attn2.to_q", Linear),
    ("transformer_blocks.{k}.attn2.to_k", "transformer_blocks.{k}.attn2.to_k", Linear),
    ("transformer_blocks.{k}.attn2.to_v", "transformer_blocks.{k}.attn2.to_v", Linear),
    ("transformer_blocks.{k}.attn2.to_out.0", "transformer_blocks.{k}.attn2.to_out.0", Linear),
    ("transformer_blocks.{k}.norm3", "transformer_blocks.{k}.norm3", Norm),
    ("transformer_blocks.{k}.ff.net.0.proj", "transformer_blocks.{k}.ff.net.0.proj", Linear),
    ("transformer_blocks.{k}.ff.net.2", "transformer_blocks.{k}.ff.net.2", Linear),
    ("proj_out", "proj_out", Conv),
];

pub(super) const UNET: &[Place] = &[
    ("unet.time_embedding.linear_1", "model.diffusion_model.time_embed.0", One(Linear)),
    ("unet.time_embedding.linear_2", "model.diffusion_model.time_embed.2", One(Linear)),
    ("unet.conv_in", "model.diffusion_model.input_blocks.0.0", One(Conv)),
    ("unet.down_blocks.{i}.resnets.{j}", "model.diffusion_model.input_blocks.{in}.0", Group(RESNET)),
    ("unet.down_blocks.{i}.attentions.{j}", "model.diffusion_model.input_blocks.{in}.1", Group(TRANSFORMER)),
    ("unet.down_blocks.{i}.downsamplers.0.conv", "model.diffusion_model.input_blocks.{down}.0.op", One(Conv)),
    ("unet.mid_block.resnets.0", "model.diffusion_model.middle_block.0", Group(RESNET)),
    ("unet.mid_block.attentions.0", "model.diffusion_model.middle_block.1", Group(TRANSFORMER)),
    ("unet.mid_block.resnets.1", "model.diffusion_model.middle_block.2", Group(RESNET)),
    ("unet.up_blocks.{i}.resnets.{j}", "model.diffusion_model.output_blocks.{out}.0", Group(RESNET)),
    ("unet.up_blocks.{i}.attentions.{j}", "model.diffusion_model.output_blocks.{out}.1", Group(TRANSFORMER)),
    ("unet.up_blocks.{i}.upsamplers.0.conv", "model.diffusion_model.output_blocks.{up}.{slot}.conv", One(Conv)),
    ("unet.conv_norm_out", "model.diffusion_model.out.0", One(Norm)),
    ("unet.conv_out", "model.diffusion_model.out.2", One(Conv)),
];

const VAE_RESNET: &[Layer] = &[
    ("norm1", "norm1", Norm),
    ("conv1", "conv1", Conv),
    ("norm2", "norm2", Norm),
    ("conv2", "conv2", Conv),
    ("conv_shortcut", "nin_shortcut", Conv),
];

const VAE_ATTENTION: &[Layer] = &[
    ("group_norm", "norm", Norm),
    ("to_q", "q", Pointwise),
    ("to_k", "k", Pointwise),
    ("to_v", "v", Pointwise),
    ("to_out.0", "proj_out", Pointwise),
];

pub(super) const VAE: &[Place] = &[
    ("vae.encoder.conv_in", "first_stage_model.encoder.conv_in", One(Conv)),
    ("vae.encoder.down_blocks.{i}.resnets.{j}", "first_stage_model.encoder.down.{i}.block.{j}", Group(VAE_RESNET)),
    ("vae.encoder.down_blocks.{i}.downsamplers.0.conv", "first_stage_model.encoder.down.{i}.downsample.conv", One(Conv)),
    ("vae.encoder.mid_block.resnets.0", "first_stage_model.encoder.mid.block_1", Group(VAE_RESNET)),
    ("vae.encoder.mid_block.attentions.0", "first_stage_model.encoder.mid.attn_1", Group(VAE_ATTENTION)),
    ("vae.encoder.mid_block.resnets.1", "first_stage_model.encoder.mid.block_2", Group(VAE_RESNET)),
    ("vae.encoder.conv_norm_out", "first_stage_model.encoder.norm_out", One(Norm)),
    ("vae.encoder.conv_out", "first_stage_model.encoder.conv_out", One(Conv)),
    ("vae.quant_conv", "first_stage_model.quant_conv", One(Conv)),
    ("vae.post_quant_conv", "first_stage_model.post_quant_conv", One(Conv)),
    ("vae.decoder.conv_in", "first_stage_model.decoder.conv_in", One(Conv)),
    ("vae.decoder.mid_block.resnets.0", "first_stage_model.decoder.mid.block_1", Group(VAE_RESNET)),
    ("vae.decoder.mid_block.attentions.0", "first_stage_model.decoder.mid.attn_1", Group(VAE_ATTENTION)),
    ("vae.decoder.mid_block.resnets.1", "first_stage_model.decoder.mid.block_2", Group(VAE_RESNET)),
    ("vae.decoder.up_blocks.{i}.resnets.{j}", "first_stage_model.decoder.up.{rev}.block.{j}", Group(VAE_RESNET)),
    ("vae.decoder.up_blocks.{i}.upsamplers.0.conv", "first_stage_model.decoder.up.{rev}.upsample.conv", One(Conv)),
    ("vae.decoder.conv_norm_out", "first_stage_model.decoder.norm_out", One(Norm)),
    ("vae.decoder.conv_out", "first_stage_model.decoder.conv_out", One(Conv)),
];

/// CLIP as transformers names it; SD 1 files keep these names.
const CLIP_LAYER: &[Layer] = &[
    ("layer_norm1", "layer_norm1", Norm),
    ("self_attn.q_proj", "self_attn.q_proj", Linear),
    ("self_attn.k_proj", "self_attn.k_proj", Linear),
    ("self_attn.v_proj", "self_attn.v_proj", Linear),
    ("self_attn.out_proj", "self_attn.out_proj", Linear),
    ("layer_norm2", "layer_norm2", Norm),
    ("mlp.fc1", "mlp.fc1", Linear),
    ("mlp.fc2", "mlp.fc2", Linear),
];

pub(super) const CLIP: &[Place] = &[
    (
        "text_encoder.text_model.embeddings.token_embedding",
        "cond_stage_model.transformer.text_model.embeddings.token_embedding",
        One(Embedding),
    ),
    (
        "text_encoder.text_model.embeddings.position_embedding",
        "cond_stage_model.transformer.text_model.embeddings.position_embedding",
        One(Embedding),
    ),
    ("text_encoder.text_model.encoder.layers.{i}", "cond_stage_model.transformer.text_model.encoder.layers.{i}", Group(CLIP_LAYER)),
    ("text_encoder.text_model.final_layer_norm", "cond_stage_model.transformer.text_model.final_layer_norm", One(Norm)),
];

/// Where OpenCLIP's layers are; the number follows.
pub(super) const OPEN_CLIP_LAYER: &str = "cond_stage_model.model.transformer.resblocks.";

const OPEN_CLIP_BLOCK: &[Layer] = &[
    ("layer_norm1", "ln_1", Norm),
    ("self_attn.q_proj", "attn.in_proj", Third(0)),
    ("self_attn.k_proj", "attn.in_proj", Third(1)),
    ("self_attn.v_proj", "attn.in_proj", Third(2)),
    ("self_attn.out_proj", "attn.out_proj", Linear),
    ("layer_norm2", "ln_2", Norm),
    ("mlp.fc1", "mlp.c_fc", Linear),
    ("mlp.fc2", "mlp.c_proj", Linear),
];

/// OpenCLIP, as SD 2 files have it.
pub(super) const OPEN_CLIP: &[Place] = &[
    ("text_encoder.text_model.embeddings.token_embedding", "cond_stage_model.model.token_embedding", One(Embedding)),
    ("text_encoder.text_model.embeddings.position_embedding.weight", "cond_stage_model.model.positional_embedding", One(Bare)),
    ("text_encoder.text_model.encoder.layers.{i}", "cond_stage_model.model.transformer.resblocks.{i}", Group(OPEN_CLIP_BLOCK)),
    ("text_encoder.text_model.final_layer_norm", "cond_stage_model.model.ln_final", One(Norm)),
];

/// Names of VAE attention in diffusers files written before 0.18.
const VAE_ATTENTION_BEFORE_2023: &[Layer] =
    &[("to_q", "query", Pointwise), ("to_k", "key", Pointwise), ("to_v", "value", Pointwise), ("to_out.0", "proj_attn", Pointwise)];

/// Further names in diffusers folders: ours | file.
pub(super) const DIFFUSERS_OLD: &[Place] = &[
    ("vae.encoder.mid_block.attentions.0", "vae.encoder.mid_block.attentions.0", Group(VAE_ATTENTION_BEFORE_2023)),
    ("vae.decoder.mid_block.attentions.0", "vae.decoder.mid_block.attentions.0", Group(VAE_ATTENTION_BEFORE_2023)),
];

/// Prefixes that some programs leave out: (with, without).
pub(super) const SHORTENED: &[(&str, &str)] =
    &[("text_encoder.text_model.", "text_encoder."), ("cond_stage_model.transformer.text_model.", "cond_stage_model.transformer.")];

/// Keys that belong in a checkpoint and not in a model that is trained or sampled.
pub(super) fn is_ignored(key: &str) -> bool {
    const STARTS: &[&str] = &[
        "model_ema.",
        "first_stage_model.loss.",
        "embedding_manager.",
        "cond_stage_model.model.visual.",
        "betas",
        "alphas_cumprod",
        "sqrt_",
        "log_one_minus_",
        "posterior_",
    ];
    const WHOLE: &[&str] = &[
        "global_step",
        "logvar",
        "scale_factor",
        "v_pred",
        "ztsnr",
        "lvlb_weights",
        "cond_stage_model.model.text_projection",
        "cond_stage_model.model.logit_scale",
        "cond_stage_model.model.attn_mask",
        "cond_stage_model.logit_scale",
        "cond_stage_model.text_projection",
        "text_encoder.text_projection.weight",
        "text_encoder.logit_scale",
        "first_stage_model.logvar",
    ];
    STARTS.iter().any(|start| key.starts_with(start)) || WHOLE.contains(&key) || key.ends_with("embeddings.position_ids")
}
