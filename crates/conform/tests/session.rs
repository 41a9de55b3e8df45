//! Sessions on the CPU: programs that share parameters and an arena, their exact memory, and gradients that add up over runs.

use anyhow::{Context, Result};
use base::DType;
use conform::compare::relative_error;
use conform::random_graph::RandomGraph;
use conform::rng;
use conform::values::encode;
use cpu::Cpu;
use engine::session::Data;
use engine::{Program, Session, WeightSource};
use graph::{Array, Graph, Meta, Recompute, Source, differentiate};

/// The weights of a random graph as a checkpoint.
struct Weights<'a>(&'a RandomGraph);

impl WeightSource for Weights<'_> {
    fn read(&self, name: &str, meta: &Meta, out: &mut [u8]) -> Result<()> {
        out.copy_from_slice(&encode(meta, self.0.leaf(&Source::Weight(name.into()))));
        Ok(())
    }
}

/// An input's content as a session takes it.
enum Owned {
    F32(Vec<f32>),
    U32(Vec<u32>),
}

impl Owned {
    fn data(&self) -> Data<'_> {
        match self {
            Owned::F32(values) => Data::F32(values),
            Owned::U32(values) => Data::U32(values),
        }
    }
}

fn inputs(random: &RandomGraph, graph: &Graph) -> Vec<(String, Owned)> {
    let data = |(name, id): (&str, graph::ValueId)| {
        let values = random.leaf(&Source::Input(name.into())).data.clone();
        let words = || values.iter().map(|v| *v as u32).collect();
        (name.to_owned(), if graph.meta(id).dtype == DType::U32 { Owned::U32(words()) } else { Owned::F32(values) })
    };
    graph.inputs().map(data).collect()
}

fn run(session: &mut Session, program: &str, inputs: &[(String, Owned)]) -> Result<()> {
    let named: Vec<(&str, Data)> = inputs.iter().map(|(name, owned)| (name.as_str(), owned.data())).collect();
    let number = session.find(program).context("an unknown program")?;
    session.run(number, &named)
}

/// All parameters, or their gradients, in the session's order.
fn flat(session: &Session, of: impl Fn(&str) -> Array) -> Vec<f32> {
    session.params().iter().flat_map(|place| of(&place.name).data).collect()
}

#[test]
fn a_session_runs_programs_like_the_oracle_in_the_memory_that_it_stated() {
    let mut rng = rng("sessions");
    for number in 0..20 {
        let random = RandomGraph::new(DType::F32, &mut rng);
        let train = differentiate(random.graph.clone(), random.loss, &Recompute::all(&random.graph));
        let backend = Cpu::with_threads(2).expect("a machine with threads");
        let programs = vec![Program::new("sample", random.graph.clone(), &backend), Program::new("train", train.clone(), &backend)];
        let mut session = Session::new(Box::new(backend), programs, &Weights(&random)).expect("memory for a test");
        assert_eq!(session.memory().total(), session.allocated_bytes(), "graph {number}");

        let params = flat(&session, |name| random.leaf(&Source::Param(name.into())).clone());
        session.set_params(&params).expect("as many as there are");
        session.clear_gradients().expect("a session that trains");
        let want = random.run(&train);
        for _ in 0..3 {
            run(&mut session, "sample", &inputs(&random, &random.graph)).expect("all inputs");
            let pred = session.output(session.find("sample").expect("a program"), "pred").expect("an output");
            let shape = want.output("pred").shape.clone();
            assert!(relative_error(&Array::new(shape, pred), want.output("pred")) < 1e-3, "graph {number}");
            run(&mut session, "train", &inputs(&random, &train)).expect("all inputs");
        }
        let gradient = |name: &str| {
            let zeros = || Array::zeros(random.leaf(&Source::Param(name.into())).shape.clone());
            want.gradients.get(name).cloned().unwrap_or_else(zeros).map(|g| 3.0 * g)
        };
        let want = flat(&session, gradient);
        let mut got = vec![0.0; want.len()];
        session.read_gradients(&mut got).expect("a session that trains");
        let error = relative_error(&Array::new([got.len()], got), &Array::new([want.len()], want));
        assert!(error < 1e-3, "graph {number}: three runs' gradients are off by {error:.1e}");
    }
}
