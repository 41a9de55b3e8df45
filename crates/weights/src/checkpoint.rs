//! Base models: a diffusers folder, or one file in the original Stable Diffusion layout, under one set of names.
//!
//! Canonical names are diffusers names with the component in front (`unet.conv_in.weight`). Opening reads headers and
//! configs only; tensors are slices of memory-mapped files, with conversions that need no copy (a fused `in_proj` is three
//! runs of rows). Shapes are as in diffusers: convolutions [O, I, kh, kw], matrices [O, I].

mod folder;
mod single;

use crate::family::{Family, recognise};
use crate::keys::{Blocks, Meaning, Names, Transform};
use crate::safetensors::{File, Stored, Tensor, TensorInfo};
use anyhow::{Context, Result, bail, ensure};
use base::{DType, Shape};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The parts that a Stable Diffusion model has, in canonical order.
pub const COMPONENTS: [&str; 3] = ["unet", "vae", "text_encoder"];

/// Bytes of a file that are read at once, and whose pages are then given back ([`Checkpoint::release_part`]).
pub const PIECE_BYTES: usize = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    DiffusersFolder,
    SingleFile,
}

/// Where a canonical tensor's bytes are.
#[derive(Clone, Debug)]
struct Place {
    file: usize,
    key: String,
    transform: Transform,
}

/// An open base model.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    layout: Layout,
    family: Family,
    files: Vec<File>,
    places: BTreeMap<String, Place>,
    unused: Vec<String>,
    configs: BTreeMap<String, Value>,
    /// The diffusers folder that configs and tokenizer come from.
    companion: Option<PathBuf>,
}

/// A file and what stands in front of its keys in the canonical layout.
struct Source {
    file: File,
    component: Option<&'static str>,
}

impl Checkpoint {
    /// Opens a diffusers folder, a single-file checkpoint, or a folder that holds exactly one.
    ///
    /// A single file `x.safetensors` has no configs and no tokenizer; they are taken from a diffusers folder `x/` beside it, if
    /// there is one.
    pub fn open(path: &Path) -> Result<Checkpoint> {
        match std::fs::metadata(path) {
            Ok(meta) if meta.is_dir() => folder::open(path),
            Ok(_) => single::open(path),
            Err(error) => Err(error).with_context(|| format!("can't open the model {}", path.display())),
        }
    }

    /// Joins files into a model: every key is looked up in the layout's rows.
    fn assemble(path: &Path, layout: Layout, sources: Vec<Source>) -> Result<Checkpoint> {
        let located = |source: &Source, key: &str| source.component.map(|c| format!("{c}.{key}")).unwrap_or_else(|| key.to_owned());
        let mut all: BTreeMap<String, &TensorInfo> = BTreeMap::new();
        for source in &sources {
            for (key, info) in source.file.tensors() {
                let twice = all.insert(located(source, key), info).is_some();
                ensure!(!twice, "{} has the tensor {key} in two files", path.display());
            }
        }
        let family = recognise(&all);
        let keys = all.keys().map(String::as_str);
        let names = match layout {
            Layout::DiffusersFolder => Names::new(crate::keys::diffusers_rows(), Blocks::default()),
            Layout::SingleFile => {
                let blocks = Blocks::of_original(keys);
                Names::new(crate::keys::original_rows(&blocks), blocks)
            }
        };
        drop(all);
        let (mut places, mut unused) = (BTreeMap::new(), Vec::new());
        for (number, source) in sources.iter().enumerate() {
            for key in source.file.names() {
                match names.meaning(&located(source, key)) {
                    Meaning::Ignored => {}
                    Meaning::Unknown => unused.push(located(source, key)),
                    Meaning::Tensors(tensors) => {
                        for (name, transform) in tensors {
                            let place = Place { file: number, key: key.to_owned(), transform };
                            if let Some(old) = places.insert(name.clone(), place) {
                                bail!("{}: the keys {} and {key} both are {name}", path.display(), old.key);
                            }
                        }
                    }
                }
            }
        }
        let files = sources.into_iter().map(|source| source.file).collect();
        Ok(Checkpoint { path: path.to_owned(), layout, family, files, places, unused, configs: BTreeMap::new(), companion: None })
    }

    /// An error in one sentence unless this is a whole model of a family that this version trains.
    pub fn ensure_supported(&self) -> Result<()> {
        let path = self.path.display();
        ensure!(self.family.is_supported(), "{path} is {}; this version trains SD 1.x and 2.x", self.family.describe());
        for component in COMPONENTS {
            ensure!(
                self.component_names(component).next().is_some(),
                "{path} looks like {} but has no tensor of the {component}; give a complete checkpoint",
                self.family.describe()
            );
        }
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn layout(&self) -> Layout {
        self.layout
    }

    pub fn family(&self) -> Family {
        self.family
    }

    /// The files that the tensors are read from.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// Canonical names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.places.keys().map(String::as_str)
    }

