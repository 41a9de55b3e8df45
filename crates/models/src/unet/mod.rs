//! The UNet of Stable Diffusion 1.x and 2.x (Rombach et al., "High-Resolution Image Synthesis with Latent Diffusion Models", 2022):
//! resnet blocks with the time embedding added, transformer blocks that read the text, skips from the way down to the way up.

mod config;
mod from_shapes;
mod transformer;

pub use config::UnetConfig;

use crate::blocks::{resnet, upsample};
use crate::layers::{Net, Norm};
use base::DType;
use graph::ValueId;
use graph::ops::Padding;
use transformer::{Attends, transformer};

/// What the UNet reads.
#[derive(Clone, Copy, Debug)]
pub struct Inputs {
    /// Noisy latents `[B, h, w, C]`.
    pub latents: ValueId,
    /// `[B]` f32, in the schedule's units (0 to 999; not always whole).
    pub timestep: ValueId,
    /// Text states `[B, T, D]`.
    pub context: ValueId,
}

/// The graph inputs `latents`, `timestep` and `context`, all f32.
pub fn inputs(net: &mut Net, config: &UnetConfig, batch: usize, size: [usize; 2], tokens: usize) -> Inputs {
    Inputs {
        latents: net.b.input("latents", [batch, size[0], size[1], config.in_channels], DType::F32),
        timestep: net.b.input("timestep", [batch], DType::F32),
        context: net.b.input("context", [batch, tokens, config.cross_attention_dim], DType::F32),
    }
}

/// What all blocks of one build share.
struct Shared<'a> {
    config: &'a UnetConfig,
    norm: Norm,
    /// silu(time embedding) `[B, E]`: every resnet starts its projection with this SiLU.
    time: ValueId,
    context: ValueId,
}

/// The model's prediction `[B, h, w, C]` in f32, for any h and w.
pub fn forward(net: &mut Net, config: &UnetConfig, inputs: Inputs) -> ValueId {
    let activations = net.b.dtype;
    let latents = net.b.cast(inputs.latents, activations);
    let shared = Shared {
        config,
        norm: Norm { groups: config.norm_groups, eps: config.norm_eps },
        time: time_embedding(net, config, inputs.timestep),
        context: net.b.cast(inputs.context, activations),
    };
    let x = net.conv3x3("unet.conv_in", latents, config.block_out_channels[0]);
    let mut skips = vec![x];
    for i in 0..config.blocks() {
        down_block(net, &shared, i, &mut skips);
    }
    let mut x = mid_block(net, &shared, *skips.last().expect("conv_in's output is a skip"));
    for i in 0..config.blocks() {
        x = up_block(net, &shared, i, x, &mut skips);
    }
    let x = net.group_norm_silu("unet.conv_norm_out", x, shared.norm);
    let x = net.conv3x3("unet.conv_out", x, config.out_channels);
    net.b.cast(x, DType::F32)
}

/// silu(linear(silu(linear(sinusoids of t))))
fn time_embedding(net: &mut Net, config: &UnetConfig, timestep: ValueId) -> ValueId {
    let sinusoids = net.b.timestep_embedding(timestep, config.block_out_channels[0], config.flip_sin_to_cos, config.freq_shift);
    let h = net.linear("unet.time_embedding.linear_1", sinusoids, config.time_embedding_dim);
    let h = net.b.silu(h);
    let h = net.linear("unet.time_embedding.linear_2", h, config.time_embedding_dim);
    net.b.silu(h)
}

/// Resnets, each with its transformer where the block has attention; then half the size. Every output is a skip.
fn down_block(net: &mut Net, shared: &Shared, i: usize, skips: &mut Vec<ValueId>) {
    let (config, path) = (shared.config, format!("unet.down_blocks.{i}"));
    let channels = config.block_out_channels[i];
    let mut x = *skips.last().expect("the block before left its output");
    for j in 0..config.layers_per_block[i] {
        x = resnet_block(net, shared, &format!("{path}.resnets.{j}"), x, channels);
        if config.down_attention[i] {
            x = transformer(net, &format!("{path}.attentions.{j}"), x, shared.attends(i));
        }
        skips.push(x);
    }
    if i + 1 < config.blocks() {
        skips.push(net.conv3x3_halving(&format!("{path}.downsamplers.0.conv"), x, channels, Padding::same(1)));
    }
}

fn mid_block(net: &mut Net, shared: &Shared, x: ValueId) -> ValueId {
    let last = shared.config.blocks() - 1;
    let channels = shared.config.block_out_channels[last];
    let x = resnet_block(net, shared, "unet.mid_block.resnets.0", x, channels);
    let x = transformer(net, "unet.mid_block.attentions.0", x, shared.attends(last));
    resnet_block(net, shared, "unet.mid_block.resnets.1", x, channels)
}

/// The mirror of down-block `blocks − 1 − i`, with one resnet more; each resnet reads a skip beside its input.
fn up_block(net: &mut Net, shared: &Shared, i: usize, mut x: ValueId, skips: &mut Vec<ValueId>) -> ValueId {
    let (config, path) = (shared.config, format!("unet.up_blocks.{i}"));
    let mirror = config.blocks() - 1 - i;
    let channels = config.block_out_channels[mirror];
    for j in 0..=config.layers_per_block[mirror] {
        let skip = skips.pop().expect("the way down left a skip for every resnet of the way up");
        x = net.b.concat(x, skip);
        x = resnet_block(net, shared, &format!("{path}.resnets.{j}"), x, channels);
        if config.up_attention[i] {
            x = transformer(net, &format!("{path}.attentions.{j}"), x, shared.attends(mirror));
        }
    }
    match skips.last() {
        // To the size of the next skip: not twice the size where the way down met an odd one.
        Some(next) => {
            let size = net.size(*next);
            upsample(net, &format!("{path}.upsamplers.0"), x, size)
        }
        None => x,
    }
}

fn resnet_block(net: &mut Net, shared: &Shared, path: &str, x: ValueId, channels: usize) -> ValueId {
    net.segment(path, |net| resnet(net, path, x, Some(shared.time), channels, shared.norm))
}

impl Shared<'_> {
    /// How the transformers at resolution `i` (counted on the way down) attend.
    fn attends(&self, i: usize) -> Attends {
        Attends {
            context: self.context,
            heads: self.config.heads[i],
            depth: self.config.transformer_depth[i],
            linear_projection: self.config.use_linear_projection,
            groups: self.config.norm_groups,
        }
    }
}
