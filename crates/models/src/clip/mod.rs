//! CLIP's text encoder (Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", 2021): a causal
//! transformer with normalisation before each part. SD 1.x takes ViT-L/14's, SD 2.x OpenCLIP ViT-H/14's without its last layer.

mod config;
mod tokenizer;
mod vocabulary;

pub use config::ClipConfig;
pub use tokenizer::{ClipTokenizer, Encoded, Padding};

use crate::layers::Net;
use base::DType;
use graph::ValueId;

const MODEL: &str = "text_encoder.text_model";

/// Token ids `[B, T]`, the graph's input `ids`.
pub fn ids_input(net: &mut Net, batch: usize, tokens: usize) -> ValueId {
    net.b.input("ids", [batch, tokens], DType::U32)
}

/// ids `[B, T]` u32 → hidden states `[B, T, D]` after the final normalisation.
///
/// `clip_skip` counts as in sd-scripts: 1 takes the last layer's output, 2 that of the layer before it, …
/// (check it with [`ClipConfig::check_clip_skip`]).
pub fn forward(net: &mut Net, config: &ClipConfig, ids: ValueId, clip_skip: usize) -> ValueId {
    let width = config.hidden_size;
    let table = net.b.weight(&format!("{MODEL}.embeddings.token_embedding.weight"), [config.vocab_size, width]);
    let positions = net.b.weight(&format!("{MODEL}.embeddings.position_embedding.weight"), [config.max_positions, width]);
    let mut x = net.b.embedding(ids, table, positions);
    assert!((1..=config.layers).contains(&clip_skip), "clip_skip {clip_skip} was not checked");
    for i in 0..=config.layers - clip_skip {
        let path = format!("{MODEL}.encoder.layers.{i}");
        x = net.segment(&path, |net| layer(net, config, &path, x));
    }
    net.layer_norm(&format!("{MODEL}.final_layer_norm"), x, config.eps)
}

/// x += attention(norm(x)); x += mlp(norm(x))
fn layer(net: &mut Net, config: &ClipConfig, path: &str, x: ValueId) -> ValueId {
    let width = config.hidden_size;
    let h = net.layer_norm(&format!("{path}.layer_norm1"), x, config.eps);
    let [q, k, v] = ["q_proj", "k_proj", "v_proj"].map(|part| net.linear(&format!("{path}.self_attn.{part}"), h, width));
    let h = net.b.attention(q, k, v, config.heads, true);
    let h = net.linear(&format!("{path}.self_attn.out_proj"), h, width);
    let x = net.b.add(x, h);
    let h = net.layer_norm(&format!("{path}.layer_norm2"), x, config.eps);
    let h = net.linear(&format!("{path}.mlp.fc1"), h, config.intermediate_size);
    let h = net.b.activation(config.activation, h);
    let h = net.linear(&format!("{path}.mlp.fc2"), h, width);
    net.b.add(x, h)
}
