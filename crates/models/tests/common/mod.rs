//! What the tests share: golden files in PyTorch's layouts, weights for the oracle, distances.
#![allow(dead_code)]

use base::{DType, Shape};
use graph::{Array, Builder, Source};
use std::collections::HashMap;
use std::path::PathBuf;
use velatura_models::StableDiffusion;
use weights::Checkpoint;
use weights::safetensors::File;

pub const STYLES: [&str; 2] = ["sd1", "sd2"];

pub fn golden(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../conform/tests/golden").join(path)
}

/// A tiny model of the golden files.
pub struct Model {
    pub style: String,
    pub checkpoint: Checkpoint,
    pub config: StableDiffusion,
}

impl Model {
    pub fn open(style: &str) -> Model {
        let checkpoint = Checkpoint::open(&golden(style).join("model")).unwrap();
        let config = StableDiffusion::of_checkpoint(&checkpoint).unwrap();
        Model { style: style.to_owned(), checkpoint, config }
    }

    /// A frozen tensor in memory order, in the shape that the graph asks for.
    fn weight(&self, name: &str, shape: &Shape) -> Array {
        let tensor = self.checkpoint.tensor(name).unwrap();
        let data = base::dtype::to_f32(tensor.dtype, &tensor.to_channels_last()).unwrap();
        Array::new(shape.clone(), data)
    }

    /// Runs a graph in the oracle; inputs and parameters by name.
    pub fn run(&self, graph: &graph::Graph, given: &HashMap<String, Array>) -> graph::oracle::Run {
        let shapes: HashMap<String, Shape> = graph.weights().map(|(name, id)| (name.to_owned(), graph.meta(id).shape.clone())).collect();
        graph::oracle::run(graph, &|source| match source {
            Source::Weight(name) => self.weight(name, &shapes[name]),
            Source::Input(name) | Source::Param(name) => given.get(name).unwrap_or_else(|| panic!("{name} is not given")).clone(),
            Source::Node { .. } => unreachable!("nodes are evaluated"),
        })
    }
}

pub fn builder() -> Builder {
    Builder::new(DType::F32, Box::new(|_| DType::F32))
}

/// A golden file.
pub struct Golden(File);

impl Golden {
    pub fn open(path: &str) -> Golden {
        Golden(File::open(&golden(path)).unwrap())
    }

    /// A file of this crate's own tests.
    pub fn beside(name: &str) -> Golden {
        Golden(File::open(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)).unwrap())
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.names()
    }

    /// As stored, except that four axes [N, C, H, W] become [N, H, W, C].
    pub fn array(&self, name: &str) -> Array {
        let tensor = self.0.tensor(name).unwrap();
        let data = base::dtype::to_f32(tensor.dtype, &tensor.to_channels_last()).unwrap();
        let shape = match *tensor.shape.dims() {
            [n, c, h, w] => Shape::from([n, h, w, c]),
            _ => tensor.shape.clone(),
        };
        Array::new(shape, data)
    }

    /// A factor as the graph holds it: kernels of one pixel are matrices.
    pub fn factor(&self, name: &str) -> Array {
        let array = self.array(name);
        match *array.shape.dims() {
            [o, 1, 1, i] => Array::new([o, i], array.data),
            _ => array,
        }
    }
}

/// ‖a − b‖ / ‖b‖
pub fn relative_l2(a: &Array, b: &Array) -> f64 {
    assert_eq!(a.shape, b.shape);
    let square = |v: f64| v * v;
    let difference: f64 = a.data.iter().zip(&b.data).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let size: f64 = b.data.iter().map(|b| square(f64::from(*b))).sum();
    (difference / size).sqrt()
}

pub fn assert_close(what: &str, a: &Array, b: &Array, limit: f64) {
    let distance = relative_l2(a, b);
    assert!(distance < limit, "{what}: relative distance {distance:.2e}, limit {limit:.0e}");
}
