//! Frozen tensors for the engine, out of a checkpoint: the axes and the element type that a graph asks for.

use anyhow::{Context, Result, anyhow, ensure};
use base::quantized::{Layout, Scheme};
use base::{DType, Shape};
use config::ModelConfig;
use engine::WeightSource;
use graph::Meta;
use rayon::prelude::*;
use weights::checkpoint::{Checkpoint, PIECE_BYTES};
use weights::safetensors::{self, Tensor};

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
}

impl Source {
    pub fn new(model: Checkpoint, vae: Option<Checkpoint>) -> Source {
        Source { model, vae }
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

    /// Gives back what is still mapped of the files when all was read: the system maps pages around those that are touched.
    pub fn release(&self) {
        let checkpoints = std::iter::once(&self.model).chain(&self.vae);
        checkpoints.flat_map(Checkpoint::files).for_each(|file| file.release_part(file.tensor_area()));
    }

    /// The type in which a matrix is kept: as the user says, else the activations', or the file's if that is narrower. Kernels would round
    /// to the activations' type in every step what they can round once here.
    pub fn stored_dtype(&self, name: &str, wanted: Stored, activations: DType) -> DType {
        let scheme = if name.starts_with("unet.") { wanted.unet } else { wanted.text_encoder };
        if let Some(scheme) = scheme.filter(|_| models::is_quantizable(name)) {
            return DType::Quantized(scheme);
        }
        match (wanted.dtype, self.of(name).info(name)) {
            (Some(dtype), _) => dtype,
            (None, Some((dtype, _))) if dtype.bytes() < activations.bytes() => dtype,
            (None, _) => activations,
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

/// A tensor in blocks of few bits, its rows in parallel: no copy of it in another type exists beside `out`.
fn quantize(tensor: &Tensor, layout: Layout, out: &mut [u8]) -> Result<()> {
    ensure!(out.len() == layout.bytes(), "{} bytes are planned where {} belong", out.len(), layout.bytes());
    let (codes, scales) = layout.split_mut(out);
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
    })
}

impl WeightSource for Source {
    /// Piece by piece on all threads, straight into place. The pages of a piece are given back when it is copied: otherwise a loaded
    /// model would stand in memory twice.
    fn read(&self, name: &str, meta: &Meta, out: &mut [u8]) -> Result<()> {
        let checkpoint = self.of(name);
        let tensor = checkpoint.tensor(name)?;
        let expected = file_order(&meta.shape);
        let found = tensor.shape.squeezed_to(expected.rank());
        ensure!(
            found == expected,
            "{}: tensor {name} has the shape {} where this model needs {expected}",
            checkpoint.path().display(),
            tensor.shape
        );
        if let DType::Quantized(scheme) = meta.dtype {
            let quantized = quantize(&tensor, Layout::of(scheme, &meta.shape), out);
            quantized.with_context(|| format!("{}: tensor {name}", checkpoint.path().display()))?;
            checkpoint.release_part(tensor.bytes);
            return Ok(());
        }
        let rows = expected.dims().first().copied().unwrap_or(1).max(1);
        let row = Row { from: tensor.dtype, to: meta.dtype, channels_taps: channels_taps(&expected) };
        let (row_from, row_to) = (tensor.bytes.len() / rows, out.len() / rows);
        let many = (PIECE_BYTES / row_from.max(1)).max(1);
        let pieces = out.par_chunks_mut((many * row_to).max(1)).zip(tensor.bytes.par_chunks((many * row_from).max(1)));
        pieces.try_for_each(|(out, bytes)| {
            row.convert(bytes, out).with_context(|| format!("{}: tensor {name}", checkpoint.path().display()))?;
            checkpoint.release_part(bytes);
            Ok(())
        })
    }
}

/// What rounds to f16's largest number, and not to infinity.
const LARGEST_F16: f32 = 65519.0;

/// Numbers that are converted together.
const CONVERTED: usize = 4096;

/// How rows of a tensor in a file become rows in memory.
struct Row {
    from: DType,
    to: DType,
    /// Of a convolution's filters.
    channels_taps: Option<(usize, usize)>,
}

/// Channels and taps of a filter [O, I, kh, kw]; none for other tensors.
fn channels_taps(file_order: &Shape) -> Option<(usize, usize)> {
    match file_order.dims() {
        [_, channels, kh, kw] => Some((*channels, kh * kw)),
        _ => None,
    }
}

impl Row {
    fn convert(&self, from: &[u8], to: &mut [u8]) -> Result<()> {
        if self.from == self.to {
            self.move_axes(from, to);
            return Ok(());
        }
        let mut moved = Vec::new();
        let ordered = if self.channels_taps.is_some() {
            moved.resize(from.len(), 0);
            self.move_axes(from, &mut moved);
            &moved
        } else {
            from
        };
        // Rows are whole numbers of either type.
        let (from_bytes, to_bytes) = (CONVERTED * self.from.bytes(), CONVERTED * self.to.bytes());
        ensure!(from.len() / self.from.bytes() == to.len() / self.to.bytes(), "{} bytes were read where {} belong", from.len(), to.len());
        ordered.chunks(from_bytes).zip(to.chunks_mut(to_bytes)).try_for_each(|(from, to)| self.convert_some(from, to))
    }

    /// A piece that stays in the nearest caches on its way through f32.
    fn convert_some(&self, from: &[u8], to: &mut [u8]) -> Result<()> {
        let values =
            base::dtype::to_f32(self.from, from).with_context(|| format!("it is of type {}, which holds no weights", self.from))?;
        if self.to == DType::F16 {
            let beyond = values.iter().find(|v| v.is_finite() && v.abs() > LARGEST_F16);
            ensure!(
                beyond.is_none(),
                "it holds {}, which fp16 can't; set model.dtype to bf16 or fp32",
                beyond.copied().unwrap_or_default()
            );
        }
        let converted = base::dtype::from_f32(self.to, &values).context("weights are kept in a float type")?;
        to.copy_from_slice(&converted);
        Ok(())
    }

    fn move_axes(&self, from: &[u8], to: &mut [u8]) {
        match self.channels_taps {
            Some((channels, taps)) => safetensors::filters_to_channels_last(self.from, channels, taps, from, to),
            None => to.copy_from_slice(from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fp16_can_not_hold_is_refused_and_never_becomes_infinite() {
        let row = Row { from: DType::F32, to: DType::F16, channels_taps: None };
        let convert = |value: f32| {
            let mut to = [0; 2];
            row.convert(&value.to_le_bytes(), &mut to).map(|()| half_of(to))
        };
        assert_eq!([65504.0, -65519.0, 1e-9].map(|value| convert(value).unwrap()), [65504.0, -65504.0, 0.0]);
        let error = convert(-70000.0).unwrap_err().to_string();
        assert!(error.contains("-70000") && error.contains("model.dtype"), "{error}");
        // What is infinite in the file is found when the run isn't finite, as in any type.
        assert_eq!(convert(f32::INFINITY).unwrap(), f32::INFINITY);
    }

    fn half_of(bytes: [u8; 2]) -> f32 {
        base::dtype::to_f32(DType::F16, &bytes).map_or(f32::NAN, |values| values[0])
    }
}
