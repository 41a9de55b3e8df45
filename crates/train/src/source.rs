//! Frozen tensors for the engine, out of a checkpoint: the axes and the element type that a graph asks for.

use anyhow::{Context, Result, ensure};
use base::{DType, Shape};
use engine::WeightSource;
use graph::Meta;
use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use weights::checkpoint::{Checkpoint, RESIDENT_BYTES};

/// The checkpoints that a run reads: the model, and a VAE of its own if the config names one.
pub struct Source {
    model: Checkpoint,
    vae: Option<Checkpoint>,
    /// Bytes read since the files' pages were last given back.
    resident: AtomicUsize,
}

impl Source {
    pub fn new(model: Checkpoint, vae: Option<Checkpoint>) -> Source {
        Source { model, vae, resident: AtomicUsize::new(0) }
    }

    /// The checkpoint that holds the tensors of `component`, or of the component that a tensor's name starts with.
    pub fn of(&self, name: &str) -> &Checkpoint {
        match &self.vae {
            Some(vae) if name == "vae" || name.starts_with("vae.") => vae,
            _ => &self.model,
        }
    }

    /// Shape of a tensor in its file; none if there is no such tensor.
    pub fn shape(&self, name: &str) -> Option<Shape> {
        Some(self.of(name).info(name)?.1)
    }

    /// Gives the files' mapped pages back to the system: everything that was needed has been copied.
    pub fn release(&self) {
        self.model.release();
        self.vae.iter().for_each(Checkpoint::release);
    }

    /// The type in which a matrix is kept: `wanted` if the user says so, else the file's type, but f32 narrowed to the activations'.
    pub fn stored_dtype(&self, name: &str, wanted: Option<DType>, activations: DType) -> DType {
        match (wanted, self.of(name).info(name)) {
            (Some(dtype), _) => dtype,
            (None, Some((DType::F32, _)) | None) => activations,
            (None, Some((dtype, _))) => dtype,
        }
    }
}

/// Axes of a tensor of the shape `memory` as files order them.
fn file_order(memory: &Shape) -> Shape {
    match memory.dims() {
        [o, kh, kw, i] => Shape::from([*o, *i, *kh, *kw]),
        _ => memory.clone(),
    }
}

impl WeightSource for Source {
    fn read(&self, name: &str, meta: &Meta) -> Result<Cow<'_, [u8]>> {
        let checkpoint = self.of(name);
        let tensor = checkpoint.tensor(name)?;
        // Whatever was read before has been copied: without this a loaded model would stand in memory twice.
        if self.resident.fetch_add(tensor.bytes.len(), Ordering::Relaxed) > RESIDENT_BYTES {
            self.release();
            self.resident.store(0, Ordering::Relaxed);
        }
        let expected = file_order(&meta.shape);
        let found = tensor.shape.squeezed_to(expected.rank());
        ensure!(
            found == expected,
            "{}: tensor {name} has the shape {} where this model needs {expected}",
            checkpoint.path().display(),
            tensor.shape
        );
        let bytes = if meta.shape.rank() == 4 { Cow::Owned(tensor.to_channels_last()) } else { Cow::Borrowed(tensor.bytes) };
        if tensor.dtype == meta.dtype {
            return Ok(bytes);
        }
        let values = base::dtype::to_f32(tensor.dtype, &bytes)
            .with_context(|| format!("tensor {name} is of type {}, which holds no weights", tensor.dtype))?;
        let converted = base::dtype::from_f32(meta.dtype, &values).context("weights are kept in a float type")?;
        Ok(Cow::Owned(converted))
    }
}
