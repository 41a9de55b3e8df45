//! Sizes of a UNet: from diffusers' `unet/config.json`; every value that would change the forward in a way that this version does not
//! know is refused by its key.

use crate::json::{Fields, MOST_LAYERS};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

const FILE: &str = "unet/config.json";

#[derive(Clone, Debug, PartialEq)]
pub struct UnetConfig {
    pub in_channels: usize,
    pub out_channels: usize,
    /// One for each resolution, fine to coarse; so are the lists below, unless they say otherwise.
    pub block_out_channels: Vec<usize>,
    pub layers_per_block: Vec<usize>,
    /// Attention heads.
    pub heads: Vec<usize>,
    /// Blocks of a transformer.
    pub transformer_depth: Vec<usize>,
    pub down_attention: Vec<bool>,
    /// Coarse to fine.
    pub up_attention: Vec<bool>,
    /// Channels of the text states.
    pub cross_attention_dim: usize,
    pub time_embedding_dim: usize,
    pub use_linear_projection: bool,
    pub norm_groups: usize,
    pub norm_eps: f32,
    pub flip_sin_to_cos: bool,
    pub freq_shift: f32,
    /// Keys of the config that this version does not know: worth a warning.
    pub unknown_keys: Vec<String>,
}

impl UnetConfig {
    /// Number of resolutions.
    pub fn blocks(&self) -> usize {
        self.block_out_channels.len()
    }

    /// From diffusers' config of a `UNet2DConditionModel`.
    pub fn from_json(json: &Value) -> Result<UnetConfig> {
        let fields = Fields::new(FILE, json)?;
        refuse_what_is_unsupported(&fields)?;
        let block_out_channels = fields.sizes("block_out_channels")?.with_context(|| format!("{FILE} lacks the key block_out_channels"))?;
        let blocks = block_out_channels.len();
        let per_block =
            |key, default: usize| Ok::<_, anyhow::Error>(fields.per_block(key, blocks)?.unwrap_or_else(|| vec![default; blocks]));
        let first = *block_out_channels.first().with_context(|| format!("{FILE}: block_out_channels is empty"))?;
        let config = UnetConfig {
            in_channels: fields.size("in_channels")?.unwrap_or(4),
            out_channels: fields.size("out_channels")?.unwrap_or(4),
            layers_per_block: per_block("layers_per_block", 2)?,
            // diffusers' name for the number of heads, kept since the first release.
            heads: per_block("attention_head_dim", 8)?,
            transformer_depth: per_block("transformer_layers_per_block", 1)?,
            down_attention: attention(&fields, "down_block_types", ["CrossAttnDownBlock2D", "DownBlock2D"], blocks)?,
            up_attention: attention(&fields, "up_block_types", ["CrossAttnUpBlock2D", "UpBlock2D"], blocks)?,
            cross_attention_dim: same_for_all(fields.per_block("cross_attention_dim", blocks)?)?,
            time_embedding_dim: fields.size("time_embedding_dim")?.unwrap_or(4 * first),
            use_linear_projection: fields.flag("use_linear_projection")?.unwrap_or(false),
            norm_groups: fields.size("norm_num_groups")?.unwrap_or(32),
            norm_eps: fields.number("norm_eps")?.unwrap_or(1e-5),
            flip_sin_to_cos: fields.flag("flip_sin_to_cos")?.unwrap_or(true),
            freq_shift: fields.number("freq_shift")?.unwrap_or(0.0),
            unknown_keys: fields.unknown(),
            block_out_channels,
        };
        config.check().context(FILE)?;
        Ok(config)
    }

    /// Refuses sizes that don't divide as the architecture needs.
    pub(super) fn check(&self) -> Result<()> {
        let uses_attention = |i: usize| self.down_attention[i] || self.up_attention[self.blocks() - 1 - i] || i + 1 == self.blocks();
        for (i, channels) in self.block_out_channels.iter().enumerate() {
            let (groups, heads) = (self.norm_groups, self.heads[i]);
            ensure!(channels % groups == 0, "{channels} channels of block {i} don't divide into {groups} groups of normalisation");
            ensure!(!uses_attention(i) || channels % heads == 0, "{channels} channels of block {i} don't divide into {heads} heads");
        }
        let layers = self.layers_per_block.iter().chain(&self.transformer_depth).max().copied().unwrap_or(0);
        ensure!(layers <= MOST_LAYERS && self.blocks() <= 16, "{} blocks of {layers} layers are more than any UNet has", self.blocks());
        ensure!(self.block_out_channels[0] >= 2, "{} channels are too few for the timestep's sinusoids", self.block_out_channels[0]);
        Ok(())
    }
}

