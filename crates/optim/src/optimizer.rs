//! An optimizer at work: a rule, its state, and the bookkeeping that all rules share.

use crate::cells::Cells;
use crate::optimizers::{Rule, Step};
use crate::state::{Array, StateError, Wanted};
use crate::swap::Swap;
use crate::table::Table;
use crate::{Chosen, Layout, State};
use anyhow::Result;

/// Name of the saved array that holds a parameter's own count of updates, where it differs from the step.
const UPDATES: &str = "updates";

/// Applies gradients to parameters. Works element by element or in a fixed order: the result never depends on the thread count.
pub struct Optimizer {
    name: &'static str,
    version: u32,
    rule: Box<dyn Rule>,
    table: Table,
    cells: Vec<Cells>,
    scalars: Vec<(&'static str, f64)>,
    step: u64,
    base_lr: f64,
    swap: Option<Swap>,
}

impl Optimizer {
    /// For parameters that lie as in `layout`. `base_lr` is the rate that the schedule shapes.
    pub fn new(chosen: Chosen, layout: Layout, base_lr: f64, swap: Option<Swap>) -> Result<Optimizer> {
        layout.check()?;
        let Chosen { name, version, mut rule, .. } = chosen;
        let table = Table::new(layout, rule.grain());
        let cells = rule.cells().into_iter().map(|spec| Cells::new(spec, &table.layout, rule.grain())).collect();
        rule.prepare(&table.layout);
        let scalars = rule.scalars();
        Ok(Optimizer { name, version, rule, table, cells, scalars, step: 0, base_lr, swap })
    }

    /// The name in configs and saved states.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Steps applied so far.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// Bytes that this optimizer really holds for its state and its scratch.
    pub fn held_bytes(&self) -> u64 {
        self.cells.iter().map(Cells::held).sum::<u64>() + self.rule.scratch_bytes(&self.table.layout)
    }

    /// Chooses what the next step trains, and clears the gradients of everything else: they are no part of the gradient's norm.
    pub fn choose(&mut self, grads: &mut [f32]) {
        let Some(swap) = &mut self.swap else { return };
        swap.choose(self.step, &self.table.layout, &mut self.table.active);
        for (param, active) in self.table.layout.params().iter().zip(&self.table.active) {
            if !active {
                grads[param.range()].fill(0.0);
            }
        }
    }

    /// One update of `params` by `grads` (both laid out by the [`Layout`] it was made for) at the scheduled rate `lr`, which each
    /// group multiplies with its own factor. Allocates nothing. The gradients must be finite, and [`Optimizer::choose`] comes first.
    pub fn step(&mut self, params: &mut [f32], grads: &[f32], lr: f64) {
        let elements = self.table.layout.elements();
        assert!(params.len() == elements && grads.len() == elements, "the slices must be laid out as the optimizer was told");
        self.step += 1;
        self.table.count();
        let Optimizer { rule, table, cells, scalars, .. } = self;
        rule.step(Step { number: self.step, lr, base_lr: self.base_lr, params, grads, table, cells, scalars: Scalars(scalars) });
    }

    /// What an adaptive rule has arrived at (`d`, its mean rate), by name.
    pub fn quantities(&self) -> impl Iterator<Item = (&'static str, f64)> {
        self.scalars.iter().filter(|(name, _)| self.rule.shown().contains(name)).copied()
    }

    /// Whether what is saved and sampled differs from what is trained; see [`Optimizer::publish`].
    pub fn averages(&self) -> bool {
        self.rule.averages()
    }

    /// Writes the parameters to save and to sample with into `out`, for rules that train at another point.
    pub fn publish(&self, params: &[f32], out: &mut [f32]) {
        out.copy_from_slice(params);
        self.rule.publish(&self.table, &self.cells, out);
    }

