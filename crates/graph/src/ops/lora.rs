//! Low-rank adaptation, as an attribute of linear and convolution (Hu et al., "LoRA", 2021): y += s · drop(x Aᵀ) Bᵀ with s = alpha/rank.
//!
//! Dropout stands between A and B, as in kohya's and ai-toolkit's networks. Its mask is a pure function of (seed, stream, element), so the
//! backward and a recompute draw it again instead of keeping it.

use super::{Adjoint, Op};
use base::rng::philox;

/// The low-rank branch of a layer. Its inputs are A (`lora_down`), B (`lora_up`) and, with dropout, a seed: u32 `[2]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lora {
    /// alpha / rank, times the strength that a user sets.
    pub scale: f32,
    /// Probability that an element of x Aᵀ is dropped, in [0, 1).
    pub dropout: f32,
    /// Keeps the masks of different layers apart.
    pub stream: u32,
}

impl Lora {
    /// Number of inputs that the branch adds to its op.
    pub fn inputs(&self) -> usize {
        if self.dropout > 0.0 { 3 } else { 2 }
    }

    /// Factor on element `index` of x Aᵀ: 0 where dropped, 1/(1−p) elsewhere.
    pub fn keep(&self, seed: [u32; 2], index: u64) -> f32 {
        if self.dropout > 0.0 && dropout_mask(seed, self.stream, index) < self.dropout { 0.0 } else { 1.0 / (1.0 - self.dropout) }
    }
}

/// Emits the gradient op of a layer with inputs x, W, …, and A, B (and a seed) from index `factors` on if it has the branch.
/// `op` makes it, told whether ∂x is wanted: its inputs are ∂y, [W], [x, A, B, (seed)], its outputs [∂x], [∂A, ∂B].
pub(super) fn layer_gradient(g: &mut Adjoint, factors: Option<usize>, op: impl FnOnce(bool) -> Op) {
    let input = g.wanted(0);
    let mut inputs = vec![g.upstream(0)];
    if input {
        inputs.push(g.inputs[1]);
    }
    if let Some(at) = factors {
        inputs.push(g.inputs[0]);
        inputs.extend(&g.inputs[at..]);
    }
    let outputs = g.push(op(input), &inputs);
    if input {
        g.set(0, outputs[0]);
    }
    if let Some(at) = factors {
        let first = usize::from(input);
        g.set(at, outputs[first]);
        g.set(at + 1, outputs[first + 1]);
    }
}

/// The uniform number in [0, 1) that decides about element `index`.
pub fn dropout_mask(seed: [u32; 2], stream: u32, index: u64) -> f32 {
    let block = index / 4;
    let words = philox([block as u32, (block >> 32) as u32, stream, 0x1c0d_e5ed], seed);
    (words[(index % 4) as usize] >> 8) as f32 / (1 << 24) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_the_stated_share_and_keeps_the_mean() {
        let lora = Lora { scale: 1.0, dropout: 0.3, stream: 5 };
        let kept: Vec<f32> = (0..20_000).map(|i| lora.keep([1, 2], i)).collect();
        let dropped = kept.iter().filter(|k| **k == 0.0).count() as f32 / 20_000.0;
        let mean = kept.iter().sum::<f32>() / 20_000.0;
        assert!((dropped - 0.3).abs() < 0.015 && (mean - 1.0).abs() < 0.02, "dropped {dropped}, mean {mean}");
        assert_ne!(kept, (0..20_000).map(|i| lora.keep([1, 3], i)).collect::<Vec<_>>());
        assert_eq!(Lora { dropout: 0.0, ..lora }.keep([1, 2], 0), 1.0);
    }
}
