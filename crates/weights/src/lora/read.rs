//! Reading a LoRA file of either layout.

use super::diffusers::AdapterConfig;
use super::{Layout, LoraFile, LoraModule, diffusers, kohya};
use crate::family::{Family, recognise};
use crate::safetensors::{File, Stored};
use anyhow::{Context, Result, bail, ensure};
use base::{DType, Shape};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Which of a module's tensors a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Factor {
    Down,
    Up,
    Alpha,
}

/// A file as it was found.
#[derive(Debug)]
pub struct Opened {
    pub lora: LoraFile,
    pub layout: Layout,
    /// Element types of the factors.
    pub dtypes: BTreeSet<DType>,
}

/// Reads a LoRA; values that are not finite are an error.
pub fn read(path: &Path) -> Result<LoraFile> {
    let lora = open(path)?.lora;
    lora.ensure_finite().with_context(|| format!("{} is damaged", path.display()))?;
    Ok(lora)
}

/// Reads a LoRA with its layout and element types, whatever its values are.
pub fn open(path: &Path) -> Result<Opened> {
    let file = File::open(path)?;
    decode(&file).with_context(|| format!("can't read the LoRA {}", path.display()))
}

/// The keys of one module.
#[derive(Default)]
struct Keys<'a> {
    down: Option<&'a str>,
    up: Option<&'a str>,
    alpha: Option<&'a str>,
}

fn decode(file: &File) -> Result<Opened> {
    refuse_other_kinds(file)?;
    let layout = if file.names().any(kohya::is_key) { Layout::Kohya } else { Layout::Diffusers };
    let mut modules: BTreeMap<String, Keys> = BTreeMap::new();
    let mut unknown = Vec::new();
    for key in file.names() {
        let decoded = match layout {
            Layout::Kohya => kohya::decode(key),
            Layout::Diffusers => diffusers::decode(key),
        };
        let Some((module, factor)) = decoded else {
            unknown.push(key);
            continue;
        };
        let keys = modules.entry(module.clone()).or_default();
        let slot = match factor {
            Factor::Down => &mut keys.down,
            Factor::Up => &mut keys.up,
            Factor::Alpha => &mut keys.alpha,
        };
        if let Some(old) = slot.replace(key) {
            bail!("the keys {old} and {key} are the same factor of {module}");
        }
    }
    refuse_unknown(&unknown, layout)?;
    let config = AdapterConfig::read(file.metadata())?;
    let mut dtypes = BTreeSet::new();
    let modules: Result<Vec<LoraModule>> =
        modules.into_iter().map(|(module, keys)| module_of(file, module, &keys, &config, &mut dtypes)).collect();
    Ok(Opened { lora: LoraFile { modules: modules?, metadata: file.metadata().clone() }, layout, dtypes })
}

/// Adapters of other kinds or for other families, in one sentence before any key is complained about.
fn refuse_other_kinds(file: &File) -> Result<()> {
    let keys: BTreeMap<String, _> = file.tensors().iter().map(|(key, info)| (key.clone(), info)).collect();
    match recognise(&keys) {
        Family::Lora => {}
        Family::OtherAdapter => bail!("it holds LoHa, LoKr, DoRA or similar factors; this version reads LoRA"),
        other => bail!("it is {}, not a LoRA", other.describe()),
    }
    let starts = |start: &str| keys.range(start.to_owned()..).next().is_some_and(|(key, _)| key.starts_with(start));
    let dit = ["lora_unet_double_blocks_", "lora_unet_single_blocks_", "lora_unet_joint_blocks_", "transformer.", "diffusion_model."];
    if let Some(start) = dit.iter().find(|start| starts(start)) {
        bail!("it is a LoRA for a transformer model such as FLUX or SD 3 (keys {start}…); this version reads LoRAs of SD 1.x and 2.x");
    }
    let sdxl = ["lora_te1_", "lora_te2_", "text_encoder_2.", "lora_unet_input_blocks_", "lora_unet_output_blocks_"];
    if let Some(start) = sdxl.iter().find(|start| starts(start)) {
        bail!("it is a LoRA for SDXL (keys {start}…); this version reads LoRAs of SD 1.x and 2.x");
    }
    Ok(())
}

