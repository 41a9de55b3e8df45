//! Summary of a base model, or of a file that is neither base model nor LoRA.

use super::lora_file::write_metadata;
use crate::checkpoint::{COMPONENTS, Checkpoint, Layout};
use crate::family::Family;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

#[derive(Clone, Debug, Serialize)]
pub struct BaseSummary {
    pub path: PathBuf,
    pub layout: Layout,
    pub family: Family,
    /// Why this version can't train it; `None` if it can.
    pub refusal: Option<String>,
    pub prediction_type: Option<String>,
    pub components: Vec<ComponentSummary>,
    /// Everything in the files, used or not.
    pub tensors: usize,
    pub bytes: u64,
    /// File keys that no name is known for.
    pub unused: Vec<String>,
    pub metadata: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ComponentSummary {
    pub name: &'static str,
    pub tensors: usize,
    pub parameters: usize,
    pub bytes: u64,
    /// Element type → number of tensors.
    pub dtypes: BTreeMap<&'static str, usize>,
}

pub(super) fn summarise(checkpoint: &Checkpoint) -> BaseSummary {
    let component = |name: &'static str| {
        let mut summary = ComponentSummary { name, tensors: 0, parameters: 0, bytes: 0, dtypes: BTreeMap::new() };
        for (dtype, shape) in checkpoint.component_names(name).filter_map(|name| checkpoint.info(name)) {
            summary.tensors += 1;
            summary.parameters += shape.elements();
            summary.bytes += (shape.elements() * dtype.bytes()) as u64;
            *summary.dtypes.entry(dtype.name()).or_default() += 1;
        }
        summary
    };
    BaseSummary {
        path: checkpoint.path().to_owned(),
        layout: checkpoint.layout(),
        family: checkpoint.family(),
        refusal: checkpoint.ensure_supported().err().map(|error| error.to_string()),
        prediction_type: checkpoint.prediction_type().map(str::to_owned),
        components: COMPONENTS.into_iter().map(component).filter(|component| component.tensors > 0).collect(),
        tensors: checkpoint.files().iter().map(|file| file.tensors().len()).sum(),
        bytes: checkpoint.files().iter().map(|file| file.len_bytes()).sum(),
        unused: checkpoint.unused().to_vec(),
        metadata: checkpoint.files().iter().flat_map(|file| file.metadata().clone()).collect(),
    }
}

impl fmt::Display for BaseSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = match self.layout {
            Layout::DiffusersFolder => "diffusers folder",
            Layout::SingleFile => "single file",
        };
        writeln!(
            f,
            "{}: {} ({layout}, {} tensors, {})",
            self.path.display(),
            self.family.describe(),
            self.tensors,
            base::human(self.bytes)
        )?;
        if let Some(refusal) = &self.refusal {
            writeln!(f, "  not trainable: {refusal}")?;
        }
        if let Some(prediction) = &self.prediction_type {
            writeln!(f, "  predicts      {prediction}")?;
        }
        for component in &self.components {
            let dtypes: Vec<&str> = component.dtypes.keys().copied().collect();
            let parameters = component.parameters as f64 / 1e6;
            let (name, tensors) = (component.name, component.tensors);
            writeln!(
                f,
                "  {name:<13} {parameters:>8.2} M parameters, {tensors} tensors, {}, {}",
                dtypes.join(" and "),
                base::human(component.bytes)
            )?;
        }
        if !self.unused.is_empty() {
            let shown = self.unused.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
            let more = if self.unused.len() > 5 { ", …" } else { "" };
            writeln!(f, "  not used      {} keys: {shown}{more}", self.unused.len())?;
        }
        write_metadata(f, &self.metadata)
    }
}
