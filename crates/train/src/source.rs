//! Frozen tensors for the engine, out of a checkpoint: the axes and the element type that a graph asks for.

use anyhow::{Context, Result, anyhow, ensure};
use base::quantized::{Layout, Scheme};
use base::{DType, Shape};
use config::ModelConfig;
use engine::WeightSource;
use graph::Meta;
use rayon::prelude::*;
use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use weights::checkpoint::{Checkpoint, RESIDENT_BYTES};
use weights::safetensors::Tensor;

/// How the user wants the matrices of the UNet and the text encoder to be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stored {
    /// Of what is not quantized; none: see [`Source::stored_dtype`].
    pub dtype: Option<DType>,
    pub unet: Option<Scheme>,
    pub text_encoder: Option<Scheme>,
}

impl Stored {
    pub fn by(config: &ModelConfig) -> Stored {
        Stored {
            dtype: config.dtype,
            unet: config.quantize.then_some(config.qtype),
            text_encoder: config.quantize_te.then_some(config.qtype_te),
        }
    }
}

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

    /// The type in which a matrix is kept: as the user says, else the file's type, but f32 narrowed to the activations'.
    pub fn stored_dtype(&self, name: &str, wanted: Stored, activations: DType) -> DType {
        let scheme = if name.starts_with("unet.") { wanted.unet } else { wanted.text_encoder };
        if let Some(scheme) = scheme.filter(|_| models::is_quantizable(name)) {
            return DType::Quantized(scheme);
        }
        match (wanted.dtype, self.of(name).info(name)) {
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

/// The bytes of a tensor in blocks of few bits, its rows in parallel: no copy of it in another type exists beside them.
fn quantize(tensor: &Tensor, layout: Layout) -> Result<Vec<u8>> {
    let mut bytes = vec![0; layout.bytes()];
    let (codes, scales) = layout.split_mut(&mut bytes);
    let rows = codes.par_chunks_mut(layout.row_bytes().max(1)).zip(scales.par_chunks_mut((layout.row_blocks() * 2).max(1)));
    rows.enumerate().try_for_each(|(row, (codes, scales))| {
        let numbers = tensor.row(row).with_context(|| format!("it is of type {}, which holds no weights", tensor.dtype))?;
        let refused = |column: usize| {
            anyhow!(
                "the number at row {row}, column {column} is {}, which {} can't hold; the file is damaged, or set model.quantize: false",
                numbers[column],
                layout.scheme.name()
            )
        };
        layout.quantize_row(&numbers, codes, scales).map_err(refused)
    })?;
    Ok(bytes)
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
        if let DType::Quantized(scheme) = meta.dtype {
            let quantized = quantize(&tensor, Layout::of(scheme, &meta.shape));
            return Ok(Cow::Owned(quantized.with_context(|| format!("{}: tensor {name}", checkpoint.path().display()))?));
        }
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
