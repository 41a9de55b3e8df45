//! Weighted mean squared error: loss = mean over items b of w[b] · e[b], with e[b] = mean over the item's elements of (pred − target)².
//!
//! A loss op: the backward starts here, with 1 as the gradient of the loss.

use super::*;
use crate::builder::Builder;
use crate::graph::ValueId;

/// Inputs: pred [B, ...], target like pred in f32, w [B] f32. Outputs: loss [1] f32, and e [B] f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mse;

/// Inputs: pred, target, w. Output: ∂pred = 2 w[b] (pred − target) / (B · elements of an item).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MseGrad;

impl Rule for Mse {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        let (pred, target, w) = (inputs[0], inputs[1], inputs[2]);
        assert_eq!(pred.shape, target.shape, "mse: pred and target differ in shape");
        assert_eq!(w.shape.elements(), pred.shape.batch(), "mse: one weight for each item");
        vec![Meta::new([1], DType::F32), Meta::new([pred.shape.batch()], DType::F32)]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let (pred, target, w) = (inputs[0], inputs[1], inputs[2]);
        let batch = pred.shape.batch();
        let size = pred.data.len() / batch;
        let error = |b: usize| {
            let item = b * size..(b + 1) * size;
            pred.data[item.clone()].iter().zip(&target.data[item]).map(|(p, t)| f64::from(p - t).powi(2)).sum::<f64>() / size as f64
        };
        let errors: Vec<f32> = (0..batch).map(|b| error(b) as f32).collect();
        let loss = errors.iter().zip(&w.data).map(|(e, w)| e * w).sum::<f32>() / batch as f32;
        vec![Array::new([1], vec![loss]), Array::new([batch], errors)]
    }

    fn gradient(&self, g: &mut Adjoint) {
        let inputs = [g.inputs[0], g.inputs[1], g.inputs[2]];
        let d_pred = g.push(MseGrad, &inputs);
        g.set(0, d_pred[0]);
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::new(3.0 * inputs[0].shape.elements() as f64, inputs, outputs)
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        SHAPES.map(|s| Case::new(Mse, inputs(s, types))).into()
    }
}

impl Rule for MseGrad {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        vec![inputs[0].clone()]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let (pred, target, w) = (inputs[0], inputs[1], inputs[2]);
        let size = pred.data.len() / pred.shape.batch();
        let mut d_pred = pred.zip(target, |p, t| 2.0 * (p - t) / pred.data.len() as f32);
        d_pred.data.iter_mut().enumerate().for_each(|(i, d)| *d *= w.data[i / size]);
        vec![d_pred]
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::elementwise(3.0, inputs, outputs)
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        SHAPES.map(|s| Case::new(MseGrad, inputs(s, types))).into()
    }
}

const SHAPES: [[usize; 4]; 3] = [[2, 8, 8, 4], [3, 5, 7, 3], [1, 1, 1, 1]];

fn inputs(shape: [usize; 4], types: CaseTypes) -> Vec<(Meta, Fill)> {
    vec![normal(shape, types.activation), normal(shape, DType::F32), (Meta::new([shape[0]], DType::F32), Fill::Positive)]
}

impl Builder {
    /// Returns the loss [1] and the unweighted error of each item [B].
    pub fn mse(&mut self, pred: ValueId, target: ValueId, weight: ValueId) -> [ValueId; 2] {
        let outputs = self.push(Mse, &[pred, target, weight]);
        [outputs[0], outputs[1]]
    }
}