    /// The names of one component (`unet`, `vae`, `text_encoder`), sorted.
    pub fn component_names(&self, component: &str) -> impl Iterator<Item = &str> {
        let start = format!("{component}.");
        self.places.range(start.clone()..).map(|(name, _)| name.as_str()).take_while(move |name| name.starts_with(&start))
    }

    /// File keys that no row knows (component in front in folders): worth a warning, they are not used.
    pub fn unused(&self) -> &[String] {
        &self.unused
    }

    /// Element type and shape, without touching the tensor's bytes. `None` if the tensor is missing or of a type that is no weight's.
    pub fn info(&self, name: &str) -> Option<(DType, Shape)> {
        let place = self.places.get(name)?;
        let info = self.files[place.file].info(&place.key)?;
        match info.dtype {
            Stored::Known(DType::U32 | DType::U8 | DType::Quantized(_)) | Stored::Other(_) => None,
            Stored::Known(dtype) => Some((dtype, canonical_shape(&info.shape, place.transform))),
        }
    }

    /// A tensor by canonical name; the error names the file, the tensor and the nearest existing one.
    pub fn tensor(&self, name: &str) -> Result<Tensor<'_>> {
        let Some(place) = self.places.get(name) else {
            let hint = base::nearest::nearest(name, self.names()).map(|n| format!("; the nearest is {n}")).unwrap_or_default();
            bail!("{} has no tensor {name}{hint}", self.path.display());
        };
        let tensor = self.files[place.file].tensor(&place.key)?;
        let shape = canonical_shape(&tensor.shape, place.transform);
        let bytes = match place.transform {
            Transform::Same | Transform::Matrix => tensor.bytes,
            Transform::Third(n) => {
                let rows = tensor.shape.dims().first().copied().unwrap_or(0);
                ensure!(rows % 3 == 0, "{}: {} has {rows} rows, which are no three equal parts", self.path.display(), place.key);
                let part = tensor.bytes.len() / 3;
                &tensor.bytes[usize::from(n) * part..][..part]
            }
        };
        Ok(Tensor { dtype: tensor.dtype, shape, bytes })
    }

    /// The `config.json` of a component, if the model has one.
    pub fn config(&self, component: &str) -> Option<&Value> {
        self.configs.get(component)
    }

    pub fn scheduler_config(&self) -> Option<&Value> {
        self.configs.get("scheduler")
    }

    /// What the UNet predicts (`epsilon`, `v_prediction`), if the model says: by its scheduler's config, its metadata or a marker.
    pub fn prediction_type(&self) -> Option<&str> {
        if let Some(name) = self.scheduler_config().and_then(|c| c.get("prediction_type")).and_then(Value::as_str) {
            return Some(name);
        }
        let file = self.files.first()?;
        match file.metadata().get("modelspec.prediction_type").map(String::as_str) {
            Some("v" | "v-prediction") => Some("v_prediction"),
            Some(name) => Some(name),
            None if file.info("v_pred").is_some() => Some("v_prediction"),
            None => None,
        }
    }

    /// The folder with the tokenizer's files.
    pub fn tokenizer_dir(&self) -> Option<PathBuf> {
        let dir = self.companion.as_ref()?.join("tokenizer");
        let complete = dir.join("tokenizer.json").is_file() || (dir.join("vocab.json").is_file() && dir.join("merges.txt").is_file());
        complete.then_some(dir)
    }

    /// A hash of a component's content, for cache keys: SHA-256 over names, types, shapes and all bytes in canonical order, so
    /// the same weights give the same identity whatever file they came from. Reads the whole component (about 1 s per GB).
    pub fn identity(&self, component: &str) -> Result<String> {
        let mut hash = Sha256::new();
        for name in self.component_names(component) {
            let tensor = self.tensor(name)?;
            hash.update(format!("{name} {} {}\n", tensor.dtype, tensor.shape));
            for piece in tensor.bytes.chunks(PIECE_BYTES) {
                hash.update(piece);
                self.release_part(piece);
            }
        }
        Ok(crate::hex(&hash.finalize()))
    }

    /// Gives the pages of a slice of a tensor back to the system; see [`File::release_part`].
    pub fn release_part(&self, part: &[u8]) {
        self.files.iter().for_each(|file| file.release_part(part));
    }
}

fn canonical_shape(shape: &Shape, transform: Transform) -> Shape {
    match transform {
        Transform::Same => shape.clone(),
        Transform::Matrix => shape.squeezed_to(2),
        Transform::Third(_) => {
            let mut dims = shape.dims().to_vec();
            if let Some(rows) = dims.first_mut() {
                *rows /= 3;
            }
            Shape(dims)
        }
    }
}

#[cfg(test)]
mod tests;
