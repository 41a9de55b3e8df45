//! Pictures to the moments of their latents.

use super::{VaeConfig, mid_block, norm};
use crate::blocks::resnet;
use crate::layers::Net;
use base::DType;
use graph::ValueId;
use graph::ops::Padding;

/// Stride 2 with a zero row and column below and to the right only, as the first release padded.
const DOWN: Padding = Padding { top: 0, bottom: 1, left: 0, right: 1 };

/// pixels `[B, H, W, 3]` → moments `[B, h, w, 2C]` f32: C channels of means, then C of log variances (not clamped).
pub fn encode(net: &mut Net, config: &VaeConfig, pixels: ValueId) -> ValueId {
    let activations = net.b.dtype;
    let pixels = net.b.cast(pixels, activations);
    let mut x = net.conv3x3("vae.encoder.conv_in", pixels, config.block_out_channels[0]);
    for (i, channels) in config.block_out_channels.iter().enumerate() {
        let path = format!("vae.encoder.down_blocks.{i}");
        for j in 0..config.layers_per_block {
            x = resnet(net, &format!("{path}.resnets.{j}"), x, None, *channels, norm(config));
        }
        if i + 1 < config.block_out_channels.len() {
            x = net.conv3x3_halving(&format!("{path}.downsamplers.0.conv"), x, *channels, DOWN);
        }
    }
    x = mid_block(net, "vae.encoder.mid_block", x, config);
    x = net.group_norm_silu("vae.encoder.conv_norm_out", x, norm(config));
    x = net.conv3x3("vae.encoder.conv_out", x, 2 * config.latent_channels);
    if config.quant_conv {
        x = net.conv1x1("vae.quant_conv", x, 2 * config.latent_channels);
    }
    net.b.cast(x, DType::F32)
}
