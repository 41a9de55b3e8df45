//! The pen that architectures are written with: layers that name their weights by path, carry an adapter where one is wanted, and
//! note themselves as modules.

use crate::adapters::{Adapters, Kind, Module};
use base::DType;
use graph::ops::{Lora, Padding};
use graph::{Builder, ValueId};

/// Name of the input (u32 `[2]`) that holds the seed of adapter dropout; it exists only where a graph has dropout.
pub const DROPOUT_SEED: &str = "dropout_seed";

/// A builder with adapters; `modules` lists every linear layer and convolution in the order in which they were built.
pub struct Net<'a> {
    pub b: &'a mut Builder,
    adapters: &'a Adapters,
    pub modules: Vec<Module>,
}

/// Groups and ε of group normalisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    pub groups: usize,
    pub eps: f32,
}

impl<'a> Net<'a> {
    pub fn new(b: &'a mut Builder, adapters: &'a Adapters) -> Net<'a> {
        Net { b, adapters, modules: Vec::new() }
    }

    /// Marks what `body` builds as one stretch that the backward may recompute.
    pub fn segment<T>(&mut self, name: &str, body: impl FnOnce(&mut Net) -> T) -> T {
        let Net { b, adapters, modules } = self;
        b.segment(name, |b| {
            let mut inner = Net { b, adapters, modules: std::mem::take(modules) };
            let result = body(&mut inner);
            *modules = inner.modules;
            result
        })
    }

    pub fn channels(&self, x: ValueId) -> usize {
        self.b.shape(x).channels()
    }

    /// Height and width of a map.
    pub fn size(&self, x: ValueId) -> [usize; 2] {
        let dims = self.b.shape(x).dims();
        [dims[1], dims[2]]
    }

    /// y = x Wᵀ + b to `outputs` channels.
    pub fn linear(&mut self, path: &str, x: ValueId, outputs: usize) -> ValueId {
        let bias = self.bias(path, outputs);
        self.matrix(path, Kind::Linear, x, outputs, Some(bias))
    }

    /// y = x Wᵀ
    pub fn linear_without_bias(&mut self, path: &str, x: ValueId, outputs: usize) -> ValueId {
        self.matrix(path, Kind::Linear, x, outputs, None)
    }

    /// A 1×1 convolution: a linear layer, since channels are last.
    pub fn conv1x1(&mut self, path: &str, x: ValueId, outputs: usize) -> ValueId {
        let bias = self.bias(path, outputs);
        self.matrix(path, Kind::Conv { kernel: [1, 1], stride: 1 }, x, outputs, Some(bias))
    }

    /// A 3×3 convolution that keeps the size.
    pub fn conv3x3(&mut self, path: &str, x: ValueId, outputs: usize) -> ValueId {
        self.conv(path, x, outputs, 1, Padding::same(1))
    }

    /// A 3×3 convolution of stride 2.
    pub fn conv3x3_halving(&mut self, path: &str, x: ValueId, outputs: usize, padding: Padding) -> ValueId {
        self.conv(path, x, outputs, 2, padding)
    }

    pub fn group_norm(&mut self, path: &str, x: ValueId, norm: Norm) -> ValueId {
        let [gamma, beta] = self.affine(path, x);
        self.b.group_norm(x, gamma, beta, norm.groups, norm.eps, false)
    }

    /// Group normalisation, then SiLU.
    pub fn group_norm_silu(&mut self, path: &str, x: ValueId, norm: Norm) -> ValueId {
        let [gamma, beta] = self.affine(path, x);
        self.b.group_norm(x, gamma, beta, norm.groups, norm.eps, true)
    }

    pub fn layer_norm(&mut self, path: &str, x: ValueId, eps: f32) -> ValueId {
        let [gamma, beta] = self.affine(path, x);
        self.b.layer_norm(x, gamma, beta, eps)
    }

    fn bias(&mut self, path: &str, outputs: usize) -> ValueId {
        self.b.weight(&format!("{path}.bias"), [outputs])
    }

    fn affine(&mut self, path: &str, x: ValueId) -> [ValueId; 2] {
        let channels = self.channels(x);
        ["weight", "bias"].map(|part| self.b.weight(&format!("{path}.{part}"), [channels]))
    }

    fn matrix(&mut self, path: &str, kind: Kind, x: ValueId, outputs: usize, bias: Option<ValueId>) -> ValueId {
        let inputs = self.channels(x);
        let weight = self.b.weight(&format!("{path}.weight"), [outputs, inputs]);
        let lora = self.note(Module { name: path.into(), kind, inputs, outputs });
        self.b.linear(x, weight, bias, lora.as_ref().map(|(lora, factors)| (*lora, factors.as_slice())))
    }

    fn conv(&mut self, path: &str, x: ValueId, outputs: usize, stride: usize, padding: Padding) -> ValueId {
        let (inputs, kernel) = (self.channels(x), [3, 3]);
        let weight = self.b.weight(&format!("{path}.weight"), [outputs, kernel[0], kernel[1], inputs]);
        let bias = self.bias(path, outputs);
        let lora = self.note(Module { name: path.into(), kind: Kind::Conv { kernel, stride }, inputs, outputs });
        self.b.conv2d(x, weight, Some(bias), stride, padding, lora.as_ref().map(|(lora, factors)| (*lora, factors.as_slice())))
    }

    /// Notes a module and returns its low-rank branch with the branch's inputs, if it has one.
    fn note(&mut self, module: Module) -> Option<(Lora, Vec<ValueId>)> {
        let branch = self.adapters.get(&module.name).map(|adapter| {
            assert_eq!(adapter.module, module, "the adapter of {} was resolved for another model", module.name);
            let lora = adapter.lora();
            let mut factors: Vec<ValueId> = adapter.params().into_iter().map(|(name, shape)| self.b.param(&name, shape)).collect();
            if lora.dropout > 0.0 {
                factors.push(self.b.input(DROPOUT_SEED, [2], DType::U32));
            }
            (lora, factors)
        });
        self.modules.push(module);
        branch
    }
}
