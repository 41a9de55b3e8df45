//! Blocks that UNet and VAE share.

use crate::layers::{Net, Norm};
use graph::ValueId;

/// h = conv1(silu(norm1(x))) [+ proj(embedding)]; y = shortcut(x) + conv2(silu(norm2(h))). `embedding` is silu(time embedding) `[B, E]`.
pub(crate) fn resnet(net: &mut Net, path: &str, x: ValueId, embedding: Option<ValueId>, outputs: usize, norm: Norm) -> ValueId {
    let mut h = net.group_norm_silu(&format!("{path}.norm1"), x, norm);
    h = net.conv3x3(&format!("{path}.conv1"), h, outputs);
    if let Some(embedding) = embedding {
        let shift = net.linear(&format!("{path}.time_emb_proj"), embedding, outputs);
        h = net.b.add_channels(h, shift);
    }
    h = net.group_norm_silu(&format!("{path}.norm2"), h, norm);
    h = net.conv3x3(&format!("{path}.conv2"), h, outputs);
    let straight = if net.channels(x) == outputs { x } else { net.conv1x1(&format!("{path}.conv_shortcut"), x, outputs) };
    net.b.add(straight, h)
}

/// Nearest-neighbour resize to `size`, then a 3×3 convolution.
pub(crate) fn upsample(net: &mut Net, path: &str, x: ValueId, size: [usize; 2]) -> ValueId {
    let large = net.b.upsample(x, size);
    let channels = net.channels(x);
    net.conv3x3(&format!("{path}.conv"), large, channels)
}
