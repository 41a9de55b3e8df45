//! Every op × its cases × element types on the CPU backend, against the oracle.

use base::DType;
use conform::compare::{TYPES, activation, error_against, floor, size, tolerance, types};
use conform::isolated::{Isolated, Outcome};
use conform::values::{decode, evaluate, input_metas, inputs, rounded};
use conform::{large, rng};
use cpu::Cpu;
use cpu::isa::Isa;
use graph::ops::{self, Case, CaseTypes, Rule};
use graph::{Array, Meta, Op, for_each_op};

type Cases = fn(CaseTypes) -> Vec<Case>;

fn all_cases(name: &str, cases: Cases) -> Vec<Case> {
    types(name).into_iter().flat_map(|types| cases(types).into_iter().chain(large::cases(name, types))).collect()
}

fn cpu(threads: usize) -> Cpu {
    Cpu::with_threads(threads).expect("a machine with threads")
}

/// Checks every output of a run against the oracle.
fn check(case: &Case, wanted: &[Array], outcome: &Outcome, mode: &str) {
    for (i, (want, meta)) in wanted.iter().zip(&outcome.metas).enumerate() {
        let before = outcome.before[i].as_ref();
        let want = before.map_or_else(|| want.clone(), |b| b.zip(want, |b, w| b + w));
        // Where what is added nearly cancels what was there, errors are as large as either.
        let least = before.map_or(0.0, size).max(floor(&case.op, meta.dtype));
        let error = error_against(&decode(meta, &outcome.bytes[i]), &want, least);
        let most = tolerance(&case.op, activation(&input_metas(case)), meta.dtype);
        let form: Vec<String> = case.inputs.iter().map(|(m, _)| format!("{} {}", m.shape, m.dtype)).collect();
        assert!(error <= most, "{mode}: {:?} on {form:?}: output {i} is off by {error:.2e}, allowed is {most:.0e}", case.op);
    }
}

fn compare(name: &str, cases: Cases) {
    let mut rng = rng(name);
    let machine = |isa: &Isa| (isa.name(), Cpu::with_isa(2, *isa).expect("a machine with threads"));
    let mut machines: Vec<(&str, Cpu)> = Isa::available().iter().map(machine).collect();
    for case in all_cases(name, cases) {
        let inputs = inputs(&case, &mut rng);
        let op = Isolated { op: &case.op, metas: input_metas(&case), inputs: &inputs, in_place: None };
        let wanted = evaluate(&case.op, &inputs);
        for (isa, cpu) in &mut machines {
            // What one machine draws must not depend on which others there are.
            check(&case, &wanted, &op.run(cpu, &mut rng.clone()), isa);
        }
    }
}

fn in_place(name: &str, cases: Cases) {
    let (mut rng, mut cpu) = (rng(name), cpu(2));
    for case in all_cases(name, cases) {
        let metas = input_metas(&case);
        let bytes = case.op.rule().outputs(&metas)[0].bytes();
        for input in case.op.rule().in_place().iter().filter(|i| metas[**i].bytes() == bytes) {
            let inputs = inputs(&case, &mut rng);
            let op = Isolated { op: &case.op, metas: metas.clone(), inputs: &inputs, in_place: Some(*input) };
            check(&case, &evaluate(&case.op, &inputs), &op.run(&mut cpu, &mut rng), &format!("in place of input {input}"));
        }
    }
}

/// The thread count must not change a bit.
fn threads(name: &str, cases: Cases) {
    let mut draw = rng(name);
    let mut machines = [1, 2, 3].map(cpu);
    for case in all_cases(name, cases) {
        let inputs = inputs(&case, &mut draw);
        let op = Isolated { op: &case.op, metas: input_metas(&case), inputs: &inputs, in_place: None };
        let [one, two, three] = machines.each_mut().map(|cpu| op.run(cpu, &mut draw.clone()).bytes);
        assert!(one == two && one == three, "{:?}: the result depends on the number of threads", case.op);
    }
}

