//! How far a kernel may be from the oracle.

use base::DType;
use base::quantized::Scheme;
use graph::ops::CaseTypes;
use graph::{Array, Op};

/// Activation and weight types of the runs of every case.
pub const TYPES: [CaseTypes; 9] = [
    CaseTypes { activation: DType::F32, weight: DType::F32 },
    CaseTypes { activation: DType::BF16, weight: DType::BF16 },
    CaseTypes { activation: DType::F32, weight: DType::F16 },
    CaseTypes { activation: DType::F32, weight: DType::BF16 },
    CaseTypes { activation: DType::BF16, weight: DType::F16 },
    CaseTypes { activation: DType::BF16, weight: DType::F32 },
    CaseTypes { activation: DType::F16, weight: DType::F16 },
    CaseTypes { activation: DType::F16, weight: DType::BF16 },
    CaseTypes { activation: DType::F16, weight: DType::F32 },
];

const fn quantized(activation: DType, scheme: Scheme) -> CaseTypes {
    CaseTypes { activation, weight: DType::Quantized(scheme) }
}

/// The same for ops that read quantized matrices.
const QUANTIZED: [CaseTypes; 6] = [
    quantized(DType::F32, Scheme::Int8),
    quantized(DType::BF16, Scheme::Int8),
    quantized(DType::F16, Scheme::Int8),
    quantized(DType::F32, Scheme::Nf4),
    quantized(DType::BF16, Scheme::Nf4),
    quantized(DType::F16, Scheme::Nf4),
];

/// The types that the cases of an op are run in, by the op's name.
pub fn types(op: &str) -> Vec<CaseTypes> {
    let layer = matches!(op, "Linear" | "LinearGrad" | "Conv2d" | "Conv2dGrad");
    TYPES.into_iter().chain(QUANTIZED.into_iter().filter(|_| layer)).collect()
}

/// ‖got − want‖ / ‖want‖; NaN if either has a NaN.
pub fn relative_error(got: &Array, want: &Array) -> f64 {
    error_against(got, want, 0.0)
}

/// The size (root mean square) below which an op's output of this type counts as zero: what is left where terms of size 1 cancel, or
/// where the type runs out of digits.
pub fn floor(op: &Op, output: DType) -> f64 {
    // With one key P is 1, whatever q and k, so their gradients are differences of equal numbers.
    let cancelled = if matches!(op, Op::AttentionGrad(_)) { 0.1 } else { 0.0 };
    let denormal = if output == DType::F16 { 2f64.powi(-14) } else { 0.0 };
    f64::max(cancelled, denormal)
}

/// Root mean square.
pub fn size(array: &Array) -> f64 {
    let squares: f64 = array.data.iter().map(|v| f64::from(*v).powi(2)).sum();
    (squares / array.data.len().max(1) as f64).sqrt()
}

/// ‖got − want‖ / ‖want‖, where no element of `want` counts as smaller than `floor` on average.
pub fn error_against(got: &Array, want: &Array, floor: f64) -> f64 {
    assert_eq!(got.shape, want.shape);
    let square = |v: f64| v * v;
    let distance: f64 = got.data.iter().zip(&want.data).map(|(g, w)| square(f64::from(*g) - f64::from(*w))).sum();
    let size: f64 = want.data.iter().map(|w| square(f64::from(*w))).sum();
    let least = square(floor) * want.data.len() as f64;
    if distance == 0.0 { 0.0 } else { (distance / size.max(least).max(1e-30)).sqrt() }
}

/// Whether an op multiplies matrices, which in bf16 may round its factors once more.
fn multiplies(op: &Op) -> bool {
    matches!(op, Op::Linear(_) | Op::LinearGrad(_) | Op::Conv2d(_) | Op::Conv2dGrad(_) | Op::Attention(_) | Op::AttentionGrad(_))
}

/// The most that [`relative_error`] may be, for an output of type `output` of an op that works on `activation`s.
pub fn tolerance(op: &Op, activation: DType, output: DType) -> f64 {
    match (activation, output) {
        (DType::BF16, _) if multiplies(op) => 1e-2,
        // Half a unit in the last of 8 bits: what a single element may be off.
        (_, DType::BF16) => 4e-3,
        // The same of 11 bits.
        (_, DType::F16) => 5.2e-4,
        _ => 2e-5,
    }
}

/// The element type that an op works on: that of its first input.
pub fn activation(inputs: &[&graph::Meta]) -> DType {
    inputs[0].dtype
}