    /// A copy of everything that a resume needs.
    pub fn state(&self) -> State {
        let mut state = State::new(self.name, self.version, self.step);
        state.scalars = self.scalars.iter().map(|(name, value)| (name.to_string(), *value)).collect();
        for (i, param) in self.table.layout.params().iter().enumerate() {
            let arrays = state.params.entry(param.name.clone()).or_default();
            if self.table.updates[i] != self.step {
                arrays.insert(UPDATES.to_string(), Array::U8(self.table.updates[i].to_le_bytes().to_vec()));
            }
            self.cells.iter().for_each(|cells| cells.save(&param.name, self.table.pieces_of(i), &mut state));
        }
        state
    }

    /// Takes a saved state. On an error (see [`StateError`]) nothing has changed.
    pub fn load_state(&mut self, state: &State) -> Result<()> {
        let wanted = if self.cells.is_empty() { Wanted::Any } else { Wanted::All };
        state.check(self.name, self.version, &self.table.layout, wanted)?;
        let mut cells = self.cells.clone();
        let mut updates = vec![state.step; self.table.updates.len()];
        for (i, param) in self.table.layout.params().iter().enumerate() {
            for array in &mut cells {
                array.load(&param.name, self.table.pieces_of(i), state)?;
            }
            if state.params.get(&param.name).is_some_and(|arrays| arrays.contains_key(UPDATES)) {
                let bytes = state.bytes(&param.name, UPDATES, 8)?;
                updates[i] = u64::from_le_bytes(bytes.try_into().expect("eight bytes were asked for"));
            }
        }
        let mut scalars = self.scalars.clone();
        for (name, value) in &mut scalars {
            *value = state.scalars.get(*name).copied().ok_or_else(|| StateError::Scalar(name.to_string()))?;
        }
        (self.cells, self.table.updates, self.scalars, self.step) = (cells, updates, scalars, state.step);
        self.recall();
        Ok(())
    }