/// A NaN in an input must show in every output element that it shows in by the oracle.
fn nan(name: &str, cases: Cases) {
    let (mut rng, mut cpu) = (rng(name), cpu(2));
    for case in types(name).into_iter().flat_map(cases) {
        // Quantized weights are never anything but numbers: they are refused when they are loaded.
        let holds_nan = |meta: &Meta| !matches!(meta.dtype, DType::U32 | DType::Quantized(_));
        for (i, (meta, _)) in case.inputs.iter().enumerate().filter(|(_, (m, _))| holds_nan(m)) {
            let mut inputs = inputs(&case, &mut rng);
            let at = rng.below(meta.shape.elements() as u64) as usize;
            inputs[i].data[at] = f32::NAN;
            let op = Isolated { op: &case.op, metas: input_metas(&case), inputs: &inputs, in_place: None };
            let outcome = op.run(&mut cpu, &mut rng);
            for (o, (want, meta)) in evaluate(&case.op, &inputs).iter().zip(&outcome.metas).enumerate() {
                let got = decode(meta, &outcome.bytes[o]);
                let hidden = want.data.iter().zip(&got.data).position(|(w, g)| w.is_nan() && !g.is_nan());
                assert!(hidden.is_none(), "{:?}: NaN in input {i} does not reach element {hidden:?} of output {o}", case.op);
            }
        }
    }
}

/// Where the oracle's result is not finite because an activation is infinite, the kernel's is not finite either.
#[test]
fn an_infinite_activation_is_never_hidden_by_a_layer() {
    let (mut rng, mut cpu) = (rng("infinity"), cpu(2));
    let layers: [(&str, Cases); 4] = [
        ("Linear", ops::Linear::cases),
        ("LinearGrad", ops::LinearGrad::cases),
        ("Conv2d", ops::Conv2d::cases),
        ("Conv2dGrad", ops::Conv2dGrad::cases),
    ];
    for (name, cases) in layers {
        for case in types(name).into_iter().flat_map(cases) {
            let mut inputs = inputs(&case, &mut rng);
            let at = rng.below(inputs[0].data.len() as u64) as usize;
            inputs[0].data[at] = f32::INFINITY;
            let op = Isolated { op: &case.op, metas: input_metas(&case), inputs: &inputs, in_place: None };
            let outcome = op.run(&mut cpu, &mut rng);
            let mut shown = 0;
            for (o, (want, meta)) in evaluate(&case.op, &inputs).iter().zip(&outcome.metas).enumerate() {
                let got = decode(meta, &outcome.bytes[o]);
                let hidden = want.data.iter().zip(&got.data).position(|(w, g)| !w.is_finite() && g.is_finite());
                assert!(hidden.is_none(), "{:?}: infinity does not reach element {hidden:?} of output {o}", case.op);
                shown += got.data.iter().filter(|g| !g.is_finite()).count();
            }
            assert!(shown > 0, "{:?}: infinity in input 0 reaches no output", case.op);
        }
    }
}

/// The input whose size the op's outputs follow.
fn driving(op: &Op) -> usize {
    // Larger queries or keys would only make the softmax sharper.
    if matches!(op, Op::Attention(_)) { 2 } else { 0 }
}

