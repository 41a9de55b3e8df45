//! Scaled dot-product attention (Vaswani et al., 2017), heads as slices of the channel axis:
//! S = scale · Q Kᵀ, P = softmax(S), O = P V for each batch item and head. With `causal`, token i sees tokens 0..=i.
//!
//! The forward keeps the log-sum-exp L of each row of S, so that the backward can compute P = exp(S − L) again block by block
//! (Dao et al., "FlashAttention", 2022): no N×N matrix is kept.

use super::*;
use crate::builder::Builder;
use crate::graph::ValueId;

/// Inputs: q [B, ..., H·D], k, v [B, ..., H·D]. Outputs: o like q, and L [B, H, query tokens] f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    pub heads: usize,
    pub scale: f32,
    pub causal: bool,
}

/// Inputs: ∂o, q, k, v, o, L. Outputs: ∂q if `query`, then ∂k, ∂v if `keys`.
///
/// δ = Σ over channels of ∂o·o; ∂V = Pᵀ ∂O; ∂P = ∂O Vᵀ; ∂S = P ∘ (∂P − δ); ∂Q = scale · ∂S K; ∂K = scale · ∂Sᵀ Q.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionGrad {
    pub attention: Attention,
    pub query: bool,
    pub keys: bool,
}

/// Rows of S and L of one head: calls `body(batch, head, query token, scores, log-sum-exp)`.
fn each_row(op: &Attention, q: &Array, k: &Array, mut body: impl FnMut(usize, usize, usize, &[f32], f32)) {
    let (n, m, d) = (q.shape.tokens(), k.shape.tokens(), q.shape.channels() / op.heads);
    for b in 0..q.shape.batch() {
        for h in 0..op.heads {
            for i in 0..n {
                let seen = if op.causal { (i + 1).min(m) } else { m };
                let query = &q.row(b * n + i)[h * d..(h + 1) * d];
                let scores: Vec<f32> =
                    (0..seen).map(|j| op.scale * query.iter().zip(&k.row(b * m + j)[h * d..]).map(|(q, k)| q * k).sum::<f32>()).collect();
                let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let lse = most + scores.iter().map(|s| (s - most).exp()).sum::<f32>().ln();
                body(b, h, i, &scores, lse);
            }
        }
    }
}

/// to += factor · from
fn add_scaled(to: &mut [f32], factor: f32, from: &[f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += factor * from);
}

impl Rule for Attention {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        let (q, k, v) = (inputs[0], inputs[1], inputs[2]);
        assert!(
            q.shape.channels().is_multiple_of(self.heads),
            "attention: {} channels don't divide into {} heads",
            q.shape.channels(),
            self.heads
        );
        let fits = |m: &Meta| m.shape.channels() == q.shape.channels() && m.shape.batch() == q.shape.batch() && m.dtype == q.dtype;
        assert!(
            fits(k) && fits(v) && k.shape.tokens() == v.shape.tokens(),
            "attention: q {}, k {}, v {} don't fit",
            q.shape,
            k.shape,
            v.shape
        );
        vec![q.clone(), Meta::new([q.shape.batch(), self.heads, q.shape.tokens()], DType::F32)]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let (q, k, v) = (inputs[0], inputs[1], inputs[2]);
        let (n, m, d) = (q.shape.tokens(), k.shape.tokens(), q.shape.channels() / self.heads);
        let mut o = Array::zeros(q.shape.clone());
        let mut kept = Array::zeros([q.shape.batch(), self.heads, n]);
        each_row(self, q, k, |b, h, i, scores, lse| {
            kept.row_mut(b * self.heads + h)[i] = lse;
            for (j, s) in scores.iter().enumerate() {
                let p = (s - lse).exp();
                let value = &v.row(b * m + j)[h * d..(h + 1) * d];
                o.row_mut(b * n + i)[h * d..].iter_mut().zip(value).for_each(|(o, v)| *o += p * v);
            }
        });
        vec![o, kept]
    }

    fn gradient(&self, g: &mut Adjoint) {
        let (query, keys) = (g.wanted(0), g.wanted(1) || g.wanted(2));
        let inputs = [g.upstream(0), g.inputs[0], g.inputs[1], g.inputs[2], g.outputs[0], g.outputs[1]];
        let outputs = g.push(AttentionGrad { attention: *self, query, keys }, &inputs);
        if query {
            g.set(0, outputs[0]);
        }
        if keys {
            let first = usize::from(query);
            g.set(1, outputs[first]);
            g.set(2, outputs[first + 1]);
        }
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        let (q, k) = (inputs[0], inputs[1]);
        Cost::new(4.0 * q.shape.elements() as f64 * k.shape.tokens() as f64, inputs, outputs)
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        SHAPES.map(|shape| Case::new(shape.op(), shape.inputs(types))).into()
    }
}

