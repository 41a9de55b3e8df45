//! The gradient rules against finite differences of the oracle.
//!
//! The loss is summed in f64 from the op's f32 output, and the slope along a direction is taken by central differences at two distances
//! and extrapolated (Richardson), so that what remains is about 1e-4 of the gradient.

use crate::values::inputs;
use base::{DType, Rng};
use graph::ops::{Case, Loss};
use graph::oracle::{self, Run};
use graph::{Array, Builder, Graph, Meta, Op, Recompute, Source, ValueId, differentiate};
use std::collections::HashMap;

/// The inputs of an op that its rule gives gradients of.
pub fn differentiable_inputs(op: &Op) -> Vec<usize> {
    match op {
        Op::Activation(_) | Op::Cast(_) | Op::Geglu(_) | Op::Reshape(_) | Op::Scale(_) | Op::Slice(_) | Op::Upsample(_) => vec![0],
        // γ and β are frozen in every program, and so is the target of a loss.
        Op::GroupNorm(_) | Op::LayerNorm(_) | Op::Loss(_) => vec![0],
        Op::Add(_) | Op::AddChannels(_) | Op::Concat(_) => vec![0, 1],
        Op::Attention(_) => vec![0, 1, 2],
        Op::Linear(linear) => low_rank(linear.lora.is_some(), linear.lora_at()),
        Op::Conv2d(conv) => low_rank(conv.lora.is_some(), conv.lora_at()),
        Op::Embedding(_) | Op::SumTokens(_) | Op::TimestepEmbedding(_) => vec![],
        Op::ActivationGrad(_) | Op::AttentionGrad(_) | Op::Conv2dGrad(_) | Op::GegluGrad(_) | Op::GroupNormGrad(_) => vec![],
        Op::LayerNormGrad(_) | Op::LinearGrad(_) | Op::LossGrad(_) | Op::SliceGrad(_) | Op::UpsampleGrad(_) => vec![],
    }
}

fn low_rank(lora: bool, at: usize) -> Vec<usize> {
    if lora { vec![0, at, at + 1] } else { vec![0] }
}

/// A graph of one op whose inputs `trained` are parameters, with a weighted squared error after it.
struct Probe {
    forward: Graph,
    loss: ValueId,
    /// The op itself, if it is a loss.
    own: Option<Loss>,
    leaves: HashMap<String, Array>,
}

const TARGET: &str = "target";
const ITEM_WEIGHTS: &str = "item weights";

fn leaf_name(source: &Source) -> &str {
    match source {
        Source::Input(name) | Source::Weight(name) | Source::Param(name) => name,
        Source::Node { .. } => unreachable!("a leaf is no node's output"),
    }
}

impl Probe {
    fn new(case: &Case, trained: &[usize], rng: &mut Rng) -> Probe {
        let mut builder = Builder::new(DType::F32, Box::new(|_| DType::F32));
        let mut leaves = HashMap::new();
        let mut ids = Vec::new();
        for (i, ((meta, _), array)) in case.inputs.iter().zip(inputs(case, rng)).enumerate() {
            let name = format!("input {i}");
            let shape = meta.shape.clone();
            ids.push(if trained.contains(&i) { builder.param(&name, shape) } else { builder.input(&name, shape, meta.dtype) });
            leaves.insert(name, array);
        }
        let output = builder.push(case.op.clone(), &ids)[0];
        builder.output("output", output);
        let own = if let Op::Loss(own) = case.op { Some(own) } else { None };
        let loss = if own.is_some() { output } else { squared_error(&mut builder, output, &mut leaves, rng) };
        Probe { forward: builder.finish(), loss, own, leaves }
    }

    fn run(&self, graph: &Graph, moved: &HashMap<String, Array>) -> Run {
        oracle::run(graph, &|source| {
            let name = leaf_name(source);
            moved.get(name).unwrap_or(&self.leaves[name]).clone()
        })
    }

    /// The loss in f64.
    fn loss(&self, moved: &HashMap<String, Array>) -> f64 {
        if let Some(loss) = self.own {
            return self.own_loss(loss, moved);
        }
        let run = self.run(&self.forward, moved);
        weighted_error(run.output("output"), &self.leaves[TARGET], &self.leaves[ITEM_WEIGHTS], |d, _| d * d)
    }

