//! Sizes of an autoencoder: from `vae/config.json`, or from tensor shapes.

use crate::json::{Fields, MOST_LAYERS};
use crate::shapes::Shapes;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

const FILE: &str = "vae/config.json";

/// The factor of Stable Diffusion 1 and 2, where a config or single file doesn't say.
const SCALING: f32 = 0.18215;

#[derive(Clone, Debug, PartialEq)]
pub struct VaeConfig {
    pub in_channels: usize,
    pub out_channels: usize,
    pub latent_channels: usize,
    /// One for each resolution, fine to coarse.
    pub block_out_channels: Vec<usize>,
    pub layers_per_block: usize,
    pub norm_groups: usize,
    pub mid_attention: bool,
    pub quant_conv: bool,
    pub post_quant_conv: bool,
    /// The UNet's latents are (z − shift_factor) · scaling_factor.
    pub scaling_factor: f32,
    pub shift_factor: f32,
    /// Keys of the config that this version does not know: worth a warning.
    pub unknown_keys: Vec<String>,
}

impl VaeConfig {
    /// Pixels along one side of a latent pixel.
    pub fn factor(&self) -> usize {
        1 << (self.block_out_channels.len() - 1)
    }

    /// From diffusers' config of an `AutoencoderKL`.
    pub fn from_json(json: &Value) -> Result<VaeConfig> {
        let fields = Fields::new(FILE, json)?;
        let block_out_channels = fields.sizes("block_out_channels")?.with_context(|| format!("{FILE} lacks the key block_out_channels"))?;
        fields.only("act_fn", &[json!("silu"), json!("swish")])?;
        fields.only("latents_mean", &[])?;
        fields.only("latents_std", &[])?;
        for (key, block) in [("down_block_types", "DownEncoderBlock2D"), ("up_block_types", "UpDecoderBlock2D")] {
            fields.only(key, &[json!(vec![block; block_out_channels.len()])])?;
        }
        fields.ignored("sample_size");
        fields.ignored("force_upcast");
        let config = VaeConfig {
            in_channels: fields.size("in_channels")?.unwrap_or(3),
            out_channels: fields.size("out_channels")?.unwrap_or(3),
            latent_channels: fields.size("latent_channels")?.unwrap_or(4),
            layers_per_block: fields.size("layers_per_block")?.unwrap_or(1),
            norm_groups: fields.size("norm_num_groups")?.unwrap_or(32),
            mid_attention: fields.flag("mid_block_add_attention")?.unwrap_or(true),
            quant_conv: fields.flag("use_quant_conv")?.unwrap_or(true),
            post_quant_conv: fields.flag("use_post_quant_conv")?.unwrap_or(true),
            scaling_factor: fields.number("scaling_factor")?.unwrap_or(SCALING),
            shift_factor: fields.number("shift_factor")?.unwrap_or(0.0),
            unknown_keys: fields.unknown(),
            block_out_channels,
        };
        config.check().context(FILE)?;
        Ok(config)
    }

    /// From tensor shapes. What they don't tell: 32 groups of normalisation, scaling factor 0.18215.
    pub fn from_shapes(shapes: &Shapes) -> Result<VaeConfig> {
        let first_conv = |i: usize| format!("vae.encoder.down_blocks.{i}.resnets.0.conv1.weight");
        let blocks = shapes.count(first_conv);
        let config = VaeConfig {
            in_channels: shapes.dim("vae.encoder.conv_in.weight", 1)?,
            out_channels: shapes.dim("vae.decoder.conv_out.weight", 0)?,
            latent_channels: shapes.dim("vae.decoder.conv_in.weight", 1)?,
            block_out_channels: (0..blocks).map(|i| shapes.dim(&first_conv(i), 0)).collect::<Result<_>>()?,
            layers_per_block: shapes.count(|j| format!("vae.encoder.down_blocks.0.resnets.{j}.conv1.weight")),
            norm_groups: 32,
            mid_attention: shapes.has("vae.encoder.mid_block.attentions.0.to_q.weight"),
            quant_conv: shapes.has("vae.quant_conv.weight"),
            post_quant_conv: shapes.has("vae.post_quant_conv.weight"),
            scaling_factor: SCALING,
            shift_factor: 0.0,
            unknown_keys: Vec::new(),
        };
        config.check().with_context(|| format!("{}: the VAE's groups can't be told from its tensors", shapes.source()))?;
        Ok(config)
    }

    fn check(&self) -> Result<()> {
        ensure!(!self.block_out_channels.is_empty(), "block_out_channels is empty");
        ensure!(self.layers_per_block <= MOST_LAYERS, "{} layers in a block are more than any autoencoder has", self.layers_per_block);
        ensure!(self.block_out_channels.len() <= 8, "{} resolutions are more than any autoencoder has", self.block_out_channels.len());
        for channels in &self.block_out_channels {
            ensure!(channels % self.norm_groups == 0, "{channels} channels don't divide into {} groups of normalisation", self.norm_groups);
        }
        ensure!(
            self.scaling_factor.is_finite() && self.scaling_factor > 0.0,
            "scaling_factor is {}, but must be above 0",
            self.scaling_factor
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_configs_without_a_scaling_factor_get_the_one_of_stable_diffusion() {
        let config = json!({
            "act_fn": "silu", "block_out_channels": [128, 256, 512, 512], "layers_per_block": 2, "sample_size": 512,
            "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D"],
            "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D"]
        });
        let config = VaeConfig::from_json(&config).unwrap();
        assert_eq!((config.scaling_factor, config.shift_factor, config.factor(), config.latent_channels), (0.18215, 0.0, 8, 4));
        assert!(config.mid_attention && config.quant_conv && config.unknown_keys.is_empty());
    }

    #[test]
    fn other_blocks_are_refused_by_their_key() {
        let config = json!({"block_out_channels": [32], "down_block_types": ["AttnDownEncoderBlock2D"]});
        assert!(VaeConfig::from_json(&config).unwrap_err().to_string().contains("down_block_types"));
    }
}
