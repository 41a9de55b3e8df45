//! Safetensors files, memory-mapped: 8 bytes of header length, a JSON header, then the tensor bytes.
//!
//! Opening reads the header only; a tensor is a slice of the map, so a checkpoint larger than the free memory can be walked.
//! Everything that the header claims is checked against the file's length before it is used. A file that is something else
//! (a pickle, a git-lfs pointer, a web page, …) is refused in a sentence that says what it is. Format: <https://huggingface.co/docs/safetensors>.

mod header;
mod sniff;
mod write;

pub use header::{HEADER_LIMIT, Stored, TensorInfo};
pub(crate) use write::file_order;
pub use write::{Entry, serialize_header, write};

use anyhow::{Context, Result, anyhow, bail};
use base::{DType, Shape};
use memmap2::Mmap;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One tensor's bytes (little-endian, row-major, in the file's own axis order) and how to read them.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor<'a> {
    pub dtype: DType,
    pub shape: Shape,
    pub bytes: &'a [u8],
}

impl Tensor<'_> {
    /// The values widened to f32; an error for integer tensors.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        base::dtype::to_f32(self.dtype, self.bytes).with_context(|| format!("a tensor of type {} is no float tensor", self.dtype))
    }

    /// Row `row` of the first axis in f32, in memory order: a convolution weight's [I, kh, kw] becomes [kh, kw, I]. `None` for a row that
    /// does not exist, and for integer tensors.
    pub fn row(&self, row: usize) -> Option<Vec<f32>> {
        let bytes = self.bytes.len() / self.shape.batch().max(1);
        let values = base::dtype::to_f32(self.dtype, self.bytes.get(row * bytes..(row + 1) * bytes)?)?;
        let [_, _, kh, kw] = *self.shape.dims() else { return Some(values) };
        let mut moved = Vec::with_capacity(values.len());
        (0..kh * kw).for_each(|tap| moved.extend(values.iter().skip(tap).step_by(kh * kw)));
        Some(moved)
    }

    /// The bytes with a convolution weight's axes moved from [O, I, kh, kw] (files) to [O, kh, kw, I] (memory);
    /// other ranks are copied as they are.
    pub fn to_channels_last(&self) -> Vec<u8> {
        let mut out = vec![0; self.bytes.len()];
        if let &[_, channels, kh, kw] = self.shape.dims() {
            filters_to_channels_last(self.dtype, channels, kh * kw, self.bytes, &mut out);
        } else {
            out.copy_from_slice(self.bytes);
        }
        out
    }
}

/// Moves the axes of whole filters from [I, taps] to [taps, I]. Both slices have the same length.
pub fn filters_to_channels_last(dtype: DType, channels: usize, taps: usize, from: &[u8], to: &mut [u8]) {
    match (taps, dtype.bytes()) {
        (0 | 1, _) => to.copy_from_slice(from),
        (_, 1) => move_axes::<1>(channels, taps, from, to),
        (_, 2) => move_axes::<2>(channels, taps, from, to),
        _ => move_axes::<4>(channels, taps, from, to),
    }
}

fn move_axes<const SIZE: usize>(channels: usize, taps: usize, from: &[u8], to: &mut [u8]) {
    let (from, to) = (from.as_chunks::<SIZE>().0, to.as_chunks_mut::<SIZE>().0);
    let filter = (channels * taps).max(1);
    for (from, to) in from.chunks_exact(filter).zip(to.chunks_exact_mut(filter)) {
        for (channel, values) in from.chunks_exact(taps).enumerate() {
            to[channel..].iter_mut().step_by(channels).zip(values).for_each(|(to, value)| *to = *value);
        }
    }
}

/// An open file: the parsed header and the map of its bytes.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    map: Mmap,
    tensors: BTreeMap<String, TensorInfo>,
    metadata: BTreeMap<String, String>,
    data_start: usize,
}

impl File {
    /// Maps the file and checks its header; the error says what the file is if it is something else.
    pub fn open(path: &Path) -> Result<File> {
        let file = std::fs::File::open(path).with_context(|| format!("can't open {}", path.display()))?;
        let meta = file.metadata().with_context(|| format!("can't read {}", path.display()))?;
        if meta.is_dir() {
            bail!("{} is a folder, not a safetensors file", path.display());
        }
        if meta.len() == 0 {
            bail!("{} is empty (0 bytes), not a safetensors file; download or copy it again", path.display());
        }
        // SAFETY: the map is read-only. Another process that shortens the file while it is mapped would end this one with
        // SIGBUS, as with every program that maps weights; our own writes replace files by rename and never shorten one.
        let map = unsafe { Mmap::map(&file) }.with_context(|| format!("can't map {}", path.display()))?;
        let parsed = header::parse(&map).map_err(|problem| match sniff::what_is(path, &map) {
            Some(sentence) => anyhow!("{} {sentence}", path.display()),
            None => anyhow!("{} is no sound safetensors file: {problem}", path.display()),
        })?;
        Ok(File { path: path.to_owned(), map, tensors: parsed.tensors, metadata: parsed.metadata, data_start: parsed.data_start })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tensor names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    pub fn tensors(&self) -> &BTreeMap<String, TensorInfo> {
        &self.tensors
    }

    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name)
    }

    /// The `__metadata__` strings.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// The tensor of that name; an error that names the nearest one, or the element type that can't be read.
    pub fn tensor(&self, name: &str) -> Result<Tensor<'_>> {
        let Some(info) = self.tensors.get(name) else {
            let hint = base::nearest::nearest(name, self.names()).map(|n| format!("; the nearest is {n}")).unwrap_or_default();
            bail!("{} has no tensor {name}{hint}", self.path.display());
        };
        match &info.dtype {
            Stored::Known(dtype) => Ok(Tensor { dtype: *dtype, shape: info.shape.clone(), bytes: &self.map[info.range.clone()] }),
            Stored::Other(dtype) => bail!(
                "tensor {name} of {} is stored as {dtype}, which this version can't read (it reads F32, F16, BF16, U32 and U8)",
                self.path.display()
            ),
        }
    }

    /// A tensor's bytes whatever its element type.
    pub fn raw(&self, name: &str) -> Option<(&TensorInfo, &[u8])> {
        let info = self.tensors.get(name)?;
        Some((info, &self.map[info.range.clone()]))
    }

    /// Everything after the header, in file order; what `sshs_model_hash` is taken over.
    pub fn tensor_area(&self) -> &[u8] {
        &self.map[self.data_start..]
    }

    pub fn len_bytes(&self) -> u64 {
        self.map.len() as u64
    }

    /// Gives the pages of `part`, a slice of a tensor of this file, back to the system; the next read brings them in again. Call it
    /// after copying weights out, or a mapped checkpoint counts twice. Does nothing where the system can't, or if `part` is not of this
    /// file.
    pub fn release_part(&self, part: &[u8]) {
        let offset = (part.as_ptr() as usize).checked_sub(self.map.as_ptr() as usize);
        let Some(offset) = offset.filter(|offset| offset + part.len() <= self.map.len()) else { return };
        #[cfg(unix)]
        {
            // SAFETY: the map is read-only and backed by a file, so dropped pages are read again with the same content.
            let _ = unsafe { self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, offset, part.len()) };
        }
        #[cfg(not(unix))]
        let _ = offset;
    }
}

#[cfg(test)]
mod tests;
