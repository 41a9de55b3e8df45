//! Optimizer state as it is saved: arrays by parameter name, a step count, scalars, and a format version.
//!
//! A state becomes flat parts (text metadata and tensors called `<parameter>.<array>`) so that the checkpoint writer
//! needs to know nothing about optimizers. Floats survive the text form bit for bit (shortest form that reads back the same).

use crate::Layout;
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, HashMap};

/// Content of one saved array.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    F32(Vec<f32>),
    U8(Vec<u8>),
}

impl Array {
    pub fn elements(&self) -> usize {
        match self {
            Array::F32(values) => values.len(),
            Array::U8(values) => values.len(),
        }
    }
}

/// Everything an optimizer needs to go on as if never interrupted.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// The optimizer's name, as in [`crate::OPTIMIZERS`].
    pub optimizer: String,
    pub format_version: u32,
    /// Steps applied so far.
    pub step: u64,
    pub scalars: BTreeMap<String, f64>,
    /// Parameter name → array name → array.
    pub params: BTreeMap<String, BTreeMap<String, Array>>,
}

/// Why a saved state does not fit this run. Downcast from `anyhow::Error` to tell the cases apart.
#[derive(Clone, Debug, PartialEq)]
pub enum StateError {
    OtherOptimizer { saved: String, wanted: String },
    Version { optimizer: String, saved: u32, readable: u32 },
    Parameters { missing: Vec<String>, unknown: Vec<String> },
    Array { param: String, array: String, problem: String },
}

impl std::error::Error for StateError {}

impl std::fmt::Display for StateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StateError::OtherOptimizer { saved, wanted } => {
                write!(
                    f,
                    "the saved optimizer state is from {saved}, but this run uses {wanted}: set the optimizer back, or start with fresh state"
                )
            }
            StateError::Version { optimizer, saved, readable } => {
                write!(f, "the saved state of {optimizer} has format version {saved}, this program reads version {readable}")
            }
            StateError::Parameters { missing, unknown } => {
                write!(f, "the saved optimizer state is of another set of parameters: ")?;
                match (missing.first(), unknown.first()) {
                    (Some(name), _) => write!(f, "{} of this run are not in it, the first is {name}", missing.len()),
                    (None, Some(name)) => write!(f, "{} in it are not in this run, the first is {name}", unknown.len()),
                    (None, None) => write!(f, "no name differs"),
                }
            }
            StateError::Array { param, array, problem } => write!(f, "saved optimizer state {param}.{array}: {problem}"),
        }
    }
}

impl State {
    pub fn new(optimizer: &str, format_version: u32, step: u64) -> State {
        State { optimizer: optimizer.to_string(), format_version, step, scalars: BTreeMap::new(), params: BTreeMap::new() }
    }

    /// Adds one array for every parameter, cut from a flat slice.
    pub fn add_flat(&mut self, layout: &Layout, array: &str, flat: &[f32]) {
        for param in layout.params() {
            let values = Array::F32(flat[param.range()].to_vec());
            self.params.entry(param.name.clone()).or_default().insert(array.to_string(), values);
        }
    }

    /// Checks optimizer, version and the set of parameter names.
    pub fn check(&self, optimizer: &str, format_version: u32, layout: &Layout) -> Result<(), StateError> {
        if self.optimizer != optimizer {
            return Err(StateError::OtherOptimizer { saved: self.optimizer.clone(), wanted: optimizer.to_string() });
        }
        if self.format_version != format_version {
            return Err(StateError::Version { optimizer: optimizer.to_string(), saved: self.format_version, readable: format_version });
        }
        let known: HashMap<&str, ()> = layout.params().iter().map(|p| (p.name.as_str(), ())).collect();
        let missing: Vec<String> = layout.params().iter().filter(|p| !self.params.contains_key(&p.name)).map(|p| p.name.clone()).collect();
        let unknown: Vec<String> = self.params.keys().filter(|name| !known.contains_key(name.as_str())).cloned().collect();
        if missing.is_empty() && unknown.is_empty() { Ok(()) } else { Err(StateError::Parameters { missing, unknown }) }
    }

    /// Reads back what [`State::add_flat`] added, into a new flat vector; [`State::check`] comes first.
    pub fn flat(&self, layout: &Layout, array: &str) -> Result<Vec<f32>, StateError> {
        let mut flat = vec![0.0; layout.elements()];
        for param in layout.params() {
            let error = |problem: String| StateError::Array { param: param.name.clone(), array: array.to_string(), problem };
            let values = match self.params.get(&param.name).and_then(|arrays| arrays.get(array)) {
                Some(Array::F32(values)) => values,
                Some(Array::U8(_)) => return Err(error("is stored as bytes, f32 expected".to_string())),
                None => return Err(error("is missing".to_string())),
            };
            let (have, want) = (values.len(), param.shape.elements());
            if have != want {
                return Err(error(format!("has {have} elements, the parameter has {want} (was the rank changed?)")));
            }
            if let Some(bad) = values.iter().find(|v| !v.is_finite()) {
                return Err(error(format!("holds {bad}: the file is damaged")));
            }
            flat[param.range()].copy_from_slice(values);
        }
        Ok(flat)
    }