fn refuse_what_is_unsupported(fields: &Fields) -> Result<()> {
    for key in [
        "addition_embed_type",
        "class_embed_type",
        "num_class_embeds",
        "encoder_hid_dim",
        "encoder_hid_dim_type",
        "mid_block_only_cross_attention",
        "num_attention_heads",
        "reverse_transformer_layers_per_block",
        "time_cond_proj_dim",
        "time_embedding_act_fn",
        "timestep_post_act",
        "cross_attention_norm",
    ] {
        fields.only(key, &[])?;
    }
    for key in ["center_input_sample", "class_embeddings_concat", "dual_cross_attention", "only_cross_attention", "resnet_skip_time_act"] {
        fields.only(key, &[json!(false)])?;
    }
    fields.only("act_fn", &[json!("silu"), json!("swish")])?;
    fields.only("attention_type", &[json!("default")])?;
    fields.only("mid_block_type", &[json!("UNetMidBlock2DCrossAttn")])?;
    fields.only("resnet_time_scale_shift", &[json!("default")])?;
    fields.only("time_embedding_type", &[json!("positional")])?;
    fields.only("downsample_padding", &[json!(1)])?;
    fields.only("mid_block_scale_factor", &[json!(1)])?;
    fields.only("resnet_out_scale_factor", &[json!(1)])?;
    fields.only("conv_in_kernel", &[json!(3)])?;
    fields.only("conv_out_kernel", &[json!(3)])?;
    fields.only("dropout", &[json!(0)])?;
    // Without effect on the forward: softmax is always f32, sizes are free, and these two belong to an addition_embed_type or class_embed_type.
    for key in [
        "upcast_attention",
        "sample_size",
        "addition_embed_type_num_heads",
        "projection_class_embeddings_input_dim",
        "addition_time_embed_dim",
    ] {
        fields.ignored(key);
    }
    Ok(())
}

/// Which blocks have attention; `names` are the types with and without.
fn attention(fields: &Fields, key: &'static str, names: [&str; 2], blocks: usize) -> Result<Vec<bool>> {
    let types = fields.texts(key)?.with_context(|| format!("{FILE} lacks the key {key}"))?;
    ensure!(types.len() == blocks, "{FILE}: {key} lists {} blocks, but block_out_channels {blocks}", types.len());
    let read = |name: &&str| match names.iter().position(|n| n == name) {
        Some(position) => Ok(position == 0),
        None => bail!("{FILE}: {key} holds \"{name}\", which this version does not support (it supports {} and {})", names[0], names[1]),
    };
    types.iter().map(read).collect()
}

fn same_for_all(list: Option<Vec<usize>>) -> Result<usize> {
    let list = list.with_context(|| format!("{FILE} lacks the key cross_attention_dim"))?;
    ensure!(
        list.windows(2).all(|w| w[0] == w[1]),
        "{FILE}: cross_attention_dim differs between blocks, which this version does not support"
    );
    list.first().copied().with_context(|| format!("{FILE}: cross_attention_dim is empty"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sd21() -> Value {
        json!({
            "_class_name": "UNet2DConditionModel", "act_fn": "silu", "attention_head_dim": [5, 10, 20, 20],
            "block_out_channels": [320, 640, 1280, 1280], "center_input_sample": false, "cross_attention_dim": 1024,
            "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
            "downsample_padding": 1, "dual_cross_attention": false, "flip_sin_to_cos": true, "freq_shift": 0, "in_channels": 4,
            "layers_per_block": 2, "mid_block_scale_factor": 1, "norm_eps": 1e-05, "norm_num_groups": 32, "num_class_embeds": null,
            "only_cross_attention": false, "out_channels": 4, "sample_size": 96, "upcast_attention": true,
            "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"],
            "use_linear_projection": true
        })
    }

    #[test]
    fn attention_head_dim_is_the_number_of_heads() {
        let config = UnetConfig::from_json(&sd21()).unwrap();
        assert_eq!(config.heads, [5, 10, 20, 20]);
        assert_eq!((config.time_embedding_dim, config.cross_attention_dim, config.use_linear_projection), (1280, 1024, true));
        assert_eq!(config.down_attention, [true, true, true, false]);
        assert_eq!(config.up_attention, [false, true, true, true]);
        assert!(config.unknown_keys.is_empty());
        let mut one = sd21();
        one["attention_head_dim"] = json!(8);
        assert_eq!(UnetConfig::from_json(&one).unwrap().heads, [8; 4]);
    }

    #[test]
    fn what_is_unsupported_is_refused_by_its_key() {
        for (key, value) in [
            ("class_embed_type", json!("timestep")),
            ("addition_embed_type", json!("text_time")),
            ("dual_cross_attention", json!(true)),
            ("mid_block_type", json!("UNetMidBlock2D")),
            ("time_cond_proj_dim", json!(256)),
            ("num_attention_heads", json!(8)),
            ("down_block_types", json!(["AttnDownBlock2D", "DownBlock2D", "DownBlock2D", "DownBlock2D"])),
            ("attention_head_dim", json!([5, 10])),
            ("cross_attention_dim", json!([768, 768, 1024, 1024])),
        ] {
            let mut config = sd21();
            config[key] = value;
            let message = format!("{:#}", UnetConfig::from_json(&config).unwrap_err());
            assert!(message.contains(key) && message.contains("unet/config.json"), "{key}: {message}");
        }
        let mut odd = sd21();
        odd["block_out_channels"] = json!([320, 640, 1280, 1290]);
        assert!(format!("{:#}", UnetConfig::from_json(&odd).unwrap_err()).contains("1290"));
    }

    #[test]
    fn unknown_keys_are_listed() {
        let mut config = sd21();
        config["brand_new"] = json!("on");
        assert_eq!(UnetConfig::from_json(&config).unwrap().unknown_keys, ["brand_new"]);
    }
}
