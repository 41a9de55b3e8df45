//! silu, gelu, quick_gelu and their gradients.

use super::{Call, Kernel};
use crate::block::{Binary, Unary, binary, unary, with_activation};
use crate::math;
use graph::ops::{Activation, ActivationGrad, ActivationKind};

#[derive(Clone, Copy)]
struct Silu;

#[derive(Clone, Copy)]
struct Gelu;

#[derive(Clone, Copy)]
struct QuickGelu;

const QUICK: f32 = 1.702;

impl Unary for Silu {
    #[inline(always)]
    fn apply(self, x: f32) -> f32 {
        math::silu(x)
    }
}

impl Unary for Gelu {
    #[inline(always)]
    fn apply(self, x: f32) -> f32 {
        math::gelu(x)
    }
}

impl Unary for QuickGelu {
    #[inline(always)]
    fn apply(self, x: f32) -> f32 {
        x * math::sigmoid(QUICK * x)
    }
}

/// ∂y · f'(x)
impl Binary for Silu {
    #[inline(always)]
    fn apply(self, dy: f32, x: f32) -> f32 {
        dy * math::swish_slope(1.0, x)
    }
}

impl Binary for Gelu {
    #[inline(always)]
    fn apply(self, dy: f32, x: f32) -> f32 {
        dy * math::gelu_slope(x)
    }
}

impl Binary for QuickGelu {
    #[inline(always)]
    fn apply(self, dy: f32, x: f32) -> f32 {
        dy * math::swish_slope(QUICK, x)
    }
}

impl Kernel for Activation {
    fn run(&self, call: &mut Call) {
        let (x, y) = (&call.inputs[0], &call.outputs[0]);
        with_activation!(x.dtype(), T => match self.kind {
            ActivationKind::Silu => unary::<T, T>(Silu, x, y),
            ActivationKind::Gelu => unary::<T, T>(Gelu, x, y),
            ActivationKind::QuickGelu => unary::<T, T>(QuickGelu, x, y),
        });
    }
}

impl Kernel for ActivationGrad {
    fn run(&self, call: &mut Call) {
        let (dy, x, dx) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
        with_activation!(x.dtype(), T => match self.kind {
            ActivationKind::Silu => binary::<T, T, T>(Silu, dy, x, dx),
            ActivationKind::Gelu => binary::<T, T, T>(Gelu, dy, x, dx),
            ActivationKind::QuickGelu => binary::<T, T, T>(QuickGelu, dy, x, dx),
        });
    }
}
