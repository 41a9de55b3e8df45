//! A UNet's sizes from its tensors' shapes, for single files. What shapes don't tell is stated here: SD 1.x has 8 heads everywhere,
//! SD 2.x heads of 64 channels; 32 groups of normalisation; ε = 10⁻⁵; cosines first.

use super::UnetConfig;
use crate::shapes::Shapes;
use anyhow::{Context, Result, bail, ensure};
use weights::Family;

const SD1_HEADS: usize = 8;
const SD2_HEAD_CHANNELS: usize = 64;

impl UnetConfig {
    pub fn from_shapes(shapes: &Shapes, family: Family) -> Result<UnetConfig> {
        let down = |i: usize, part: &str| format!("unet.down_blocks.{i}.{part}");
        let blocks = shapes.count(|i| down(i, "resnets.0.conv1.weight"));
        ensure!(blocks > 0, "{} has no tensor {}", shapes.source(), down(0, "resnets.0.conv1.weight"));
        let block_out_channels = (0..blocks).map(|i| shapes.dim(&down(i, "resnets.0.conv1.weight"), 0)).collect::<Result<Vec<usize>>>()?;
        let has_attention = |side: &str, i: usize| shapes.has(&format!("unet.{side}_blocks.{i}.attentions.0.norm.weight"));
        let heads = block_out_channels.iter().map(|c| heads(*c, family, shapes.source())).collect::<Result<Vec<usize>>>()?;
        let mid = "unet.mid_block.attentions.0";
        // Every depth that the model uses shows in an attention on the way down or, for the coarsest block, in the middle.
        let depth = |i: usize| {
            let path = if i + 1 == blocks { mid.to_owned() } else { down(i, "attentions.0") };
            shapes.count(|j| format!("{path}.transformer_blocks.{j}.norm1.weight")).max(1)
        };
        let config = UnetConfig {
            in_channels: shapes.dim("unet.conv_in.weight", 1)?,
            out_channels: shapes.dim("unet.conv_out.weight", 0)?,
            layers_per_block: (0..blocks).map(|i| shapes.count(|j| down(i, &format!("resnets.{j}.conv1.weight")))).collect(),
            heads,
            transformer_depth: (0..blocks).map(depth).collect(),
            down_attention: (0..blocks).map(|i| has_attention("down", i)).collect(),
            up_attention: (0..blocks).map(|i| has_attention("up", i)).collect(),
            cross_attention_dim: shapes.dim(&format!("{mid}.transformer_blocks.0.attn2.to_k.weight"), 1)?,
            time_embedding_dim: shapes.dim("unet.time_embedding.linear_1.weight", 0)?,
            use_linear_projection: shapes.get(&format!("{mid}.proj_in.weight"))?.rank() == 2,
            norm_groups: 32,
            norm_eps: 1e-5,
            flip_sin_to_cos: true,
            freq_shift: 0.0,
            unknown_keys: Vec::new(),
            block_out_channels,
        };
        config.check().with_context(|| {
            format!(
                "{}: heads and groups can't be told from the tensors of a model this small; give it as a diffusers folder",
                shapes.source()
            )
        })?;
        Ok(config)
    }
}

fn heads(channels: usize, family: Family, source: &str) -> Result<usize> {
    match family {
        Family::Sd1 => Ok(SD1_HEADS),
        Family::Sd2 => {
            ensure!(
                channels.is_multiple_of(SD2_HEAD_CHANNELS),
                "{source}: {channels} channels don't divide into heads of {SD2_HEAD_CHANNELS}, as SD 2.x has them; give the model as a \
                 diffusers folder, which says how many heads it has"
            );
            Ok(channels / SD2_HEAD_CHANNELS)
        }
        other => bail!("{source} is {}; its UNet is not supported", other.describe()),
    }
}