impl Rule for AttentionGrad {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        let mut outputs = Vec::new();
        if self.query {
            outputs.push(inputs[1].clone());
        }
        if self.keys {
            outputs.extend([inputs[2].clone(), inputs[3].clone()]);
        }
        outputs
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let (d_o, q, k, v) = (inputs[0], inputs[1], inputs[2], inputs[3]);
        let op = &self.attention;
        // P and δ come from the forward's own o and L, so that a wrong o or L shows.
        let (o, kept) = (inputs[4], inputs[5]);
        let (n, m, d) = (q.shape.tokens(), k.shape.tokens(), q.shape.channels() / op.heads);
        let (mut dq, mut dk, mut dv) = (Array::zeros(q.shape.clone()), Array::zeros(k.shape.clone()), Array::zeros(v.shape.clone()));
        each_row(op, q, k, |b, h, i, scores, _| {
            let head = h * d..(h + 1) * d;
            let lse = kept.row(b * op.heads + h)[i];
            let grad = &d_o.row(b * n + i)[head.clone()];
            let delta: f32 = grad.iter().zip(&o.row(b * n + i)[head.clone()]).map(|(a, b)| a * b).sum();
            for (j, s) in scores.iter().enumerate() {
                let p = (s - lse).exp();
                let dp: f32 = grad.iter().zip(&v.row(b * m + j)[head.clone()]).map(|(a, b)| a * b).sum();
                let ds = op.scale * p * (dp - delta);
                add_scaled(&mut dv.row_mut(b * m + j)[head.clone()], p, grad);
                add_scaled(&mut dq.row_mut(b * n + i)[head.clone()], ds, &k.row(b * m + j)[head.clone()]);
                add_scaled(&mut dk.row_mut(b * m + j)[head.clone()], ds, &q.row(b * n + i)[head.clone()]);
            }
        });
        let mut outputs = Vec::new();
        if self.query {
            outputs.push(dq);
        }
        if self.keys {
            outputs.extend([dk, dv]);
        }
        outputs
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        let products = 2 + usize::from(self.query) + 2 * usize::from(self.keys);
        Cost::new(2.0 * products as f64 * inputs[1].shape.elements() as f64 * inputs[2].shape.tokens() as f64, inputs, outputs)
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        let case = |(i, shape): (usize, &CaseShape)| {
            // o and L come from the forward: random ones would make exp(S − L) explode.
            let op = AttentionGrad { attention: shape.op(), query: i != 2, keys: i != 3 };
            let mut inputs = vec![shape.query(types)];
            inputs.extend(shape.inputs(types));
            inputs.push((inputs[1].0.clone(), Fill::Output(0)));
            inputs.push((Meta::new([shape.batch, shape.heads, shape.queries], DType::F32), Fill::Output(1)));
            Case::new(op, inputs)
        };
        SHAPES.iter().enumerate().map(case).collect()
    }
}

struct CaseShape {
    batch: usize,
    heads: usize,
    depth: usize,
    queries: usize,
    keys: usize,
    causal: bool,
}

const SHAPES: [CaseShape; 6] = [
    CaseShape { batch: 2, heads: 2, depth: 8, queries: 16, keys: 16, causal: false },
    CaseShape { batch: 1, heads: 3, depth: 40, queries: 65, keys: 77, causal: false },
    CaseShape { batch: 2, heads: 1, depth: 5, queries: 7, keys: 3, causal: false },
    CaseShape { batch: 1, heads: 2, depth: 64, queries: 33, keys: 129, causal: false },
    CaseShape { batch: 2, heads: 4, depth: 16, queries: 31, keys: 31, causal: true },
    CaseShape { batch: 1, heads: 1, depth: 160, queries: 1, keys: 1, causal: false },
];

impl CaseShape {
    fn op(&self) -> Attention {
        Attention { heads: self.heads, scale: 1.0 / (self.depth as f32).sqrt(), causal: self.causal }
    }

    fn query(&self, types: CaseTypes) -> (Meta, Fill) {
        normal([self.batch, self.queries, self.heads * self.depth], types.activation)
    }

    fn inputs(&self, types: CaseTypes) -> Vec<(Meta, Fill)> {
        let keys = || normal([self.batch, self.keys, self.heads * self.depth], types.activation);
        vec![self.query(types), keys(), keys()]
    }
}

impl Builder {
    /// Attention with scale 1/√(channels of a head).
    pub fn attention(&mut self, q: ValueId, k: ValueId, v: ValueId, heads: usize, causal: bool) -> ValueId {
        let depth = self.shape(q).channels() / heads;
        self.push_one(Attention { heads, scale: 1.0 / (depth as f32).sqrt(), causal }, &[q, k, v])
    }
}
