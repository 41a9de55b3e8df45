//! The gradient rule of every op against finite differences, and recomputed segments against kept ones.

use base::DType;
use conform::finite::{check, differentiable_inputs};
use conform::random_graph::RandomGraph;
use conform::rng;
use graph::ops::CaseTypes;
use graph::{Op, Recompute, differentiate, verify::verify};
use std::collections::BTreeSet;

const TYPES: CaseTypes = CaseTypes { activation: DType::F32, weight: DType::F32 };

#[test]
fn gradients_of_every_op_agree_with_finite_differences() {
    let mut rng = rng("finite differences");
    let mut checked = BTreeSet::new();
    // A cast to half the bits rounds away the small steps.
    let cases = Op::all_cases(TYPES).into_iter().filter(|c| !matches!(&c.op, Op::Cast(cast) if cast.to != DType::F32));
    for case in cases {
        let inputs = differentiable_inputs(&case.op);
        let alone = inputs.iter().map(|i| vec![*i]);
        let together = (inputs.len() > 1).then(|| inputs.clone());
        for trained in alone.chain(together) {
            checked.insert(case.op.name());
            let form: Vec<String> = case.inputs.iter().map(|(m, _)| m.shape.to_string()).collect();
            check(&case, &trained, 3, &mut rng).unwrap_or_else(|e| panic!("{:?} on {form:?}, inputs {trained:?}: {e}", case.op));
        }
    }
    assert_eq!(checked.len(), 16, "{checked:?}");
}

#[test]
fn recomputed_segments_give_the_same_gradients() {
    let mut rng = rng("recompute");
    for number in 0..40 {
        let random = RandomGraph::new(DType::F32, &mut rng);
        let kept = differentiate(random.graph.clone(), random.loss, &Recompute::none());
        let expected = random.run(&kept);
        assert!(!expected.gradients.is_empty());
        let some = Recompute((0..random.graph.segments.len() as u32).filter(|_| rng.below(2) == 1).collect());
        for recompute in [Recompute::all(&random.graph), some] {
            let again = differentiate(random.graph.clone(), random.loss, &recompute);
            verify(&again).unwrap_or_else(|e| panic!("graph {number}: {e}"));
            let run = random.run(&again);
            assert_eq!(run.gradients, expected.gradients, "graph {number}, {recompute:?}");
            assert_eq!(run.output("loss"), expected.output("loss"));
        }
    }
}
