//! The UNet's transformer: x += proj_out(blocks(proj_in(norm(x)))), each block with self-attention, attention to the text, and a
//! gated MLP. Maps need no reshaping: the pixels of a channels-last map are tokens.

use crate::layers::{Net, Norm};
use graph::ValueId;

/// How the transformers of one resolution attend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attends {
    pub context: ValueId,
    pub heads: usize,
    /// Blocks.
    pub depth: usize,
    /// Whether `proj_in` and `proj_out` are linear layers; else 1×1 convolutions, which compute the same.
    pub linear_projection: bool,
    pub groups: usize,
}

/// ε of the normalisation before `proj_in`, whatever the resnets use.
const PROJECTION_EPS: f32 = 1e-6;
const BLOCK_EPS: f32 = 1e-5;

/// Each block is a segment; the first holds the projection before it too, the last the one after it.
pub(super) fn transformer(net: &mut Net, path: &str, x: ValueId, attends: Attends) -> ValueId {
    let mut h = x;
    for i in 0..attends.depth {
        let block_path = format!("{path}.transformer_blocks.{i}");
        h = net.segment(&block_path, |net| {
            if i == 0 {
                h = net.group_norm(&format!("{path}.norm"), h, Norm { groups: attends.groups, eps: PROJECTION_EPS });
                h = project(net, &format!("{path}.proj_in"), h, attends);
            }
            h = block(net, &block_path, h, attends);
            if i + 1 == attends.depth {
                h = project(net, &format!("{path}.proj_out"), h, attends);
                h = net.b.add(h, x);
            }
            h
        });
    }
    h
}

fn project(net: &mut Net, path: &str, x: ValueId, attends: Attends) -> ValueId {
    let channels = net.channels(x);
    if attends.linear_projection { net.linear(path, x, channels) } else { net.conv1x1(path, x, channels) }
}

fn block(net: &mut Net, path: &str, x: ValueId, attends: Attends) -> ValueId {
    let h = net.layer_norm(&format!("{path}.norm1"), x, BLOCK_EPS);
    let h = attention(net, &format!("{path}.attn1"), h, h, attends.heads);
    let x = net.b.add(h, x);
    let h = net.layer_norm(&format!("{path}.norm2"), x, BLOCK_EPS);
    let h = attention(net, &format!("{path}.attn2"), h, attends.context, attends.heads);
    let x = net.b.add(h, x);
    let h = net.layer_norm(&format!("{path}.norm3"), x, BLOCK_EPS);
    let h = feed_forward(net, &format!("{path}.ff"), h);
    net.b.add(h, x)
}

fn attention(net: &mut Net, path: &str, x: ValueId, source: ValueId, heads: usize) -> ValueId {
    let channels = net.channels(x);
    let q = net.linear_without_bias(&format!("{path}.to_q"), x, channels);
    let k = net.linear_without_bias(&format!("{path}.to_k"), source, channels);
    let v = net.linear_without_bias(&format!("{path}.to_v"), source, channels);
    let h = net.b.attention(q, k, v, heads, false);
    net.linear(&format!("{path}.to_out.0"), h, channels)
}

/// a · gelu(b) with [a | b] four times as wide each.
fn feed_forward(net: &mut Net, path: &str, x: ValueId) -> ValueId {
    let channels = net.channels(x);
    let h = net.linear(&format!("{path}.net.0.proj"), x, 8 * channels);
    let h = net.b.geglu(h);
    net.linear(&format!("{path}.net.2"), h, channels)
}