    /// What the last step before a resume trained.
    fn recall(&mut self) {
        if let (Some(swap), 1..) = (&mut self.swap, self.step) {
            swap.choose(self.step - 1, &self.table.layout, &mut self.table.active);
        }
        self.table.recall();
    }
}

/// A rule's numbers, by name.
pub struct Scalars<'a>(&'a mut [(&'static str, f64)]);

impl Scalars<'_> {
    /// # Panics
    /// If the rule does not list `name` among its scalars.
    pub fn get(&self, name: &str) -> f64 {
        self.0.iter().find(|(known, _)| *known == name).expect("a rule asks for scalars of its list").1
    }

    /// # Panics
    /// If the rule does not list `name` among its scalars.
    pub fn set(&mut self, name: &str, value: f64) {
        self.0.iter_mut().find(|(known, _)| *known == name).expect("a rule sets scalars of its list").1 = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OPTIMIZERS, choose};
    use base::Shape;
    use serde_json::{Map, json};

    fn layout() -> Layout {
        let mut layout = Layout::new();
        let unet = layout.add_group("unet", 1.0, None).unwrap();
        let text = layout.add_group("text", 0.25, Some(0.5)).unwrap();
        layout.push("unet.a.lora_down", Shape::from([300, 70]), unet).unwrap();
        layout.push("unet.a.lora_up", Shape::from([70, 4]), unet).unwrap();
        layout.push("unet.b.lora_down", Shape::from([4, 3, 3, 8]), unet).unwrap();
        layout.push("text.a.lora_down", Shape::from([7, 5]), text).unwrap();
        layout.push("text.a.magnitude", Shape::from([9]), text).unwrap();
        layout
    }

    fn new(name: &str, params: &Map<String, serde_json::Value>, swap: Option<f64>) -> Optimizer {
        let chosen = choose(name, params).unwrap();
        let swap = swap.map(|share| Swap::new(5, share, &layout()).unwrap());
        Optimizer::new(chosen, layout(), 1e-2, swap).unwrap()
    }

    /// Eight steps; `interrupted` saves after the fifth and goes on in a new optimizer.
    fn run(make: &dyn Fn() -> Optimizer, threads: usize, interrupted: bool) -> (Vec<f32>, Vec<f32>) {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut optimizer = make();
        let mut params = vec![1e-4; layout().elements()];
        let mut grads = vec![0.0; params.len()];
        for step in 0..8 {
            base::Rng::new(9, "test", &[step]).fill_normal(&mut grads);
            grads.iter_mut().for_each(|g| *g += 0.3);
            if interrupted && step == 5 {
                let state = optimizer.state();
                let tensors: Vec<_> = state.tensors().into_iter().map(|(name, array)| (name, array.clone())).collect();
                optimizer = make();
                optimizer.load_state(&State::from_parts(&state.metadata(), tensors).unwrap()).unwrap();
                assert_eq!(optimizer.steps(), 5);
            }
            optimizer.choose(&mut grads);
            pool.install(|| optimizer.step(&mut params, &grads, 1e-2 / (1.0 + step as f64)));
        }
        let mut published = vec![0.0; params.len()];
        optimizer.publish(&params, &mut published);
        (params, published)
    }

    /// For every optimizer: the planned size is the real one, the state survives saving, and a run that was interrupted and
    /// resumed has the same bits as one that was not, on any number of threads, with all parameters and with swapped ones.
    #[test]
    fn every_optimizer_resumes_bit_for_bit_and_keeps_its_planned_size() {
        for entry in OPTIMIZERS {
            for swap in [None, Some(0.4)] {
                let make = || new(entry.name, &Map::new(), swap);
                let planned = choose(entry.name, &Map::new()).unwrap().held_bytes(&layout());
                assert_eq!(make().held_bytes(), planned, "{}", entry.name);
                let (whole, published) = run(&make, 1, false);
                let moved = layout().params().iter().filter(|p| whole[p.range()].iter().any(|v| *v != 1e-4)).count();
                assert!(whole.iter().all(|p| p.is_finite()) && moved == 5, "{}: {moved} parameters moved", entry.name);
                assert_eq!((whole.clone(), published), run(&make, 1, true), "{} {swap:?}: resume", entry.name);
                assert_eq!(whole, run(&make, 3, false).0, "{} {swap:?}: threads", entry.name);
            }
        }
    }

    /// State is found by the parameters' names, wherever they lie. What is summed over all of them is then summed in another order.
    #[test]
    fn every_optimizer_takes_a_state_whose_parameters_lay_in_another_order() {
        const SPLIT: usize = 6 * 5;
        let shape = |name: &str| if name == "a" { Shape::from([6, 5]) } else { Shape::from([7, 3]) };
        let draw = |names: [&str; 2], step: u64| {
            let each = names.map(|name| {
                let mut values = vec![0.0; shape(name).elements()];
                base::Rng::new(9, name, &[step]).fill_normal(&mut values);
                values
            });
            each.concat()
        };
        for entry in OPTIMIZERS {
            let make = |names: [&str; 2]| {
                let layout = Layout::uniform(names.map(|name| (name.to_string(), shape(name)))).unwrap();
                Optimizer::new(choose(entry.name, &Map::new()).unwrap(), layout, 1e-2, None).unwrap()
            };
            let (mut first, mut params) = (make(["a", "b"]), draw(["a", "b"], 100));
            (0..3).for_each(|step| first.step(&mut params, &draw(["a", "b"], step), 1e-2));
            let (mut second, mut turned) = (make(["b", "a"]), [&params[SPLIT..], &params[..SPLIT]].concat());
            second.load_state(&first.state()).unwrap();
            let before = params.clone();
            first.step(&mut params, &draw(["a", "b"], 3), 1e-2);
            second.step(&mut turned, &draw(["b", "a"], 3), 1e-2);
            let back = [&turned[turned.len() - SPLIT..], &turned[..turned.len() - SPLIT]].concat();
            let moved = params.iter().zip(&before).map(|(p, b)| (p - b).abs()).fold(0.0, f32::max);
            let away = params.iter().zip(&back).map(|(p, b)| (p - b).abs()).fold(0.0, f32::max);
            assert!(moved > 0.0 && away <= 1e-6, "{}: {away} away, after a step of {moved}", entry.name);
        }
    }

    /// With the settings that change what is kept.
    #[test]
    fn other_settings_resume_bit_for_bit_too() {
        let cases = [
            ("adafactor", json!({"beta1": 0.9, "relative_step": true, "scale_parameter": true, "warmup_init": true})),
            ("sgd", json!({"momentum": 0.0})),
            ("prodigy", json!({"slice_p": 11, "safeguard_warmup": true, "use_bias_correction": true})),
            ("prodigy8bit", json!({"slice_p": 1})),
            ("automagic3", json!({"polarity_history": 3})),
        ];
        for (name, params) in cases {
            let make = || new(name, params.as_object().unwrap(), None);
            assert_eq!(make().held_bytes(), choose(name, params.as_object().unwrap()).unwrap().held_bytes(&layout()), "{name}");
            assert_eq!(run(&make, 1, false), run(&make, 2, true), "{name} {params}");
        }
    }

    #[test]
    fn a_state_that_does_not_fit_changes_nothing() {
        let mut optimizer = new("adamw", &Map::new(), None);
        let fresh = optimizer.state();
        let mut state = new("adamw", &Map::new(), None).state();
        state.step = 3;
        state.params.get_mut("text.a.magnitude").unwrap().insert("exp_avg".to_string(), Array::F32(vec![1.0; 8]));
        assert!(optimizer.load_state(&state).unwrap_err().to_string().contains("text.a.magnitude.exp_avg"));
        assert_eq!(optimizer.state(), fresh);
        let error = new("prodigy", &Map::new(), None).load_state(&state).unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(StateError::OtherOptimizer { .. })), "{error}");
    }

