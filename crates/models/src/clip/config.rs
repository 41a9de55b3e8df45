//! Sizes of a CLIP text encoder: from `text_encoder/config.json`, or from tensor shapes.

use crate::json::{Fields, MOST_LAYERS};
use crate::shapes::Shapes;
use anyhow::{Context, Result, bail, ensure};
use graph::ops::ActivationKind;
use serde_json::{Value, json};
use weights::Family;

/// Every CLIP so far has heads of 64 channels; shapes alone don't say.
const HEAD_CHANNELS: usize = 64;

#[derive(Clone, Debug, PartialEq)]
pub struct ClipConfig {
    pub vocab_size: usize,
    /// Tokens of one chunk, start and end included.
    pub max_positions: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub layers: usize,
    pub heads: usize,
    pub activation: ActivationKind,
    pub eps: f32,
}

impl ClipConfig {
    /// From transformers' `config.json` of a `CLIPTextModel`. Its other keys (token ids, dropout, …) don't change the forward.
    pub fn from_json(json: &Value) -> Result<ClipConfig> {
        let fields = Fields::new("text_encoder/config.json", json)?;
        fields.only("model_type", &[json!("clip_text_model"), json!("clip")])?;
        let activation = match fields.text("hidden_act")?.unwrap_or("quick_gelu") {
            "quick_gelu" => ActivationKind::QuickGelu,
            "gelu" => ActivationKind::Gelu,
            other => bail!("text_encoder/config.json: hidden_act is \"{other}\", but this version supports quick_gelu and gelu"),
        };
        let config = ClipConfig {
            vocab_size: fields.size("vocab_size")?.unwrap_or(49408),
            max_positions: fields.size("max_position_embeddings")?.unwrap_or(77),
            hidden_size: fields.needed_size("hidden_size")?,
            intermediate_size: fields.needed_size("intermediate_size")?,
            layers: fields.needed_size("num_hidden_layers")?,
            heads: fields.needed_size("num_attention_heads")?,
            activation,
            eps: fields.number("layer_norm_eps")?.unwrap_or(1e-5),
        };
        config.check().context("text_encoder/config.json")?;
        Ok(config)
    }

    /// From tensor shapes. What they don't tell: heads have 64 channels; SD 1.x uses quick_gelu and SD 2.x gelu.
    pub fn from_shapes(shapes: &Shapes, family: Family) -> Result<ClipConfig> {
        let name = |part: &str| format!("text_encoder.text_model.{part}");
        let table = name("embeddings.token_embedding.weight");
        let hidden_size = shapes.dim(&table, 1)?;
        let activation = match family {
            Family::Sd1 => ActivationKind::QuickGelu,
            Family::Sd2 => ActivationKind::Gelu,
            other => bail!("{} is {}; its text encoder is not supported", shapes.source(), other.describe()),
        };
        ensure!(
            hidden_size % HEAD_CHANNELS == 0,
            "{}: the text encoder's width {hidden_size} is no multiple of {HEAD_CHANNELS}, so its number of heads can't be told from the \
             tensors; give the model as a diffusers folder, which has a config",
            shapes.source()
        );
        let config = ClipConfig {
            vocab_size: shapes.dim(&table, 0)?,
            max_positions: shapes.dim(&name("embeddings.position_embedding.weight"), 0)?,
            hidden_size,
            intermediate_size: shapes.dim(&name("encoder.layers.0.mlp.fc1.weight"), 0)?,
            layers: shapes.count(|i| name(&format!("encoder.layers.{i}.mlp.fc1.weight"))),
            heads: hidden_size / HEAD_CHANNELS,
            activation,
            eps: 1e-5,
        };
        config.check().with_context(|| shapes.source().to_owned())?;
        Ok(config)
    }

    /// Refuses a `clip_skip` that leaves no layer.
    pub fn check_clip_skip(&self, clip_skip: usize) -> Result<()> {
        ensure!((1..=self.layers).contains(&clip_skip), "clip_skip is {clip_skip}, but the text encoder has layers 1 to {}", self.layers);
        Ok(())
    }

    fn check(&self) -> Result<()> {
        ensure!(self.layers <= MOST_LAYERS, "{} layers are more than any text encoder has", self.layers);
        ensure!(self.hidden_size.is_multiple_of(self.heads), "{} channels don't divide into {} heads", self.hidden_size, self.heads);
        ensure!(self.max_positions >= 3, "{} positions leave no room for a token between start and end", self.max_positions);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Shape;

    #[test]
    fn shapes_give_the_sizes_of_the_real_text_encoders() {
        let shape = |name: &str, width: usize, layers: usize| -> Option<Shape> {
            let rest = name.strip_prefix("text_encoder.text_model.")?;
            match rest {
                "embeddings.token_embedding.weight" => Some(Shape::from([49408, width])),
                "embeddings.position_embedding.weight" => Some(Shape::from([77, width])),
                _ => {
                    let number: usize = rest.strip_prefix("encoder.layers.")?.strip_suffix(".mlp.fc1.weight")?.parse().ok()?;
                    (number < layers).then(|| Shape::from([4 * width, width]))
                }
            }
        };
        let small = ClipConfig::from_shapes(&Shapes::new("a", |n| shape(n, 768, 12)), Family::Sd1).unwrap();
        assert_eq!((small.layers, small.heads, small.intermediate_size, small.activation), (12, 12, 3072, ActivationKind::QuickGelu));
        let large = ClipConfig::from_shapes(&Shapes::new("a", |n| shape(n, 1024, 23)), Family::Sd2).unwrap();
        assert_eq!((large.layers, large.heads, large.activation), (23, 16, ActivationKind::Gelu));
        assert!(
            ClipConfig::from_shapes(&Shapes::new("a.safetensors", |n| shape(n, 48, 2)), Family::Sd1)
                .unwrap_err()
                .to_string()
                .contains("heads")
        );
        assert!(small.check_clip_skip(12).is_ok() && small.check_clip_skip(13).is_err() && small.check_clip_skip(0).is_err());
    }

    #[test]
    fn an_unknown_activation_is_refused_by_name() {
        let config =
            json!({"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "hidden_act": "relu"});
        assert!(ClipConfig::from_json(&config).unwrap_err().to_string().contains("hidden_act is \"relu\""));
    }
}