    /// The loss of a case that is a loss itself.
    fn own_loss(&self, loss: Loss, moved: &HashMap<String, Array>) -> f64 {
        let input = |i: usize| moved.get(&format!("input {i}")).unwrap_or(&self.leaves[&format!("input {i}")]);
        let (item, channels) = (input(0).data.len() / input(2).data.len(), input(0).shape.channels());
        weighted_error(input(0), input(1), input(2), |d, i| {
            let c = if loss.has_threshold() { input(3).data[i / item] } else { 0.0 };
            let mask = loss.mask_at().map_or(1.0, |at| input(at).data[i / channels]);
            f64::from(mask) * loss.error.value(d, f64::from(c))
        })
    }

    /// The slope of the loss along `direction`, by differences.
    fn slope(&self, direction: &HashMap<String, Array>) -> f64 {
        let at = |step: f32| {
            let moved = direction.iter().map(|(name, d)| (name.clone(), self.leaves[name].zip(d, |x, d| x + step * d))).collect();
            self.loss(&moved)
        };
        let central = |step: f32| (at(step) - at(-step)) / (2.0 * f64::from(step));
        (4.0 * central(STEP) - central(2.0 * STEP)) / 3.0
    }
}

/// Step of the differences, for inputs of spread about 1.
const STEP: f32 = 0.008;

fn squared_error(builder: &mut Builder, output: ValueId, leaves: &mut HashMap<String, Array>, rng: &mut Rng) -> ValueId {
    let shape = builder.shape(output).clone();
    let (target, weights) = (Meta::new(shape.clone(), DType::F32), Meta::new([shape.batch()], DType::F32));
    leaves.insert(TARGET.into(), crate::values::normal(&target, rng));
    leaves.insert(ITEM_WEIGHTS.into(), crate::values::normal(&weights, rng).map(|w| 1.0 + w * w));
    let target = builder.input(TARGET, shape, DType::F32);
    let weights = builder.input(ITEM_WEIGHTS, weights.shape, DType::F32);
    builder.mse(output, target, weights)[0]
}

/// Mean over all elements of their item's weight times `error`, a function of the difference and the element's index.
fn weighted_error(pred: &Array, target: &Array, weights: &Array, error: impl Fn(f64, usize) -> f64) -> f64 {
    let item = pred.data.len() / weights.data.len();
    let each = pred.data.iter().zip(&target.data).enumerate();
    let sum: f64 = each.map(|(i, (p, t))| f64::from(weights.data[i / item]) * error(f64::from(*p) - f64::from(*t), i)).sum();
    sum / pred.data.len() as f64
}

/// Compares the gradients of the inputs `trained` of a case with differences along `directions` random directions.
pub fn check(case: &Case, trained: &[usize], directions: usize, rng: &mut Rng) -> Result<(), String> {
    let probe = Probe::new(case, trained, rng);
    let graph = differentiate(probe.forward.clone(), probe.loss, &Recompute::none());
    let gradients = probe.run(&graph, &HashMap::new()).gradients;
    if gradients.len() != trained.len() {
        return Err(format!("{} gradients of {} parameters", gradients.len(), trained.len()));
    }
    let mut names: Vec<&String> = gradients.keys().collect();
    names.sort();
    let size = gradients.values().flat_map(|g| &g.data).map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
    for _ in 0..directions {
        let mut direction = HashMap::new();
        for name in &names {
            let shape = gradients[*name].shape.clone();
            direction.insert((*name).clone(), crate::values::normal(&Meta::new(shape, DType::F32), rng));
        }
        let pairs = names.iter().flat_map(|n| gradients[*n].data.iter().zip(&direction[*n].data));
        let stated: f64 = pairs.map(|(g, d)| f64::from(*g) * f64::from(*d)).sum();
        let measured = probe.slope(&direction);
        // Along a normal direction the slope has the spread of the gradient's length.
        if (stated - measured).abs() > 2e-3 * size || !stated.is_finite() {
            return Err(format!("the slope is {measured:.6e}, but the gradient (of length {size:.3e}) says {stated:.6e}"));
        }
    }
    Ok(())
}
