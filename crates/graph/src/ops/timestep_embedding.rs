//! Sinusoidal timestep embedding (Ho et al., "Denoising Diffusion Probabilistic Models", 2020; diffusers `get_timestep_embedding`):
//! angle[b, i] = t[b] · 10000^(−i / (half − shift)), y = [sin | cos] or [cos | sin].

use super::*;
use crate::builder::Builder;
use crate::graph::ValueId;

/// Input: t [B] f32. Output: [B, channels] as `dtype`; a last odd channel is zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimestepEmbedding {
    pub channels: usize,
    /// cos in the first half (Stable Diffusion).
    pub cos_first: bool,
    /// diffusers' `freq_shift`.
    pub shift: f32,
    pub dtype: DType,
}

impl TimestepEmbedding {
    /// The embedding of one timestep at one channel.
    pub fn at(&self, t: f32, channel: usize) -> f32 {
        let half = self.channels / 2;
        if channel >= 2 * half {
            return 0.0;
        }
        let i = channel % half;
        let exponent = -(10000f32.ln()) * i as f32 / (half as f32 - self.shift);
        let angle = t * exponent.exp();
        if (channel < half) == self.cos_first { angle.cos() } else { angle.sin() }
    }
}

impl Rule for TimestepEmbedding {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        assert_eq!(inputs[0].shape.rank(), 1, "timestep_embedding: one timestep for each batch item");
        vec![Meta::new([inputs[0].shape.elements(), self.channels], self.dtype)]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let data = inputs[0].data.iter().flat_map(|t| (0..self.channels).map(|c| self.at(*t, c))).collect();
        vec![Array::new([inputs[0].data.len(), self.channels], data)]
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::elementwise(20.0, inputs, outputs)
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        let case = |b, channels, cos_first, shift| {
            let t = (Meta::new([b], DType::F32), Fill::Below(1000));
            Case::new(TimestepEmbedding { channels, cos_first, shift, dtype: types.activation }, vec![t])
        };
        vec![case(2, 32, true, 0.0), case(3, 9, false, 1.0)]
    }
}

impl Builder {
    /// Sinusoids of timesteps t [B]: [B, channels].
    pub fn timestep_embedding(&mut self, t: ValueId, channels: usize, cos_first: bool, shift: f32) -> ValueId {
        self.push_one(TimestepEmbedding { channels, cos_first, shift, dtype: self.dtype }, &[t])
    }
}