/// Activations near the end of f16's range: what the oracle puts beyond it is an infinity of its sign, what lies within is a number
/// near it. On every path.
fn overflow(name: &str, cases: Cases) {
    const LARGEST: f32 = 65504.0;
    const FACTOR: f32 = 2e4;
    let mut rng = rng(name);
    let machine = |isa: &Isa| (isa.name(), Cpu::with_isa(2, *isa).expect("a machine with threads"));
    let mut machines: Vec<(&str, Cpu)> = Isa::available().iter().map(machine).collect();
    let types = CaseTypes { activation: DType::F16, weight: DType::F16 };
    let half = |case: &Case| case.inputs[driving(&case.op)].0.dtype == DType::F16;
    for case in cases(types).into_iter().chain(large::cases(name, types)).filter(half) {
        let mut inputs = inputs(&case, &mut rng);
        inputs[driving(&case.op)].data.iter_mut().for_each(|x| *x = (*x * FACTOR).clamp(-LARGEST, LARGEST));
        let metas = input_metas(&case);
        let inputs: Vec<Array> = inputs.iter().zip(&metas).map(|(array, meta)| rounded(meta, array)).collect();
        let op = Isolated { op: &case.op, metas, inputs: &inputs, in_place: None };
        let wanted = evaluate(&case.op, &inputs);
        for (isa, cpu) in &mut machines {
            let outcome = op.run(cpu, &mut rng.clone());
            let halves = wanted.iter().zip(outcome.metas.iter().zip(&outcome.bytes)).filter(|(_, (meta, _))| meta.dtype == DType::F16);
            for (want, (meta, bytes)) in halves {
                let spread = size(&want.map(|w| w.clamp(-LARGEST, LARGEST))) as f32 + FACTOR * floor(&case.op, meta.dtype) as f32;
                for (i, (want, got)) in want.data.iter().zip(decode(meta, bytes).data).enumerate() {
                    // Next to the border either is right.
                    let right = if want.abs() > LARGEST * 1.002 {
                        got == f32::INFINITY.copysign(*want)
                    } else {
                        (got - want).abs() <= 2e-3 * (want.abs() + spread) || want.abs() > LARGEST * 0.998
                    };
                    assert!(right, "{isa}: {:?}: element {i} is {got}, where {want} is right", case.op);
                }
            }
        }
    }
}

/// Ways to convolve that work on many pixels at once must not spread a number that is not finite.
#[test]
fn a_number_that_is_not_finite_goes_as_far_as_the_kernel_reaches_and_no_farther() {
    let (mut rng, mut cpu) = (rng("reach"), cpu(2));
    for name in ["Conv2d", "Conv2dGrad"] {
        for case in large::cases(name, TYPES[0]).into_iter().chain(large::cases(name, TYPES[1])) {
            for number in [f32::NAN, f32::INFINITY] {
                let mut inputs = inputs(&case, &mut rng);
                let at = rng.below(inputs[0].data.len() as u64) as usize;
                inputs[0].data[at] = number;
                let op = Isolated { op: &case.op, metas: input_metas(&case), inputs: &inputs, in_place: None };
                let outcome = op.run(&mut cpu, &mut rng);
                let want = &evaluate(&case.op, &inputs)[0];
                let got = decode(&outcome.metas[0], &outcome.bytes[0]);
                let differs = want.data.iter().zip(&got.data).position(|(w, g)| w.is_finite() != g.is_finite());
                assert!(differs.is_none(), "{:?}: {number} in input 0 at {at}: element {differs:?} of the output", case.op);
                assert!(want.data.iter().any(|w| !w.is_finite()), "{:?}: {number} reaches nothing", case.op);
            }
        }
    }
}

macro_rules! modes {
    ($mode:ident, $($name:ident),*) => {
        mod $mode {
            use super::*;
            $(#[test] #[allow(non_snake_case)] fn $name() { super::$mode(stringify!($name), ops::$name::cases); })*
        }
    };
}

macro_rules! tests {
    ($($name:ident),*) => {
        modes!(compare, $($name),*);
        modes!(in_place, $($name),*);
        modes!(threads, $($name),*);
        modes!(nan, $($name),*);
        modes!(overflow, $($name),*);
    };
}

for_each_op!(tests);

#[test]
fn an_id_outside_of_the_table_is_an_error_that_names_it() {
    let types = TYPES[0];
    let case = ops::Embedding::cases(types).remove(0);
    let mut inputs = inputs(&case, &mut rng("embedding id"));
    inputs[0].data[3] = 50.0;
    let op = Isolated { op: &case.op, metas: input_metas(&case), inputs: &inputs, in_place: None };
    let message = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| op.run(&mut cpu(1), &mut rng("embedding id"))));
    let message = message.err().expect("the id is too large").downcast::<String>().unwrap();
    assert!(message.contains("id 50") && message.contains("Embedding"), "{message}");
}

#[test]
fn every_op_has_a_case_in_every_type() {
    for types in TYPES {
        let names: std::collections::BTreeSet<&str> = Op::all_cases(types).iter().map(|c| c.op.name()).collect();
        assert!(names.contains("GroupNorm") && names.len() >= 29, "{names:?}");
    }
}