    #[test]
    fn the_step_that_adaptive_optimizers_find_grows_until_a_simple_task_is_solved() {
        for name in ["prodigy", "prodigy8bit", "dadaptadam", "dadaptlion"] {
            let layout = Layout::uniform([("a".to_string(), Shape::from([32, 8]))]).unwrap();
            let mut optimizer = Optimizer::new(choose(name, &Map::new()).unwrap(), layout, 1.0, None).unwrap();
            let d = |optimizer: &Optimizer| optimizer.quantities().find(|(name, _)| *name == "d").unwrap().1;
            let (start, mut params) = (d(&optimizer), vec![0.0; 256]);
            for _ in 0..2000 {
                let grads: Vec<f32> = params.iter().map(|p| p - 1.0).collect();
                optimizer.step(&mut params, &grads, 1.0);
            }
            let away = params.iter().map(|p| (p - 1.0).abs()).fold(0.0, f32::max);
            assert!(d(&optimizer) > 100.0 * start && away < 0.3, "{name}: d {} from {start}, still {away} away", d(&optimizer));
        }
    }

    #[test]
    fn group_factors_scale_the_rate_and_replace_the_decay() {
        let mut layout = Layout::new();
        for (name, scale, decay) in [("a", 1.0, Some(0.0)), ("b", 0.5, Some(0.0)), ("c", 0.0, None), ("d", 1.0, Some(0.1))] {
            let group = layout.add_group(name, scale, decay).unwrap();
            layout.push(name, Shape::from([1]), group).unwrap();
        }
        let chosen = choose("adamw", json!({"weight_decay": 0.01}).as_object().unwrap()).unwrap();
        let mut optimizer = Optimizer::new(chosen, layout, 0.1, None).unwrap();
        let mut params = [1.0; 4];
        optimizer.step(&mut params, &[2.0; 4], 0.1);
        // The first step of Adam moves by the rate, whatever the gradient.
        let expected = [0.9, 0.95, 1.0, 0.89];
        assert!(params.iter().zip(expected).all(|(p, e)| (p - e).abs() < 1e-6), "{params:?}");
    }
}
