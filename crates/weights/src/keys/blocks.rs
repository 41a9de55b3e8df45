//! The few facts about a model's shape that block numbers depend on, read off the key names.

use std::collections::BTreeSet;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// Residual blocks per resolution on the UNet's way down (one more on the way up).
    pub layers: usize,
    /// Resolutions of the VAE.
    pub vae_levels: usize,
    /// Up-blocks (diffusers numbering, coarse to fine) that have attention.
    pub up_attention: BTreeSet<usize>,
    /// Blocks of an OpenCLIP text encoder, the unused last one included; `None` for the CLIP layout.
    pub open_clip_layers: Option<usize>,
}

impl Blocks {
    /// From the keys of an original single-file checkpoint.
    pub fn of_original<'a>(keys: impl Iterator<Item = &'a str> + Clone) -> Blocks {
        let input = |key: &'a str| key.strip_prefix("model.diffusion_model.input_blocks.").and_then(split_number);
        let first_down = keys.clone().filter_map(input).filter(|(_, rest)| rest.starts_with("0.op.")).map(|(n, _)| n).min();
        let last_entry = keys.clone().filter_map(input).map(|(n, _)| n).max();
        let layers = match (first_down, last_entry) {
            (Some(n), _) => n.saturating_sub(1),
            (None, last) => last.unwrap_or(0),
        };
        let level = |key: &'a str| key.strip_prefix("first_stage_model.decoder.up.").and_then(split_number);
        let output = |key: &'a str| key.strip_prefix("model.diffusion_model.output_blocks.").and_then(split_number);
        let attention = keys.clone().filter_map(output).filter(|(_, rest)| rest.starts_with("1.norm.")).map(|(n, _)| n / (layers + 1));
        let text = |key: &'a str| key.strip_prefix(super::table::OPEN_CLIP_LAYER).and_then(split_number);
        Blocks {
            layers,
            vae_levels: keys.clone().filter_map(level).map(|(n, _)| n + 1).max().unwrap_or(0),
            up_attention: attention.collect(),
            open_clip_layers: keys.clone().filter_map(text).map(|(n, _)| n + 1).max(),
        }
    }

    /// From canonical names; the same facts, for the way back to the original layout.
    pub fn of_canonical<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Blocks {
        let numbers = |start: &'static str, part: &'static str| {
            let number = move |name: &'a str| name.strip_prefix(start).and_then(split_number);
            names.clone().filter_map(number).filter_map(move |(_, rest)| split_number(rest.strip_prefix(part)?).map(|(n, _)| n + 1)).max()
        };
        let after = |start: &'static str, part: &'static str| {
            let number = move |name: &'a str| name.strip_prefix(start).and_then(split_number);
            names.clone().filter_map(number).filter(move |(_, rest)| rest.starts_with(part)).map(|(n, _)| n)
        };
        Blocks {
            layers: numbers("unet.down_blocks.", "resnets.").unwrap_or(0),
            vae_levels: after("vae.decoder.up_blocks.", "").map(|n| n + 1).max().unwrap_or(0),
            up_attention: after("unet.up_blocks.", "attentions.").collect(),
            open_clip_layers: None,
        }
    }

    /// Where an `output_blocks` entry keeps its upsampler: behind the residual block and, if there is one, the attention.
    pub(super) fn upsampler_slot(&self, up_block: usize) -> usize {
        if self.up_attention.contains(&up_block) { 2 } else { 1 }
    }
}

/// `"12.rest"` → (12, "rest").
fn split_number(text: &str) -> Option<(usize, &str)> {
    let (number, rest) = text.split_once('.')?;
    let plain = (1..=4).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| number.parse().ok().map(|n| (n, rest))).flatten()
}
