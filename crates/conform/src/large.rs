//! Cases that are larger than a kernel's piece of work: they run on several threads, and their reductions join several pieces.

use base::{DType, Shape};
use graph::ops::*;
use graph::{Meta, Op};

fn tensor(shape: &[usize], dtype: DType) -> (Meta, Fill) {
    (Meta::new(Shape::new(shape), dtype), Fill::Normal(1.0))
}

/// Case of an op on inputs of spread 1.
fn case(op: impl Into<Op>, inputs: Vec<(Meta, Fill)>) -> Case {
    Case::new(op, inputs)
}

/// 3×3 convolutions with several blocks of channels, several groups of tiles, tiles that overlap the edge, and panels that are not full:
/// batch, output, channels in and out, and padding.
const CONVOLUTIONS: [([usize; 3], [usize; 2], Padding); 3] = [
    ([2, 15, 18], [140, 50], Padding::same(1)),
    ([1, 39, 41], [33, 32], Padding::same(0)),
    ([3, 9, 14], [40, 67], Padding { top: 0, bottom: 2, left: 2, right: 1 }),
];

/// x, or the gradient of the output, and the kernel.
fn convolution(types: CaseTypes, [batch, height, width]: [usize; 3], channels: usize, kernel: [usize; 2]) -> Vec<(Meta, Fill)> {
    let fan_in = (9 * kernel[1]) as f32;
    let kernel = Meta::new(Shape::new(&[kernel[0], 3, 3, kernel[1]]), types.weight);
    vec![tensor(&[batch, height, width, channels], types.activation), (kernel, Fill::Normal(1.0 / fan_in.sqrt()))]
}

fn forward(types: CaseTypes, ([batch, height, width], [from, to], padding): ([usize; 3], [usize; 2], Padding)) -> Case {
    let size = [batch, height + 2 - padding.top - padding.bottom, width + 2 - padding.left - padding.right];
    let mut inputs = convolution(types, size, from, [to, from]);
    inputs.push(tensor(&[to], DType::F32));
    case(Conv2d { stride: 1, padding, bias: true, lora: None }, inputs)
}

fn backward(types: CaseTypes, (out, [from, to], padding): ([usize; 3], [usize; 2], Padding)) -> Case {
    let size = [out[1] + 2 - padding.top - padding.bottom, out[2] + 2 - padding.left - padding.right];
    let inputs = convolution(types, out, to, [to, from]);
    case(Conv2dGrad { stride: 1, padding, size, input: true, lora: None }, inputs)
}

/// Large cases of `op`, by its name; none for ops whose own cases are large enough or that never are large.
pub fn cases(op: &str, types: CaseTypes) -> Vec<Case> {
    let act = |shape: &[usize]| tensor(shape, types.activation);
    let float = |shape: &[usize]| tensor(shape, DType::F32);
    let positive = |shape: &[usize]| (Meta::new(Shape::new(shape), DType::F32), Fill::Positive);
    let kinds = [ActivationKind::Silu, ActivationKind::Gelu, ActivationKind::QuickGelu];
    let losses = [Loss::MSE, Loss { error: PixelError::Absolute, masked: false }, Loss { error: PixelError::PseudoHuber, masked: true }];
    let (map, flat) = ([2, 23, 31, 96], [2, 700, 65]);
    match op {
        "Activation" => kinds.map(|kind| case(Activation { kind }, vec![act(&flat)])).into(),
        "ActivationGrad" => kinds.map(|kind| case(ActivationGrad { kind }, vec![act(&flat), act(&flat)])).into(),
        "Add" => vec![case(Add, vec![act(&flat), act(&flat)])],
        "AddChannels" => {
            vec![case(AddChannels, vec![act(&map), act(&[2, 96])]), case(AddChannels, vec![act(&[3, 900, 33]), act(&[3, 33])])]
        }
        "SumTokens" => vec![case(SumTokens, vec![act(&map)]), case(SumTokens, vec![act(&[3, 900, 33])])],
        "Cast" => [DType::F32, DType::BF16, DType::F16].map(|to| case(Cast { to }, vec![act(&flat)])).into(),
        "Concat" => vec![case(Concat, vec![act(&map), act(&[2, 23, 31, 37])])],
        "Conv2d" => CONVOLUTIONS.map(|c| forward(types, c)).into(),
        "Conv2dGrad" => CONVOLUTIONS.map(|c| backward(types, c)).into(),
        "Geglu" => vec![case(Geglu, vec![act(&[3, 200, 2 * 131])])],
        "GegluGrad" => vec![case(GegluGrad, vec![act(&[3, 200, 131]), act(&[3, 200, 2 * 131])])],
        "GroupNorm" => [true, false]
            .map(|silu| case(GroupNorm { groups: 32, eps: 1e-6, silu }, vec![act(&map), float(&[96]), float(&[96])]))
            .into_iter()
            .chain([case(GroupNorm { groups: 3, eps: 1e-6, silu: true }, vec![act(&[2, 40, 33, 15]), float(&[15]), float(&[15])])])
            .collect(),
        "GroupNormGrad" => [true, false]
            .map(|silu| {
                let inputs = vec![act(&map), act(&map), float(&[96]), float(&[96]), positive(&[2, 32, 2])];
                case(GroupNormGrad { groups: 32, silu }, inputs)
            })
            .into(),
        "LayerNorm" => vec![case(LayerNorm { eps: 1e-5 }, vec![act(&[2, 300, 200]), float(&[200]), float(&[200])])],
        "LayerNormGrad" => vec![case(LayerNormGrad, vec![act(&[2, 300, 200]), act(&[2, 300, 200]), float(&[200]), positive(&[600, 2])])],
        "Loss" => losses.map(|loss| case(loss, loss.case_inputs(&map, types))).into(),
        "LossGrad" => losses.map(|loss| case(LossGrad { loss }, loss.case_inputs(&map, types))).into(),
        "Reshape" => vec![case(Reshape { to: Shape::from([2 * 700, 65]) }, vec![act(&flat)])],
        "Scale" => vec![case(Scale { factor: 1.7 }, vec![act(&flat)])],
        "Slice" => vec![case(Slice { start: 11, channels: 50 }, vec![act(&[2, 900, 77])])],
        "SliceGrad" => vec![case(SliceGrad { start: 11, total: 77 }, vec![act(&[2, 900, 50])])],
        "Upsample" => vec![case(Upsample { size: [46, 62] }, vec![act(&map)])],
        "UpsampleGrad" => vec![case(UpsampleGrad { size: [23, 31] }, vec![act(&[2, 46, 62, 40])])],
        _ => Vec::new(),
    }
}
