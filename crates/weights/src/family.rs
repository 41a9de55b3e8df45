//! What kind of model a file is, recognised from its keys and shapes: never from its name.

use crate::safetensors::TensorInfo;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Stable Diffusion 1.x: CLIP text encoder, convolutional `proj_in`.
    Sd1,
    /// Stable Diffusion 2.x: OpenCLIP text encoder, linear `proj_in`.
    Sd2,
    Sdxl,
    Sd3,
    Flux,
    /// An SD UNet with more input channels than the four of the latents (inpainting, depth, edit, upscaling).
    Conditioned,
    ControlNet,
    MotionModule,
    Lora,
    /// LoHa, LoKr and other adapters that aren't LoRA.
    OtherAdapter,
    TextualInversion,
    Vae,
    TextEncoder,
    Unet,
    Unknown,
}

impl Family {
    /// With its article, for sentences.
    pub fn describe(self) -> &'static str {
        match self {
            Family::Sd1 => "an SD 1.x checkpoint",
            Family::Sd2 => "an SD 2.x checkpoint",
            Family::Sdxl => "an SDXL checkpoint",
            Family::Sd3 => "an SD 3 checkpoint",
            Family::Flux => "a FLUX checkpoint",
            Family::Conditioned => {
                "an inpainting, depth, edit, upscaling or unCLIP checkpoint (its UNet takes more than latents, time and text)"
            }
            Family::ControlNet => "a ControlNet",
            Family::MotionModule => "a motion module for video",
            Family::Lora => "a LoRA, not a base model",
            Family::OtherAdapter => "an adapter (LoHa, LoKr, DoRA or similar), not a base model",
            Family::TextualInversion => "a textual-inversion embedding, not a base model",
            Family::Vae => "a VAE alone, without UNet and text encoder",
            Family::TextEncoder => "a text encoder alone, without UNet and VAE",
            Family::Unet => "a UNet alone, without VAE and text encoder",
            Family::Unknown => "a safetensors file whose keys belong to no model known here",
        }
    }

    /// Whether this version trains it.
    pub fn is_supported(self) -> bool {
        matches!(self, Family::Sd1 | Family::Sd2)
    }

    /// `ss_base_model_version`, as sd-scripts writes it.
    pub fn version_string(self, v_prediction: bool) -> Option<&'static str> {
        match (self, v_prediction) {
            (Family::Sd1, false) => Some("sd_v1"),
            (Family::Sd1, true) => Some("sd_v1_v"),
            (Family::Sd2, false) => Some("sd_v2"),
            (Family::Sd2, true) => Some("sd_v2_v"),
            _ => None,
        }
    }
}

/// Recognises a set of keys. Those of a diffusers folder have their component in front (`unet.`, `vae.`, `text_encoder.`).
pub fn recognise(keys: &BTreeMap<String, &TensorInfo>) -> Family {
    let any = |part: &str| keys.keys().any(|key| key.contains(part));
    let starts = |start: &str| keys.range(start.to_owned()..).next().is_some_and(|(key, _)| key.starts_with(start));
    if ["hada_w1", "lokr_w", "dora_scale", "lora_magnitude_vector", ".oft_", ".diff_b"].iter().any(|part| any(part)) {
        return Family::OtherAdapter;
    }
    if ["lora_down", "lora_A", "lora.down", "_lora.up", "lora_linear_layer"].iter().any(|part| any(part)) {
        return Family::Lora;
    }
    if any("double_blocks.") && any("single_blocks.") || any("single_transformer_blocks.") {
        return Family::Flux;
    }
    if any("joint_blocks.") || any("attn.add_q_proj") {
        return Family::Sd3;
    }
    if any("control_model.") || any("controlnet_") || any("input_hint_block") {
        return Family::ControlNet;
    }
    if any("motion_modules.") {
        return Family::MotionModule;
    }
    if any("label_emb.") && starts("cond_stage_model.") {
        return Family::Conditioned;
    }
    if starts("conditioner.embedders.") || any("label_emb.") || any("add_embedding.") || starts("text_encoder_2.") {
        return Family::Sdxl;
    }
    parts(keys, &starts)
}

/// Models of UNet, VAE and text encoder, and their parts.
fn parts(keys: &BTreeMap<String, &TensorInfo>, starts: &dyn Fn(&str) -> bool) -> Family {
    let unet = starts("model.diffusion_model.input_blocks.") || starts("unet.down_blocks.");
    let vae = starts("first_stage_model.") || starts("vae.");
    let text = starts("cond_stage_model.") || starts("text_encoder.");
    if unet && (vae || text) {
        return stable_diffusion(keys, starts);
    }
    if unet || starts("down_blocks.") || starts("input_blocks.") {
        return Family::Unet;
    }
    if vae || (starts("encoder.conv_in") && starts("decoder.conv_in")) {
        return Family::Vae;
    }
    if text || starts("text_model.") || starts("transformer.resblocks.") || (starts("encoder.layers.") && starts("embeddings.")) {
        return Family::TextEncoder;
    }
    let embedding = ["emb_params", "string_to_param", "clip_l", "clip_g"].iter().any(|key| keys.contains_key(*key));
    if embedding || (keys.len() == 1 && keys.values().all(|info| info.shape.rank() <= 2)) {
        Family::TextualInversion
    } else {
        Family::Unknown
    }
}

/// SD 1 or 2: by the text encoder's layout, else by the projections' rank, else by the width of the text that attention reads.
fn stable_diffusion(keys: &BTreeMap<String, &TensorInfo>, starts: &dyn Fn(&str) -> bool) -> Family {
    let shape = |end: &str| keys.iter().find(|(key, _)| key.ends_with(end)).map(|(_, info)| info.shape.dims());
    let input = keys.get("model.diffusion_model.input_blocks.0.0.weight").or_else(|| keys.get("unet.conv_in.weight"));
    if input.is_some_and(|info| info.shape.dims().get(1).is_some_and(|channels| *channels != 4)) {
        return Family::Conditioned;
    }
    if starts("cond_stage_model.model.") {
        return Family::Sd2;
    }
    if shape("attn2.to_k.weight").and_then(|dims| dims.get(1)) == Some(&2048) {
        return Family::Sdxl;
    }
    if starts("cond_stage_model.transformer.") {
        return Family::Sd1;
    }
    match shape(".proj_in.weight").map(<[usize]>::len) {
        Some(2) => Family::Sd2,
        _ => Family::Sd1,
    }
}
