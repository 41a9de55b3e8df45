//! Random training graphs: a chain of segments of random ops with residuals and skips, low-rank branches here and there, a loss at the end.

use base::{DType, Rng, Shape};
use graph::ops::{ActivationKind, Lora, Padding};
use graph::oracle::{self, Run};
use graph::{Array, Builder, Graph, Meta, Source, ValueId};

/// A forward graph and what fills its leaves.
pub struct RandomGraph {
    pub graph: Graph,
    pub loss: ValueId,
    leaves: Vec<(Source, Array)>,
}

/// Writes one random graph.
struct Writer<'a> {
    builder: Builder,
    rng: &'a mut Rng,
    /// Maps made so far, all of one batch and size: [B, H, W, C].
    maps: Vec<ValueId>,
    names: usize,
}

const BATCH: usize = 2;
const SIZE: [usize; 2] = [3, 4];
/// All even, for geglu; all divide into two groups or heads.
const CHANNELS: [usize; 3] = [4, 6, 8];

impl Writer<'_> {
    fn pick(&mut self, n: usize) -> usize {
        self.rng.below(n as u64) as usize
    }

    fn name(&mut self, kind: &str) -> String {
        self.names += 1;
        format!("{kind}{}", self.names)
    }

    fn recent(&mut self) -> ValueId {
        let back = self.pick(self.maps.len().min(3));
        self.maps[self.maps.len() - 1 - back]
    }

    fn channels(&self, x: ValueId) -> usize {
        self.builder.shape(x).channels()
    }

    /// A low-rank branch for a layer from `inputs` to `outputs` channels, in most cases.
    fn lora(&mut self, down: Shape, outputs: usize) -> Option<(Lora, Vec<ValueId>)> {
        let kind = self.pick(4);
        if kind == 0 {
            return None;
        }
        let name = self.name("lora");
        let rank = down.dims()[0];
        let mut inputs =
            vec![self.builder.param(&format!("{name}.down"), down), self.builder.param(&format!("{name}.up"), [outputs, rank])];
        let dropout = if kind == 1 { 0.25 } else { 0.0 };
        if dropout > 0.0 {
            inputs.push(self.builder.input("seed", [2], DType::U32));
        }
        Some((Lora { scale: 0.5, dropout, stream: self.names as u32 }, inputs))
    }

    fn linear(&mut self, x: ValueId, outputs: usize) -> ValueId {
        let inputs = self.channels(x);
        let name = self.name("linear");
        let lora = self.lora(Shape::from([2, inputs]), outputs);
        let weight = self.builder.weight(&format!("{name}.weight"), [outputs, inputs]);
        let bias = self.builder.weight(&format!("{name}.bias"), [outputs]);
        self.builder.linear(x, weight, Some(bias), lora.as_ref().map(|(l, v)| (*l, &v[..])))
    }

    fn conv(&mut self, x: ValueId, outputs: usize) -> ValueId {
        let inputs = self.channels(x);
        let name = self.name("conv");
        let lora = self.lora(Shape::from([2, 3, 3, inputs]), outputs);
        let weight = self.builder.weight(&format!("{name}.weight"), [outputs, 3, 3, inputs]);
        self.builder.conv2d(x, weight, None, 1, Padding::same(1), lora.as_ref().map(|(l, v)| (*l, &v[..])))
    }

    fn attention(&mut self, x: ValueId) -> ValueId {
        let channels = self.channels(x);
        let tokens = self.builder.reshape(x, [BATCH, SIZE[0] * SIZE[1], channels]);
        let [q, k, v] = [0; 3].map(|_| self.linear(tokens, channels));
        let o = self.builder.attention(q, k, v, 2, false);
        self.builder.reshape(o, [BATCH, SIZE[0], SIZE[1], channels])
    }

    /// Appends one random op, or a few, to the maps.
    fn step(&mut self) {
        let x = self.recent();
        let channels = self.channels(x);
        let other = CHANNELS[self.pick(3)];
        let y = match self.pick(13) {
            0 | 1 => self.linear(x, other),
            2 => self.conv(x, other),
            3 => self.attention(x),
            4 => {
                let kind = [ActivationKind::Silu, ActivationKind::Gelu, ActivationKind::QuickGelu][self.pick(3)];
                self.builder.activation(kind, x)
            }
            5 => {
                let y = self.recent();
                let y = if self.channels(y) == channels { y } else { self.linear(y, channels) };
                self.builder.add(x, y)
            }
            6 => {
                let y = self.recent();
                let both = self.builder.concat(x, y);
                self.linear(both, other)
            }
            7 => {
                let part = self.builder.slice(x, 1, channels - 1);
                self.linear(part, other)
            }
            8 => self.norm(x, channels),
            9 => {
                let wide = self.linear(x, 2 * other);
                // A product of two values squares their size: without a norm, a few in a row leave nothing but cancellation.
                let product = self.builder.geglu(wide);
                self.norm(product, other)
            }
            10 => {
                let vector = self.builder.input("vector", [BATCH, 4], self.builder.dtype);
                let vector = self.linear(vector, channels);
                self.builder.add_channels(x, vector)
            }
            11 => {
                let large = self.builder.upsample(x, [2 * SIZE[0], 2 * SIZE[1]]);
                self.builder.upsample(large, SIZE)
            }
            _ => self.builder.scale(x, -0.6),
        };
        self.maps.push(y);
    }

    fn norm(&mut self, x: ValueId, channels: usize) -> ValueId {
        let name = self.name("norm");
        let [gamma, beta] = ["weight", "bias"].map(|part| self.builder.weight(&format!("{name}.{part}"), [channels]));
        match self.pick(3) {
            0 => self.builder.layer_norm(x, gamma, beta, 1e-3),
            kind => self.builder.group_norm(x, gamma, beta, 2, 1e-3, kind == 1),
        }
    }

    fn segment(&mut self, number: usize) {
        // The builder's segment takes a closure over itself only, so the writer moves through it.
        let steps = 1 + self.pick(6);
        let builder = std::mem::replace(&mut self.builder, Builder::new(DType::F32, Box::new(|_| DType::F32)));
        let mut builder = builder;
        let dtype = builder.dtype;
        builder.segment(&format!("block {number}"), |inner| {
            std::mem::swap(inner, &mut self.builder);
            (0..steps).for_each(|_| self.step());
            std::mem::swap(inner, &mut self.builder);
        });
        assert_eq!(builder.dtype, dtype);
        self.builder = builder;
    }
}

