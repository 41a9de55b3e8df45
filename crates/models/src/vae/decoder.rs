//! Latents to pictures.

use super::{VaeConfig, mid_block, norm};
use crate::blocks::{resnet, upsample};
use crate::layers::Net;
use base::DType;
use graph::ValueId;

/// latents `[B, h, w, C]` (unscaled) → pixels `[B, H, W, 3]` f32, about −1 to 1.
pub fn decode(net: &mut Net, config: &VaeConfig, latents: ValueId) -> ValueId {
    let activations = net.b.dtype;
    let mut x = net.b.cast(latents, activations);
    if config.post_quant_conv {
        x = net.conv1x1("vae.post_quant_conv", x, config.latent_channels);
    }
    let coarse_to_fine: Vec<usize> = config.block_out_channels.iter().rev().copied().collect();
    x = net.conv3x3("vae.decoder.conv_in", x, coarse_to_fine[0]);
    x = mid_block(net, "vae.decoder.mid_block", x, config);
    for (i, channels) in coarse_to_fine.iter().enumerate() {
        let path = format!("vae.decoder.up_blocks.{i}");
        for j in 0..=config.layers_per_block {
            x = resnet(net, &format!("{path}.resnets.{j}"), x, None, *channels, norm(config));
        }
        if i + 1 < coarse_to_fine.len() {
            let size = net.size(x).map(|n| 2 * n);
            x = upsample(net, &format!("{path}.upsamplers.0"), x, size);
        }
    }
    x = net.group_norm_silu("vae.decoder.conv_norm_out", x, norm(config));
    x = net.conv3x3("vae.decoder.conv_out", x, config.out_channels);
    net.b.cast(x, DType::F32)
}
