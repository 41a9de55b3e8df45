//! Weighted mean of an error between prediction and target: loss = mean over items b of w[b] · e[b], with e[b] = mean over the item's
//! elements of m · ℓ(pred − target), where m is a weight for each pixel (1 without a mask).
//!
//! ```text
//! square          ℓ(d) = d²
//! absolute        ℓ(d) = |d|
//! pseudo-Huber    ℓ(d) = 2c (√(d² + c²) − c)      d² near 0, 2c·|d| far away; c for each item
//! ```
//! The pseudo-Huber error is Charbonnier's (Charbonnier et al., "Deterministic edge-preserving regularization in computed imaging",
//! 1997), in the scale that Stable Diffusion trainers give it.
//!
//! A loss op: the backward starts here, with 1 as the gradient of the loss.

use super::*;
use crate::builder::Builder;
use crate::graph::ValueId;

/// ℓ: how far a predicted number is from its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PixelError {
    Square,
    Absolute,
    PseudoHuber,
}

/// Inputs: pred [B, ...], target like pred in f32, w [B] f32; c [B] f32 for the pseudo-Huber error; m [B, ..., 1] f32 if masked.
/// Outputs: loss [1] f32, and e [B] f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    pub error: PixelError,
    pub masked: bool,
}

/// Inputs: those of the loss. Output: ∂pred = w[b] · m · ℓ'(pred − target) / (B · elements of an item).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossGrad {
    pub loss: Loss,
}

impl PixelError {
    /// ℓ(d); `c` matters to the pseudo-Huber error only. Written so that nothing cancels where d is small.
    pub fn value(self, d: f64, c: f64) -> f64 {
        match self {
            PixelError::Square => d * d,
            PixelError::Absolute => d.abs(),
            PixelError::PseudoHuber => 2.0 * c * d * d / ((d * d + c * c).sqrt() + c),
        }
    }

    /// ℓ'(d); 0 at the kink of |d|.
    pub fn slope(self, d: f64, c: f64) -> f64 {
        match self {
            PixelError::Square => 2.0 * d,
            PixelError::Absolute if d == 0.0 => 0.0,
            PixelError::Absolute => d / d.abs(),
            PixelError::PseudoHuber => 2.0 * c * d / (d * d + c * c).sqrt(),
        }
    }
}

impl Loss {
    pub const MSE: Loss = Loss { error: PixelError::Square, masked: false };

    /// Whether there is an input c.
    pub fn has_threshold(self) -> bool {
        self.error == PixelError::PseudoHuber
    }

    /// Place of the input m, if there is one.
    pub fn mask_at(self) -> Option<usize> {
        self.masked.then_some(3 + usize::from(self.has_threshold()))
    }

    fn check(self, inputs: &[&Meta]) {
        let (pred, target, w) = (inputs[0], inputs[1], inputs[2]);
        assert_eq!(pred.shape, target.shape, "loss: pred and target differ in shape");
        assert_eq!(w.shape.elements(), pred.shape.batch(), "loss: one weight for each item");
        if self.has_threshold() {
            assert_eq!(inputs[3].shape.elements(), pred.shape.batch(), "loss: one c for each item");
        }
        if let Some(mask) = self.mask_at() {
            assert_eq!(inputs[mask].shape.elements(), pred.shape.rows(), "loss: one weight for each pixel");
        }
    }

    /// Σ-ready terms: `term` of d and c at every element, times the mask.
    fn terms(self, inputs: &[&Array], term: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        let (pred, target) = (inputs[0], inputs[1]);
        let (size, channels) = (pred.data.len() / pred.shape.batch(), pred.shape.channels());
        let each = pred.data.iter().zip(&target.data).enumerate();
        each.map(|(i, (p, t))| {
            let c = if self.has_threshold() { f64::from(inputs[3].data[i / size]) } else { 0.0 };
            let mask = self.mask_at().map_or(1.0, |at| f64::from(inputs[at].data[i / channels]));
            mask * term(f64::from(p - t), c)
        })
        .collect()
    }
}

impl Rule for Loss {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        self.check(inputs);
        vec![Meta::new([1], DType::F32), Meta::new([inputs[0].shape.batch()], DType::F32)]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let batch = inputs[0].shape.batch();
        let terms = self.terms(inputs, |d, c| self.error.value(d, c));
        let mean = |item: &[f64]| (item.iter().sum::<f64>() / item.len() as f64) as f32;
        let errors: Vec<f32> = terms.chunks_exact(terms.len() / batch).map(mean).collect();
        let loss = errors.iter().zip(&inputs[2].data).map(|(e, w)| e * w).sum::<f32>() / batch as f32;
        vec![Array::new([1], vec![loss]), Array::new([batch], errors)]
    }

    fn gradient(&self, g: &mut Adjoint) {
        let inputs = g.inputs.clone();
        let d_pred = g.push(LossGrad { loss: *self }, &inputs);
        g.set(0, d_pred[0]);
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::new(self.operations() * inputs[0].shape.elements() as f64, inputs, outputs)
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        every(types).map(|(loss, inputs)| Case::new(loss, inputs)).collect()
    }
}

