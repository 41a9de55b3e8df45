//! Writing a LoRA, and proving that what was written is what was meant.

use super::read::Factor;
use super::{Layout, LoraFile, diffusers, kohya};
use crate::metadata;
use crate::safetensors::{self, Entry, File};
use anyhow::{Context, Result, ensure};
use base::{DType, Shape};
use serde::Serialize;
use std::borrow::Cow;
use std::path::Path;

/// What the element type of the file did to the values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WriteReport {
    /// Share of all factor values that were not 0 and are 0 in the file.
    pub zeros_share: f64,
    /// Share of all factor values too large for the type, saved as its largest finite number.
    pub infinite_share: f64,
}

/// Writes `lora` and reads it back; an error if a value is not finite, a module can't be named, or the file differs.
///
/// Metadata goes in as it is; `sshs_model_hash` and `sshs_legacy_hash` are added if there is any.
pub fn write(path: &Path, lora: &LoraFile, layout: Layout, dtype: DType) -> Result<WriteReport> {
    let context = || format!("can't write the LoRA {}", path.display());
    lora.ensure_finite().with_context(context)?;
    ensure!(!lora.modules.is_empty(), "can't write the LoRA {}: it has no modules", path.display());
    let mut counts = Counts::default();
    let entries = entries(lora, layout, dtype, &mut counts).with_context(context)?;
    let mut file_metadata = lora.metadata.clone();
    if layout == Layout::Diffusers {
        file_metadata.remove(diffusers::ADAPTER_CONFIG); // would apply alpha a second time
    }
    metadata::add_hashes(&mut file_metadata, &entries).with_context(context)?;
    safetensors::write(path, &entries, &file_metadata)?;
    verify(path, lora, &entries)?;
    let share = |count: u64| count as f64 / counts.values.max(1) as f64;
    Ok(WriteReport { zeros_share: share(counts.zeros), infinite_share: share(counts.infinite) })
}

#[derive(Default)]
struct Counts {
    values: u64,
    zeros: u64,
    infinite: u64,
}

fn entries(lora: &LoraFile, layout: Layout, dtype: DType, counts: &mut Counts) -> Result<Vec<Entry<'static>>> {
    let mut entries = Vec::new();
    for module in &lora.modules {
        let key = |factor| match layout {
            Layout::Kohya => kohya::encode(&module.module, factor),
            Layout::Diffusers => diffusers::encode(&module.module, factor),
        };
        let no_name = || format!("{} is no module that a LoRA can sit on", module.module);
        let up: Cow<[f32]> = match layout {
            Layout::Kohya => Cow::Borrowed(&module.up),
            Layout::Diffusers => Cow::Owned(module.up.iter().map(|value| value * module.scale()).collect()),
        };
        let mut add = |factor, shape: &Shape, values: &[f32]| -> Result<()> {
            let name = key(factor).with_context(no_name)?;
            ensure!(shape.elements() == values.len(), "{name} has {} values for the shape {shape}", values.len());
            entries.push(Entry { name, dtype, shape: shape.clone(), bytes: Cow::Owned(encode(dtype, values, counts)?) });
            Ok(())
        };
        add(Factor::Down, &module.down_shape, &module.down)?;
        add(Factor::Up, &module.up_shape, &up)?;
        if let Some(name) = key(Factor::Alpha) {
            entries.push(alpha_entry(name, module.alpha, dtype)?);
        }
    }
    Ok(entries)
}

/// Alpha in the file's type if that holds it exactly, else in f32: a rounded alpha would change the strength.
fn alpha_entry(name: String, alpha: f32, dtype: DType) -> Result<Entry<'static>> {
    let exact = base::dtype::from_f32(dtype, &[alpha]).and_then(|bytes| base::dtype::to_f32(dtype, &bytes)).is_some_and(|v| v == [alpha]);
    let dtype = if exact { dtype } else { DType::F32 };
    let bytes = base::dtype::from_f32(dtype, &[alpha]).context("a LoRA is saved as f32, f16 or bf16")?;
    Ok(Entry { name, dtype, shape: Shape::new(&[]), bytes: Cow::Owned(bytes) })
}

/// Rounds to `dtype`; what would be infinite becomes the largest finite number. Counts what was lost.
fn encode(dtype: DType, values: &[f32], counts: &mut Counts) -> Result<Vec<u8>> {
    let limit = match dtype {
        DType::F32 => f32::MAX,
        DType::F16 => half::f16::MAX.to_f32(),
        DType::BF16 => half::bf16::MAX.to_f32(),
        DType::U32 | DType::U8 | DType::Quantized(_) => anyhow::bail!("a LoRA is saved as f32, f16 or bf16, not as {dtype}"),
    };
    let no_float = "the type was checked to be a float";
    let rounded = base::dtype::from_f32(dtype, values).and_then(|bytes| base::dtype::to_f32(dtype, &bytes)).context(no_float)?;
    counts.values += values.len() as u64;
    counts.zeros += rounded.iter().zip(values).filter(|(new, old)| **new == 0.0 && **old != 0.0).count() as u64;
    counts.infinite += rounded.iter().filter(|new| !new.is_finite()).count() as u64;
    let finite: Vec<f32> = rounded.iter().map(|value| value.clamp(-limit, limit)).collect();
    base::dtype::from_f32(dtype, &finite).context(no_float)
}

/// Reads the file again: the same bytes under the same keys, and the keys decode to the same modules.
fn verify(path: &Path, lora: &LoraFile, entries: &[Entry<'_>]) -> Result<()> {
    let context = || format!("{} was written but does not read back as it should", path.display());
    let file = File::open(path).with_context(context)?;
    ensure!(file.names().count() == entries.len(), "{}: other keys", context());
    for entry in entries {
        let tensor = file.tensor(&entry.name).with_context(context)?;
        let same = tensor.dtype == entry.dtype && tensor.shape == entry.shape && tensor.bytes == &*entry.bytes;
        ensure!(same, "{}: {} differs", context(), entry.name);
    }
    let back = super::read(path).with_context(context)?;
    let names = |lora: &LoraFile| {
        let mut names: Vec<String> = lora.modules.iter().map(|m| format!("{} {} {}", m.module, m.down_shape, m.up_shape)).collect();
        names.sort();
        names
    };
    ensure!(names(&back) == names(lora), "{}: its keys decode to other modules", context());
    Ok(())
}