fn refuse_unknown(unknown: &[&str], layout: Layout) -> Result<()> {
    let shown = unknown.iter().take(5).copied().collect::<Vec<_>>().join(", ");
    let more = if unknown.len() > 5 { format!(" and {} more", unknown.len() - 5) } else { String::new() };
    ensure!(unknown.is_empty(), "keys that are no LoRA factor of an SD 1.x or 2.x module in {} layout: {shown}{more}", layout.name());
    Ok(())
}

fn module_of(file: &File, module: String, keys: &Keys, config: &AdapterConfig, dtypes: &mut BTreeSet<DType>) -> Result<LoraModule> {
    let (Some(down_key), Some(up_key)) = (keys.down, keys.up) else {
        let present = [keys.down, keys.up, keys.alpha].into_iter().flatten().next().unwrap_or(&module);
        let missing = if keys.down.is_none() { "down (lora_down, lora_A)" } else { "up (lora_up, lora_B)" };
        bail!("{module} has {present} but no {missing} factor");
    };
    let (down, up) = (file.tensor(down_key)?, file.tensor(up_key)?);
    dtypes.extend([down.dtype, up.dtype]);
    let rank = down.shape.batch();
    check_shapes(&module, &down.shape, &up.shape)?;
    let alpha = match keys.alpha {
        Some(key) => alpha_value(file, key)?,
        None => config.alpha(&module, rank)?.unwrap_or(rank as f32),
    };
    let values = |key: &str, tensor: &crate::safetensors::Tensor| tensor.to_f32().with_context(|| format!("can't read {key}"));
    Ok(LoraModule { down: values(down_key, &down)?, up: values(up_key, &up)?, down_shape: down.shape, up_shape: up.shape, module, alpha })
}

/// down [r, in] with up [out, r], or down [r, in, kh, kw] with up [out, r, 1, 1].
fn check_shapes(module: &str, down: &Shape, up: &Shape) -> Result<()> {
    let fits = match (down.dims(), up.dims()) {
        ([r, _], [_, s]) => r == s,
        ([r, _, _, _], [_, s, 1, 1]) => r == s,
        _ => false,
    };
    ensure!(fits && down.elements() > 0 && up.elements() > 0, "the factors of {module} don't fit together: down {down}, up {up}");
    Ok(())
}

/// Alpha as a tensor of one element, 0-d or 1-d, of any number type that trainers write.
fn alpha_value(file: &File, key: &str) -> Result<f32> {
    let (info, bytes) = file.raw(key).with_context(|| format!("{key} vanished"))?;
    ensure!(info.shape.elements() == 1 && info.shape.rank() <= 1, "{key} should be one number, but has the shape {}", info.shape);
    let wide = || bytes.first_chunk::<8>().copied().context("an 8-byte number has 8 bytes");
    match &info.dtype {
        Stored::Known(DType::U32 | DType::U8 | DType::Quantized(_)) => bail!("{key} is stored as {}; alpha is a signed number", info.dtype),
        Stored::Known(dtype) => base::dtype::to_f32(*dtype, bytes).and_then(|v| v.first().copied()).context("one element was checked"),
        Stored::Other(name) => match name.as_str() {
            "F64" => Ok(f64::from_le_bytes(wide()?) as f32),
            "I64" => Ok(i64::from_le_bytes(wide()?) as f32),
            "I32" => Ok(bytes.first_chunk::<4>().copied().map(i32::from_le_bytes).context("a 4-byte number has 4 bytes")? as f32),
            other => bail!("{key} is stored as {other}, which is no type for alpha"),
        },
    }
}