impl RandomGraph {
    /// A graph whose activations and matrices have type `dtype`.
    pub fn new(dtype: DType, rng: &mut Rng) -> RandomGraph {
        let parts = 2 + rng.below(4) as usize;
        RandomGraph::of_parts(dtype, rng, parts)
    }

    /// The same of so many parts, of which about three quarters are segments.
    pub fn of_parts(dtype: DType, rng: &mut Rng, parts: usize) -> RandomGraph {
        let mut builder = Builder::new(dtype, Box::new(move |_| dtype));
        let first = builder.input("x", [BATCH, SIZE[0], SIZE[1], 4], dtype);
        let mut writer = Writer { builder, rng, maps: vec![first], names: 0 };
        for number in 0..parts {
            if writer.pick(4) == 0 {
                writer.step();
            } else {
                writer.segment(number);
            }
        }
        // A last layer that is trained in any case.
        let last = writer.maps[writer.maps.len() - 1];
        let channels = writer.channels(last);
        let mut builder = writer.builder;
        let factors = [builder.param("last.down", [2, channels]), builder.param("last.up", [4, 2])];
        let weight = builder.weight("last.weight", [4, channels]);
        let pred = builder.linear(last, weight, None, Some((Lora { scale: 1.0, dropout: 0.0, stream: 0 }, &factors)));
        let target = builder.input("target", [BATCH, SIZE[0], SIZE[1], 4], DType::F32);
        let weights = builder.input("item weights", [BATCH], DType::F32);
        let [loss, errors] = builder.mse(pred, target, weights);
        builder.output("loss", loss);
        builder.output("errors", errors);
        builder.output("pred", pred);
        let graph = builder.finish();
        let leaves = leaves(&graph, rng);
        RandomGraph { graph, loss, leaves }
    }

    /// The content of a leaf.
    pub fn leaf(&self, source: &Source) -> &Array {
        let found = self.leaves.iter().find(|(s, _)| s == source);
        &found.expect("every leaf of the graph was filled").1
    }

    /// The oracle's run of this graph, or of one that was derived from it.
    pub fn run(&self, graph: &Graph) -> Run {
        oracle::run(graph, &|source| self.leaf(source).clone())
    }
}

fn leaves(graph: &Graph, rng: &mut Rng) -> Vec<(Source, Array)> {
    let fill = |meta: &Meta, rng: &mut Rng| {
        if meta.dtype == DType::U32 {
            return Array::new(meta.shape.clone(), (0..meta.shape.elements()).map(|_| rng.below(1000) as f32).collect());
        }
        // Matrices that keep the spread of what they multiply.
        let fan_in = if meta.shape.rank() > 1 { meta.shape.elements() / meta.shape.batch() } else { 1 };
        let array = crate::values::normal(meta, rng).map(|v| v / (fan_in as f32).sqrt());
        crate::values::rounded(meta, &array)
    };
    let is_leaf = |source: &Source| !matches!(source, Source::Node { .. });
    let mut filled = Vec::new();
    for value in graph.values.iter().filter(|v| is_leaf(&v.source)) {
        let picture = matches!(value.source, Source::Input(_)) && value.meta.dtype != DType::U32;
        let array = if picture { crate::values::normal(&value.meta, rng) } else { fill(&value.meta, rng) };
        filled.push((value.source.clone(), array));
    }
    filled
}