impl Rule for LossGrad {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        self.loss.check(inputs);
        vec![inputs[0].clone()]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let (pred, w) = (inputs[0], inputs[2]);
        let (all, size) = (pred.data.len() as f64, pred.data.len() / pred.shape.batch());
        let slopes = self.loss.terms(inputs, |d, c| self.loss.error.slope(d, c));
        let data = slopes.iter().enumerate().map(|(i, slope)| (f64::from(w.data[i / size]) * slope / all) as f32).collect();
        vec![Array::new(pred.shape.clone(), data)]
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::elementwise(self.loss.operations(), inputs, outputs)
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        every(types).map(|(loss, inputs)| Case::new(LossGrad { loss }, inputs)).collect()
    }
}

impl Loss {
    /// Floating-point operations for each element.
    fn operations(self) -> f64 {
        let error = if self.has_threshold() { 8.0 } else { 3.0 };
        error + f64::from(u8::from(self.masked))
    }

    /// Inputs of a test case at `shape`. Differences lie far from the kink of |d|, where it has no slope to check.
    pub fn case_inputs(self, shape: &[usize], types: CaseTypes) -> Vec<(Meta, Fill)> {
        let spread = if self.error == PixelError::Absolute { 100.0 } else { 1.0 };
        let of = |shape: &[usize], dtype, fill| (Meta::new(base::Shape::new(shape), dtype), fill);
        let mut inputs = vec![of(shape, types.activation, Fill::Normal(spread)), of(shape, DType::F32, Fill::Normal(1.0))];
        inputs.push(of(&shape[..1], DType::F32, Fill::Positive));
        if self.has_threshold() {
            inputs.push(of(&shape[..1], DType::F32, Fill::Positive));
        }
        if self.masked {
            let mut pixels = shape.to_vec();
            pixels[shape.len() - 1] = 1;
            inputs.push(of(&pixels, DType::F32, Fill::Positive));
        }
        inputs
    }
}

const SHAPES: [[usize; 4]; 3] = [[2, 8, 8, 4], [3, 5, 7, 3], [1, 1, 1, 1]];

/// Every error with and without a mask, at every shape.
fn every(types: CaseTypes) -> impl Iterator<Item = (Loss, Vec<(Meta, Fill)>)> {
    let errors = [PixelError::Square, PixelError::Absolute, PixelError::PseudoHuber];
    let all = errors.into_iter().flat_map(|error| [false, true].map(|masked| Loss { error, masked }));
    all.flat_map(move |loss| SHAPES.map(|shape| (loss, loss.case_inputs(&shape, types))))
}

/// The inputs of a loss.
#[derive(Clone, Copy, Debug)]
pub struct LossInputs {
    pub pred: ValueId,
    pub target: ValueId,
    /// w.
    pub weight: ValueId,
    /// c; given if the error is the pseudo-Huber one.
    pub threshold: Option<ValueId>,
    /// m.
    pub mask: Option<ValueId>,
}

impl Builder {
    /// Returns the loss [1] and the unweighted error of each item [B].
    pub fn loss(&mut self, error: PixelError, inputs: LossInputs) -> [ValueId; 2] {
        let loss = Loss { error, masked: inputs.mask.is_some() };
        assert_eq!(loss.has_threshold(), inputs.threshold.is_some(), "loss: c belongs to the pseudo-Huber error");
        let mut values = vec![inputs.pred, inputs.target, inputs.weight];
        values.extend(inputs.threshold);
        values.extend(inputs.mask);
        let outputs = self.push(loss, &values);
        [outputs[0], outputs[1]]
    }

    /// The mean squared error: [`Builder::loss`] in its commonest form.
    pub fn mse(&mut self, pred: ValueId, target: ValueId, weight: ValueId) -> [ValueId; 2] {
        self.loss(PixelError::Square, LossInputs { pred, target, weight, threshold: None, mask: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_slopes_have_their_values_computed_by_hand() {
        // √(3² + 4²) = 5: 2·4·(5 − 4) = 8, slope 2·4·3/5.
        assert_eq!((PixelError::PseudoHuber.value(3.0, 4.0), PixelError::PseudoHuber.slope(-3.0, 4.0)), (8.0, -4.8));
        // Near zero it is d², and nothing cancels.
        assert!((PixelError::PseudoHuber.value(1e-9, 0.1) / 1e-18 - 1.0).abs() < 1e-6);
        assert_eq!((PixelError::Absolute.value(-2.5, 0.0), PixelError::Absolute.slope(-2.5, 0.0)), (2.5, -1.0));
        assert_eq!(PixelError::Absolute.slope(0.0, 0.0), 0.0);
        assert_eq!((PixelError::Square.value(-3.0, 0.0), PixelError::Square.slope(-3.0, 0.0)), (9.0, -6.0));
    }

    #[test]
    fn a_mask_weighs_pixels_in_all_their_channels() {
        let array = |shape: &[usize], data: &[f32]| Array::new(base::Shape::new(shape), data.to_vec());
        let (pred, target) = (array(&[1, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0]), array(&[1, 1, 2, 2], &[0.0; 4]));
        let (weight, mask) = (array(&[1], &[2.0]), array(&[1, 1, 2, 1], &[0.5, 0.0]));
        let loss = Loss { error: PixelError::Square, masked: true };
        let inputs = [&pred, &target, &weight, &mask];
        // ½·(1 + 4) over four elements.
        assert_eq!(loss.evaluate(&inputs)[0].data, [2.0 * 2.5 / 4.0]);
        assert_eq!(LossGrad { loss }.evaluate(&inputs)[0].data, [0.5, 1.0, 0.0, 0.0]);
    }
}
