//! What the tests share: the golden files and their tiny models, on the CPU backend.
#![allow(dead_code)]

use base::DType;
use cpu::Cpu;
use cpu::isa::Isa;
use engine::session::Data;
use engine::{Program, Session};
use graph::ops::{Loss, LossInputs};
use graph::{Builder, Graph, ValueId};
use models::{Adapters, Net, StableDiffusion, clip, unet};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use velatura_train::source::{Source, Stored};
use weights::Checkpoint;
use weights::safetensors::File;

pub const STYLES: [&str; 2] = ["sd1", "sd2"];
pub const DTYPES: [DType; 3] = [DType::F32, DType::BF16, DType::F16];

pub fn golden(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../conform/tests/golden").join(path)
}

/// A golden file: made by PyTorch, in its layouts.
pub struct Golden(File);

impl Golden {
    pub fn open(path: &str) -> Golden {
        Golden(File::open(&golden(path)).unwrap())
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.names()
    }

    /// Elements in memory order: four axes [N, C, H, W] become [N, H, W, C].
    pub fn values(&self, name: &str) -> Vec<f32> {
        let tensor = self.0.tensor(name).unwrap();
        base::dtype::to_f32(tensor.dtype, &tensor.to_channels_last()).unwrap()
    }

    pub fn whole_numbers(&self, name: &str) -> Vec<u32> {
        self.values(name).into_iter().map(|v| v as u32).collect()
    }

    /// Axes in memory order.
    pub fn dims(&self, name: &str) -> Vec<usize> {
        match *self.0.tensor(name).unwrap().shape.dims() {
            [n, c, h, w] => vec![n, h, w, c],
            ref dims => dims.to_vec(),
        }
    }
}

/// A tiny model of the golden files. It has no tokenizer: captions play no part here.
pub struct Tiny {
    pub style: &'static str,
    /// The path of the kernels that it runs on.
    pub isa: Isa,
    pub source: Arc<Source>,
    pub parts: StableDiffusion,
    pub stored: Stored,
}

impl Tiny {
    pub fn open(style: &'static str, isa: Isa) -> Tiny {
        let model = Checkpoint::open(&golden(style).join("model")).unwrap();
        let parts = StableDiffusion::of_checkpoint(&model).unwrap();
        Tiny { style, isa, source: Arc::new(Source::new(model, None)), parts, stored: Stored::default() }
    }

    /// A graph of this model, its matrices stored as a run stores them.
    pub fn graph(&self, dtype: DType, adapters: &Adapters, body: impl FnOnce(&mut Net) -> BTreeMap<&'static str, ValueId>) -> Graph {
        let (source, stored) = (Arc::clone(&self.source), self.stored);
        let mut b = Builder::new(dtype, Box::new(move |name| source.stored_dtype(name, stored, dtype)));
        let mut net = Net::new(&mut b, adapters);
        let outputs = body(&mut net);
        for (name, value) in outputs {
            let value = b.cast(value, DType::F32);
            b.output(name, value);
        }
        b.finish()
    }

    pub fn backend(&self) -> Box<Cpu> {
        Box::new(Cpu::with_isa(2, self.isa).unwrap())
    }

    pub fn session(&self, graph: Graph) -> Session {
        let backend = self.backend();
        let program = Program::new("test", graph, backend.as_ref());
        Session::new(backend, vec![program], self.source.as_ref()).unwrap()
    }

    /// The forward of a training step up to the loss, whose value comes with it. Text enters as `ids` if the text encoder is adapted.
    pub fn training_forward(&self, dtype: DType, adapters: &Adapters, form: [usize; 3], tokens: usize) -> (Graph, ValueId) {
        self.forward_to(Loss::MSE, dtype, adapters, (form, tokens))
    }

    /// The same up to another loss.
    pub fn forward_to(&self, error: Loss, dtype: DType, adapters: &Adapters, (form, tokens): ([usize; 3], usize)) -> (Graph, ValueId) {
        let (source, stored) = (Arc::clone(&self.source), self.stored);
        let mut b = Builder::new(dtype, Box::new(move |name| source.stored_dtype(name, stored, dtype)));
        let mut net = Net::new(&mut b, adapters);
        let [batch, height, width] = form;
        let encoded = !adapters.of_component("text_encoder").is_empty();
        let mut inputs = unet::inputs(&mut net, &self.parts.unet, batch, [height, width], tokens);
        if encoded {
            let ids = clip::ids_input(&mut net, batch, tokens);
            inputs.context = clip::forward(&mut net, &self.parts.text_encoder, ids, 1);
        }
        let prediction = unet::forward(&mut net, &self.parts.unet, inputs);
        let target = b.input("target", b.shape(prediction).clone(), DType::F32);
        let weight = b.input("weight", [batch], DType::F32);
        let threshold = error.has_threshold().then(|| b.input("threshold", [batch], DType::F32));
        let mask = error.masked.then(|| b.input("mask", [batch, height, width, 1], DType::F32));
        let [loss, _] = b.loss(error.error, LossInputs { pred: prediction, target, weight, threshold, mask });
        b.output("loss", loss);
        (b.finish(), loss)
    }
}

impl std::fmt::Display for Tiny {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}", self.style, self.isa.name())
    }
}

/// Both styles in both types, on every path of the kernels that this machine has.
pub fn cases() -> Vec<(Tiny, DType)> {
    let styles = STYLES.into_iter().flat_map(|style| DTYPES.map(|dtype| (style, dtype)));
    styles.flat_map(|(style, dtype)| Isa::available().into_iter().map(move |isa| (Tiny::open(style, isa), dtype))).collect()
}

/// Runs the only program of a session.
pub fn run(session: &mut Session, inputs: &[(&str, Data)], output: &str) -> Vec<f32> {
    session.run(0, inputs).unwrap();
    session.output(0, output).unwrap()
}

/// ‖a − b‖ / ‖b‖
pub fn relative_l2(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |v: f64| v * v;
    let difference: f64 = a.iter().zip(b).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let size: f64 = b.iter().map(|b| square(f64::from(*b))).sum();
    (difference / size).sqrt()
}

pub fn assert_close(what: &str, a: &[f32], b: &[f32], limit: f64) {
    let distance = relative_l2(a, b);
    assert!(distance < limit, "{what}: relative distance {distance:.2e}, limit {limit:.0e}");
}

/// All of a session's parameters in one group.
pub fn layout(session: &Session) -> optim::Layout {
    optim::Layout::uniform(session.params().iter().map(|place| (place.name.clone(), place.shape.clone()))).unwrap()
}
