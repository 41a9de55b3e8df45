//! THE list of ops, and what each must say about itself.
//!
//! One room an op: its file holds the formula, the attributes, the shape rule, the meaning (a naive f32 reference: the oracle for
//! every backend), the gradient (mathematics first, then nodes), the cost, and test cases. An op and its gradient op share a room.

use crate::autodiff::Adjoint;
use crate::cost::Cost;
use crate::graph::Meta;
use crate::oracle::Array;
use base::DType;

mod activation;
mod add;
mod add_channels;
mod attention;
mod cast;
mod concat;
mod conv2d;
mod embedding;
mod geglu;
mod group_norm;
mod layer_norm;
mod linear;
mod lora;
mod loss;
mod reshape;
mod scale;
mod slice;
mod timestep_embedding;
mod upsample;

pub use activation::{Activation, ActivationGrad, ActivationKind};
pub use add::Add;
pub use add_channels::{AddChannels, SumTokens};
pub use attention::{Attention, AttentionGrad};
pub use cast::Cast;
pub use concat::Concat;
pub use conv2d::{Conv2d, Conv2dGrad, Padding};
pub use embedding::Embedding;
pub use geglu::{Geglu, GegluGrad};
pub use group_norm::{GroupNorm, GroupNormGrad};
pub use layer_norm::{LayerNorm, LayerNormGrad};
pub use linear::{Linear, LinearGrad};
pub use lora::{Lora, dropout_mask};
pub use loss::{Loss, LossGrad, LossInputs, PixelError};
pub use reshape::Reshape;
pub use scale::Scale;
pub use slice::{Slice, SliceGrad};
pub use timestep_embedding::TimestepEmbedding;
pub use upsample::{Upsample, UpsampleGrad};

/// What an op's room says about it.
pub trait Rule {
    /// Shapes and types of the outputs. Panics with a sentence on inputs that don't fit: model code is wrong.
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta>;

    /// The meaning, in plain f32: outputs from inputs. Slow and obvious.
    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array>;

    /// Emits the nodes of the gradient towards the wanted inputs. Ops that never stand between a parameter and the loss leave it out.
    fn gradient(&self, _: &mut Adjoint) {
        panic!("this op has no gradient rule, yet a trained parameter stands before it");
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost;

    /// Inputs whose storage output 0 may take over when nobody reads them afterwards (the kernel must then work in place).
    fn in_place(&self) -> &'static [usize] {
        &[]
    }

    /// Outputs from this index on are parameter gradients: a kernel adds into them instead of overwriting.
    fn accumulates_from(&self) -> usize {
        usize::MAX
    }

    /// Test runs: ordinary, odd and batched sizes, every attribute. The first case of each op is the plainest.
    fn cases(types: CaseTypes) -> Vec<Case>
    where
        Self: Sized;
}

/// Element types that test cases are asked for.
#[derive(Clone, Copy, Debug)]
pub struct CaseTypes {
    /// f32, bf16 or f16.
    pub activation: DType,
    /// Frozen matrices: f32, bf16 or f16, and for linear layers and convolutions the quantized types.
    pub weight: DType,
}

/// How a test fills an input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// Normal numbers of this spread.
    Normal(f32),
    /// 1/√variance and the like: positive, around 1.
    Positive,
    /// Integers in `0..n` (ids, counters).
    Below(u32),
    /// Output number n of the forward op on the inputs after the first (what a gradient op keeps from its forward).
    Output(usize),
}

/// One test case of an op: the op with its attributes, and the form and content of its inputs.
#[derive(Clone, Debug)]
pub struct Case {
    pub op: Op,
    pub inputs: Vec<(Meta, Fill)>,
}

impl Case {
    pub fn new(op: impl Into<Op>, inputs: Vec<(Meta, Fill)>) -> Case {
        Case { op: op.into(), inputs }
    }
}

/// A normal input of spread 1: what most cases need.
pub fn normal<const N: usize>(shape: [usize; N], dtype: DType) -> (Meta, Fill) {
    (Meta::new(shape, dtype), Fill::Normal(1.0))
}

/// Calls the macro `$with` with every op: `Name` is the struct, its kernel in a backend has the file name of its room.
#[macro_export]
macro_rules! for_each_op {
    ($with:ident) => {
        $with! {
            Activation, ActivationGrad, Add, AddChannels, SumTokens, Attention, AttentionGrad, Cast, Concat, Conv2d, Conv2dGrad,
            Embedding, Geglu, GegluGrad, GroupNorm, GroupNormGrad, LayerNorm, LayerNormGrad, Linear, LinearGrad, Loss, LossGrad,
            Reshape, Scale, Slice, SliceGrad, TimestepEmbedding, Upsample, UpsampleGrad
        }
    };
}

macro_rules! define_op {
    ($($name:ident),*) => {
        #[derive(Clone, Debug, PartialEq)]
        pub enum Op { $($name($name)),* }

        $(impl From<$name> for Op { fn from(op: $name) -> Op { Op::$name(op) } })*

        impl Op {
            pub fn rule(&self) -> &dyn Rule {
                match self { $(Op::$name(op) => op),* }
            }

            pub fn name(&self) -> &'static str {
                match self { $(Op::$name(_) => stringify!($name)),* }
            }

            /// The test cases of every op.
            pub fn all_cases(types: CaseTypes) -> Vec<Case> {
                let mut all = Vec::new();
                $(all.extend($name::cases(types));)*
                all
            }
        }
    };
}

for_each_op!(define_op);
