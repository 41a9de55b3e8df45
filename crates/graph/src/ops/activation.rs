//! Elementwise non-linearities: silu(x) = x·σ(x); gelu(x) = x·Φ(x) (exact, by erf); quick_gelu(x) = x·σ(1.702 x).

use super::*;
use crate::builder::Builder;
use crate::graph::ValueId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationKind {
    Silu,
    Gelu,
    QuickGelu,
}

/// Input: x. Output: f(x).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Activation {
    pub kind: ActivationKind,
}

/// Inputs: ∂y, x. Output: ∂x = ∂y · f'(x).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ActivationGrad {
    pub kind: ActivationKind,
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The normal distribution function Φ(x) = ½ erfc(−x/√2), by the continued fraction / series of erf (relative error below 1e-12).
fn normal_cdf(x: f64) -> f64 {
    let z = x.abs() / std::f64::consts::SQRT_2;
    let tail = if z < 3.0 {
        // erf(z) = 2/√π e^(−z²) Σ 2ⁿ z^(2n+1) / (2n+1)!!
        let (mut term, mut sum) = (z, z);
        for n in 1..200 {
            term *= 2.0 * z * z / (2 * n + 1) as f64;
            sum += term;
        }
        0.5 * (1.0 - 2.0 / std::f64::consts::PI.sqrt() * (-z * z).exp() * sum)
    } else {
        // erfc(z) = e^(−z²)/√π · 1/(z + ½/(z + 1/(z + 3/2/(z + …))))
        let fraction = (1..60).rev().fold(z, |f, n| z + n as f64 / 2.0 / f);
        0.5 * (-z * z).exp() / std::f64::consts::PI.sqrt() / fraction
    };
    if x < 0.0 { tail } else { 1.0 - tail }
}

impl ActivationKind {
    /// f(x)
    pub fn value(self, x: f32) -> f32 {
        let x = f64::from(x);
        (match self {
            ActivationKind::Silu => x * sigmoid(x),
            ActivationKind::Gelu => x * normal_cdf(x),
            ActivationKind::QuickGelu => x * sigmoid(1.702 * x),
        }) as f32
    }

    /// f'(x)
    pub fn slope(self, x: f32) -> f32 {
        let x = f64::from(x);
        let swish = |k: f64| sigmoid(k * x) * (1.0 + k * x * (1.0 - sigmoid(k * x)));
        (match self {
            ActivationKind::Silu => swish(1.0),
            ActivationKind::Gelu => normal_cdf(x) + x * (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt(),
            ActivationKind::QuickGelu => swish(1.702),
        }) as f32
    }
}

impl Rule for Activation {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        vec![inputs[0].clone()]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        vec![inputs[0].map(|x| self.kind.value(x))]
    }

    fn gradient(&self, g: &mut Adjoint) {
        let dx = g.push(ActivationGrad { kind: self.kind }, &[g.upstream(0), g.inputs[0]]);
        g.set(0, dx[0]);
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::elementwise(8.0, inputs, outputs)
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        KINDS.iter().zip(SHAPES).map(|(kind, shape)| Case::new(Activation { kind: *kind }, vec![spread(shape, types)])).collect()
    }
}

impl Rule for ActivationGrad {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        assert_eq!(inputs[0].shape, inputs[1].shape, "activation gradient: ∂y and x differ in shape");
        vec![inputs[0].clone()]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        vec![inputs[0].zip(inputs[1], |dy, x| dy * self.kind.slope(x))]
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::elementwise(12.0, inputs, outputs)
    }

    fn in_place(&self) -> &'static [usize] {
        &[0, 1]
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        let case = |(kind, shape): (&ActivationKind, [usize; 3])| {
            Case::new(ActivationGrad { kind: *kind }, vec![normal(shape, types.activation), spread(shape, types)])
        };
        KINDS.iter().zip(SHAPES).map(case).collect()
    }
}

const KINDS: [ActivationKind; 3] = [ActivationKind::Silu, ActivationKind::Gelu, ActivationKind::QuickGelu];
const SHAPES: [[usize; 3]; 3] = [[2, 8, 32], [3, 5, 7], [1, 1, 1037]];

fn spread(shape: [usize; 3], types: CaseTypes) -> (Meta, Fill) {
    (Meta::new(shape, types.activation), Fill::Normal(3.0))
}

impl Builder {
    pub fn activation(&mut self, kind: ActivationKind, x: ValueId) -> ValueId {
        self.push_one(Activation { kind }, &[x])
    }

    pub fn silu(&mut self, x: ValueId) -> ValueId {
        self.activation(ActivationKind::Silu, x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_normal_distribution_function_has_its_known_values() {
        for (x, p) in
            [(0.0, 0.5), (1.0, 0.841344746068543), (-1.96, 0.0249978951482204), (4.5, 0.999996602326875), (-6.0, 9.86587645037698e-10)]
        {
            assert!((normal_cdf(x) / p - 1.0).abs() < 1e-11, "Φ({x}) = {}", normal_cdf(x));
        }
    }
}