    /// The text part: `optimizer`, `format_version`, `step`, `scalar.<name>`.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let mut metadata: BTreeMap<String, String> =
            self.scalars.iter().map(|(name, value)| (format!("scalar.{name}"), format!("{value:?}"))).collect();
        metadata.insert("optimizer".to_string(), self.optimizer.clone());
        metadata.insert("format_version".to_string(), self.format_version.to_string());
        metadata.insert("step".to_string(), self.step.to_string());
        metadata
    }

    /// The tensor part: (`<parameter>.<array>`, content), in the order of the names.
    pub fn tensors(&self) -> Vec<(String, &Array)> {
        let arrays = self.params.iter().flat_map(|(param, arrays)| arrays.iter().map(move |(name, array)| (param, name, array)));
        arrays.map(|(param, name, array)| (format!("{param}.{name}"), array)).collect()
    }

    /// Puts the two parts together again. Metadata keys that are no part of a state are ignored.
    pub fn from_parts(metadata: &BTreeMap<String, String>, tensors: impl IntoIterator<Item = (String, Array)>) -> Result<State> {
        let field = |key: &str| metadata.get(key).with_context(|| format!("the saved optimizer state has no `{key}` in its metadata"));
        let number = |key: &str, text: &str| format!("the saved optimizer state has {key} = {text:?}, which is no number");
        let version = field("format_version")?;
        let step = field("step")?;
        let mut state = State::new(
            field("optimizer")?,
            version.parse().with_context(|| number("format_version", version))?,
            step.parse().with_context(|| number("step", step))?,
        );
        for (key, text) in metadata {
            if let Some(name) = key.strip_prefix("scalar.") {
                state.scalars.insert(name.to_string(), text.parse().with_context(|| number(key, text))?);
            }
        }
        for (key, array) in tensors {
            let (param, name) = key.rsplit_once('.').with_context(|| format!("tensor {key} is no optimizer state: its name has no dot"))?;
            let old = state.params.entry(param.to_string()).or_default().insert(name.to_string(), array);
            ensure!(old.is_none(), "the saved optimizer state holds {key} twice");
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Shape;

    fn layout() -> Layout {
        Layout::uniform([("unet.a.lora_down".to_string(), Shape::from([2, 3])), ("unet.a.lora_up".to_string(), Shape::from([4]))]).unwrap()
    }

    fn state() -> State {
        let mut state = State::new("adamw", 1, 7);
        state.scalars.insert("d".to_string(), 0.1 + 0.2);
        state.add_flat(&layout(), "exp_avg", &[0.5; 10]);
        state
    }

    #[test]
    fn parts_give_back_the_same_state() {
        let state = state();
        let tensors: Vec<(String, Array)> = state.tensors().into_iter().map(|(name, array)| (name, array.clone())).collect();
        assert_eq!(tensors[0].0, "unet.a.lora_down.exp_avg");
        assert_eq!(State::from_parts(&state.metadata(), tensors).unwrap(), state);
    }

    #[test]
    fn each_mismatch_has_its_own_error() {
        let layout = layout();
        assert!(matches!(state().check("lion", 1, &layout), Err(StateError::OtherOptimizer { .. })));
        assert!(matches!(state().check("adamw", 2, &layout), Err(StateError::Version { saved: 1, readable: 2, .. })));
        let other = Layout::uniform([("unet.b.lora_up".to_string(), Shape::from([1]))]).unwrap();
        let error = state().check("adamw", 1, &other).unwrap_err();
        assert!(error.to_string().contains("unet.b.lora_up"), "{error}");
        let other_rank =
            Layout::uniform([("unet.a.lora_down".to_string(), Shape::from([4, 3])), ("unet.a.lora_up".to_string(), Shape::from([8]))])
                .unwrap();
        let error = state().flat(&other_rank, "exp_avg").unwrap_err();
        assert!(error.to_string().contains("has 6 elements, the parameter has 12"), "{error}");
        assert!(state().flat(&layout, "exp_avg_sq").unwrap_err().to_string().contains("missing"));
    }

    #[test]
    fn damaged_metadata_is_named() {
        let mut metadata = state().metadata();
        metadata.insert("step".to_string(), "seven".to_string());
        assert!(format!("{:#}", State::from_parts(&metadata, []).unwrap_err()).contains("seven"));
        metadata.remove("optimizer");
        metadata.insert("step".to_string(), "7".to_string());
        assert!(State::from_parts(&metadata, []).unwrap_err().to_string().contains("`optimizer`"));
    }
}
