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

/// Which parameters a saved state must have arrays of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    All,
    /// An optimizer that keeps nothing saves nothing.
    Any,
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
    Scalar(String),
}

impl std::error::Error for StateError {}

impl std::fmt::Display for StateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StateError::OtherOptimizer { saved, wanted } => {
                write!(
                    f,
                    "the saved optimizer state is from {saved}, but this run uses {wanted}: set train.optimizer back, or \
                     train.on_optimizer_change: fresh to go on with empty state"
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
            StateError::Scalar(name) => write!(f, "the saved optimizer state has no number `{name}`"),
            StateError::Array { param, array, problem } => write!(f, "saved optimizer state {param}.{array}: {problem}"),
        }
    }
}

impl State {
    pub fn new(optimizer: &str, format_version: u32, step: u64) -> State {
        State { optimizer: optimizer.to_string(), format_version, step, scalars: BTreeMap::new(), params: BTreeMap::new() }
    }

    /// Checks optimizer, version and the set of parameter names: all of them, or only that none is foreign.
    pub fn check(&self, optimizer: &str, format_version: u32, layout: &Layout, wanted: Wanted) -> Result<(), StateError> {
        if self.optimizer != optimizer {
            return Err(StateError::OtherOptimizer { saved: self.optimizer.clone(), wanted: optimizer.to_string() });
        }
        if self.format_version != format_version {
            return Err(StateError::Version { optimizer: optimizer.to_string(), saved: self.format_version, readable: format_version });
        }
        let known: HashMap<&str, ()> = layout.params().iter().map(|p| (p.name.as_str(), ())).collect();
        let all = layout.params().iter().filter(|_| wanted == Wanted::All);
        let missing: Vec<String> = all.filter(|p| !self.params.contains_key(&p.name)).map(|p| p.name.clone()).collect();
        let unknown: Vec<String> = self.params.keys().filter(|name| !known.contains_key(name.as_str())).cloned().collect();
        if missing.is_empty() && unknown.is_empty() { Ok(()) } else { Err(StateError::Parameters { missing, unknown }) }
    }

    /// The f32 array of a parameter, which must have `elements` finite numbers.
    pub fn floats(&self, param: &str, array: &str, elements: usize) -> Result<&[f32], StateError> {
        let values = match self.array(param, array)? {
            Array::F32(values) => values,
            Array::U8(_) => return Err(problem(param, array, "is stored as bytes, f32 expected".to_string())),
        };
        same_length(param, array, values.len(), elements)?;
        match values.iter().find(|v| !v.is_finite()) {
            Some(bad) => Err(problem(param, array, format!("holds {bad}: the file is damaged"))),
            None => Ok(values),
        }
    }

    /// The byte array of a parameter, which must have `elements` bytes.
    pub fn bytes(&self, param: &str, array: &str, elements: usize) -> Result<&[u8], StateError> {
        match self.array(param, array)? {
            Array::F32(_) => Err(problem(param, array, "is stored as f32, bytes expected".to_string())),
            Array::U8(values) => same_length(param, array, values.len(), elements).map(|()| values.as_slice()),
        }
    }

    fn array(&self, param: &str, array: &str) -> Result<&Array, StateError> {
        let arrays = self.params.get(param);
        arrays.and_then(|arrays| arrays.get(array)).ok_or_else(|| problem(param, array, "is missing".to_string()))
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

fn problem(param: &str, array: &str, problem: String) -> StateError {
    StateError::Array { param: param.to_string(), array: array.to_string(), problem }
}

fn same_length(param: &str, array: &str, have: usize, want: usize) -> Result<(), StateError> {
    if have == want {
        return Ok(());
    }
    Err(problem(param, array, format!("has {have} elements, this run needs {want} (was the rank changed?)")))
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
        for param in layout().params() {
            let array = Array::F32(vec![0.5; param.shape.elements()]);
            state.params.entry(param.name.clone()).or_default().insert("exp_avg".to_string(), array);
        }
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
        assert!(matches!(state().check("lion", 1, &layout, Wanted::All), Err(StateError::OtherOptimizer { .. })));
        assert!(matches!(state().check("adamw", 2, &layout, Wanted::All), Err(StateError::Version { saved: 1, readable: 2, .. })));
        let other = Layout::uniform([("unet.b.lora_up".to_string(), Shape::from([1]))]).unwrap();
        let error = state().check("adamw", 1, &other, Wanted::All).unwrap_err();
        assert!(error.to_string().contains("unet.b.lora_up"), "{error}");
        let error = state().floats("unet.a.lora_down", "exp_avg", 12).unwrap_err();
        assert!(error.to_string().contains("has 6 elements, this run needs 12"), "{error}");
        assert!(state().floats("unet.a.lora_down", "exp_avg_sq", 6).unwrap_err().to_string().contains("missing"));
        assert!(state().bytes("unet.a.lora_down", "exp_avg", 6).unwrap_err().to_string().contains("bytes expected"));
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
