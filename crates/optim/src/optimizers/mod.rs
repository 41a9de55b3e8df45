//! What an optimizer is, and THE list of those that a config can name.

mod adamw;

pub use adamw::AdamW;

use crate::hyper::unknown_name;
use crate::{Layout, State};
use anyhow::Result;
use serde_json::{Map, Value};

/// Applies gradients to parameters. Works element by element or in a fixed order: the result never depends on the thread count.
pub trait Optimizer: Send {
    /// The name in configs and saved states.
    fn name(&self) -> &'static str;

    /// Steps applied so far.
    fn steps(&self) -> u64;

    /// Bytes of state that this optimizer really holds.
    fn state_bytes(&self) -> u64;

    /// One update of `params` by `grads` (both laid out by the [`Layout`] it was made for) at the scheduled rate `lr`,
    /// which each group multiplies with its own factor. Allocates nothing. The gradients must be finite.
    fn step(&mut self, params: &mut [f32], grads: &[f32], lr: f64);

    /// A copy of everything that a resume needs.
    fn state(&self) -> State;

    /// Takes a saved state. On an error (see [`crate::StateError`]) nothing has changed.
    fn load_state(&mut self, state: &State) -> Result<()>;
}

/// Makes an optimizer from `optimizer_params` and the table of parameters.
pub type Build = fn(&Map<String, Value>, Layout) -> Result<Box<dyn Optimizer>>;

/// One row of the list: what a plan needs to know before anything is built.
pub struct Entry {
    pub name: &'static str,
    /// Bytes of state for each trained parameter.
    pub state_bytes_per_param: u64,
    /// Builds it from `optimizer_params` of a config.
    pub build: Build,
}

/// Every optimizer that a config can name.
pub static OPTIMIZERS: &[Entry] = &[Entry {
    name: adamw::NAME,
    state_bytes_per_param: adamw::STATE_BYTES_PER_PARAM,
    build: |given, layout| Ok(Box::new(AdamW::parse(given, layout)?)),
}];

/// The optimizer of that name, or an error with the list of names and the nearest. Case does not matter.
pub fn find(name: &str) -> Result<&'static Entry> {
    let names: Vec<&str> = OPTIMIZERS.iter().map(|e| e.name).collect();
    let lower = name.to_lowercase();
    OPTIMIZERS.iter().find(|e| e.name == lower).ok_or_else(|| unknown_name("optimizer", name, &names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Shape;

    #[test]
    fn names_are_found_in_any_case_and_unknown_ones_refused_with_the_list() {
        assert_eq!(find("AdamW").unwrap().name, "adamw");
        let error = find("adanw").err().unwrap().to_string();
        assert!(error.contains("did you mean adamw?"), "{error}");
    }

    /// For every optimizer: the planned state size is the real one, the state survives saving, and a run that was
    /// interrupted and resumed has the same bits as one that was not, on any number of threads.
    #[test]
    fn every_optimizer_resumes_bit_for_bit_and_keeps_its_planned_size() {
        for entry in OPTIMIZERS {
            let mut layout = Layout::new();
            let unet = layout.add_group("unet", 1.0, None).unwrap();
            let text = layout.add_group("text", 0.25, Some(0.5)).unwrap();
            layout.push("unet.a.lora_down", Shape::from([300, 70]), unet).unwrap();
            layout.push("text.a.lora_down", Shape::from([7, 5]), text).unwrap();
            let run = |threads: usize, interrupted: bool| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let mut optimizer = (entry.build)(&Map::new(), layout.clone()).unwrap();
                assert_eq!(optimizer.state_bytes(), entry.state_bytes_per_param * layout.elements() as u64);
                let mut params = vec![0.5; layout.elements()];
                let mut grads = vec![0.0; layout.elements()];
                for step in 0..6 {
                    base::Rng::new(9, "test", &[step]).fill_normal(&mut grads);
                    if interrupted && step == 3 {
                        let state = optimizer.state();
                        let tensors: Vec<_> = state.tensors().into_iter().map(|(name, array)| (name, array.clone())).collect();
                        optimizer = (entry.build)(&Map::new(), layout.clone()).unwrap();
                        optimizer.load_state(&State::from_parts(&state.metadata(), tensors).unwrap()).unwrap();
                        assert_eq!(optimizer.steps(), 3);
                    }
                    pool.install(|| optimizer.step(&mut params, &grads, 1e-2));
                }
                params
            };
            let whole = run(1, false);
            assert!(whole.iter().all(|p| p.is_finite() && *p != 0.5), "{}: a parameter did not move", entry.name);
            assert_eq!(whole, run(1, true), "{}: resume", entry.name);
            assert_eq!(whole, run(3, false), "{}: threads", entry.name);
        }
    }
}
