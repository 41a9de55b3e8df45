//! The autoencoder of Stable Diffusion (Kingma & Welling, "Auto-Encoding Variational Bayes", 2014; diffusers' `AutoencoderKL`):
//! pictures in [−1, 1] ↔ latents of a fraction of the size. Scaling of the latents is the caller's ([`VaeConfig::scaling_factor`]).

mod config;
mod decoder;
mod encoder;
pub mod tiling;

pub use config::VaeConfig;
pub use decoder::decode;
pub use encoder::encode;

use crate::blocks::resnet;
use crate::layers::{Net, Norm};
use base::DType;
use graph::ValueId;

/// ε of every normalisation in the autoencoder.
const EPS: f32 = 1e-6;

/// The graph's input `pixels` `[B, H, W, 3]` f32; H and W are multiples of [`VaeConfig::factor`].
pub fn pixels_input(net: &mut Net, config: &VaeConfig, batch: usize, size: [usize; 2]) -> ValueId {
    net.b.input("pixels", [batch, size[0], size[1], config.in_channels], DType::F32)
}

/// The graph's input `latents` `[B, h, w, C]` f32.
pub fn latents_input(net: &mut Net, config: &VaeConfig, batch: usize, size: [usize; 2]) -> ValueId {
    net.b.input("latents", [batch, size[0], size[1], config.latent_channels], DType::F32)
}

fn norm(config: &VaeConfig) -> Norm {
    Norm { groups: config.norm_groups, eps: EPS }
}

/// Resnet, self-attention over all pixels with one head, resnet.
fn mid_block(net: &mut Net, path: &str, x: ValueId, config: &VaeConfig) -> ValueId {
    let channels = net.channels(x);
    let mut x = resnet(net, &format!("{path}.resnets.0"), x, None, channels, norm(config));
    if config.mid_attention {
        x = attention(net, &format!("{path}.attentions.0"), x, norm(config));
    }
    resnet(net, &format!("{path}.resnets.1"), x, None, channels, norm(config))
}

fn attention(net: &mut Net, path: &str, x: ValueId, norm: Norm) -> ValueId {
    let channels = net.channels(x);
    let h = net.group_norm(&format!("{path}.group_norm"), x, norm);
    let [q, k, v] = ["to_q", "to_k", "to_v"].map(|part| net.linear(&format!("{path}.{part}"), h, channels));
    let h = net.b.attention(q, k, v, 1, false);
    let h = net.linear(&format!("{path}.to_out.0"), h, channels);
    net.b.add(h, x)
}
