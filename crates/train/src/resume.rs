//! Going on with a saved run: its newest whole state, what differs from it, and its numbers where this run wants them.

use crate::contents::Contents;
use crate::course::{Course, Rates};
use crate::event::{Event, Reporter};
use crate::folder::{RunFolder, Start};
use crate::prepare::Prepared;
use crate::state::{self, State};
use anyhow::{Context, Result, ensure};
use config::OnOptimizerChange;
use engine::session::ParamPlace;
use optim::{Ema, Optimizer};
use std::collections::BTreeMap;

/// The newest whole state of a resumed run, and the differences that the user should know of.
pub fn state(run: &Prepared, folder: &RunFolder, start: Start, reporter: &mut dyn Reporter) -> Result<Option<State>> {
    if start != Start::Resume {
        return Ok(None);
    }
    let (state, damaged) = state::newest(&folder.states())?;
    damaged.into_iter().for_each(|line| reporter.report(Event::Warning(line)));
    let Some(state) = state else {
        ensure!(
            !folder.has_loras(),
            "{} holds LoRA files of a run but no saved state to go on from: add --over instead of --resume to move them aside and begin anew",
            folder.path().display()
        );
        reporter.report(Event::Notice(format!("{} holds no saved state: beginning at step 0", folder.path().display())));
        return Ok(None);
    };
    let saved = &state.manifest;
    ensure!(
        saved.step <= run.steps,
        "the run in {} has done {} steps already, more than the {} of this config: set train.steps (or train.epochs) higher, or change `name`",
        folder.path().display(),
        saved.step,
        run.steps
    );
    check(run, &state)?;
    let mut notes = Vec::new();
    let mut note = |text: String| notes.push(text);
    note(format!("going on after step {} of {}", saved.step, run.steps));
    let lr = run.config.train.base_lr();
    if saved.lr != lr {
        note(format!("learning rate: config {lr:e}, saved {:e}; using the config's", saved.lr));
    }
    if saved.total_steps != run.steps {
        note(format!("length: config {} steps, saved {}; using the config's", run.steps, saved.total_steps));
    }
    if saved.seed != run.config.seed {
        note(format!("seed: config {}, saved {}; using the config's from here on", run.config.seed, saved.seed));
    }
    note_changes(&saved.settings, &run.settings()?, &mut note)?;
    saved.contents.iter().flat_map(|saved| Contents::of(run).changes(saved)).for_each(&mut note);
    if saved.data != data_identity(run) {
        note("the pictures, buckets or batches differ from those of the saved run; using the new ones from here on".to_string());
    }
    // Only now: what is refused is not announced.
    notes.into_iter().for_each(|text| reporter.report(Event::Notice(text)));
    Ok(Some(state))
}

/// Whether the saved numbers fit this run, so that a run that can't go on has written and encoded nothing.
fn check(run: &Prepared, state: &State) -> Result<()> {
    let layout = run.layout()?;
    let place = |param: &optim::Param| ParamPlace { name: param.name.clone(), shape: param.shape.clone(), range: param.range() };
    // First the adapters: what they lack says best how the runs differ.
    params(state, &layout.params().iter().map(place).collect::<Vec<_>>())?;
    match begins_with_empty_state(run, state) {
        true => Ok(()),
        false => load_state(&mut run.optimizer()?, state),
    }
}

/// Where the loss scale of a fresh run begins.
const INIT_SCALE: &str = "train.grad_scaler.init_scale";

/// Says which settings differ from the saved run's; those that would change what the saved numbers mean are refused.
fn note_changes(saved: &BTreeMap<String, String>, now: &BTreeMap<String, String>, note: &mut dyn FnMut(String)) -> Result<()> {
    for (key, new) in now {
        let Some(old) = saved.get(key).filter(|old| *old != new) else { continue };
        // With another rank the saved numbers don't fit at all, which is said where they are read.
        let same_rank = key.strip_suffix("_alpha").is_some_and(|rank| saved.get(rank) == now.get(rank));
        ensure!(
            !same_rank,
            "{key} is {new}, but the saved run was trained with {old}: its strength would change at once; set it back, or begin a new run"
        );
        if key == INIT_SCALE {
            note(format!("{key}: config {new}, saved {old}; no effect on a resume, which goes on with the scale that the run has come to"));
            continue;
        }
        note(format!("{key}: config {new}, saved {old}; using the config's from here on"));
    }
    Ok(())
}

/// A hash of everything that decides which pictures a step takes.
pub fn data_identity(run: &Prepared) -> String {
    let mut words = vec![run.config.train.batch_size as u64, run.config.train.gradient_accumulation as u64];
    for item in &run.dataset.items {
        let picture = &run.dataset.entries[item.entry].picture;
        words.extend([base::rng::name_word(&picture.file), u64::from(item.bucket.width), u64::from(item.bucket.height)]);
        words.extend([
            u64::from(item.repeats),
            u64::from(item.flip),
            u64::from_le_bytes(picture.content[..8].try_into().expect("8 bytes")),
        ]);
    }
    format!("{:016x}", base::rng::mix(&words))
}

/// The rates of the run; says so if the saved run's schedule goes on at another pace.
pub fn rates(run: &Prepared, saved: Option<&State>, reporter: &mut dyn Reporter) -> Result<Rates> {
    let way = saved.map(|state| &state.manifest).map(|m| (m.course.clone().unwrap_or(Course::straight(m.total_steps)), m.step));
    let rates = Rates::new(run.steps, way.as_ref().map(|(course, done)| (course, *done)), |total| run.lr_schedule(total))?;
    if let Some(((before, done), knot)) = way.as_ref().zip(rates.course.knots.last()).filter(|((before, _), _)| *before != rates.course) {
        reporter.report(Event::Notice(format!(
            "the learning rate goes on from {:e}: what is left of its schedule ({} of {} steps) is spread over the {} steps to come",
            rates.lr(*done),
            before.length - before.at(*done),
            before.length,
            run.steps - knot.step
        )));
    }
    Ok(rates)
}

/// Whether the saved state is another optimizer's, and the config says to begin with none.
fn begins_with_empty_state(run: &Prepared, state: &State) -> bool {
    run.config.train.on_optimizer_change == OnOptimizerChange::Fresh && run.config.train.optimizer != state.optimizer.optimizer
}

fn load_state(optimizer: &mut Optimizer, state: &State) -> Result<()> {
    optimizer.load_state(&state.optimizer).context("the saved run can't be continued")
}

/// The saved state, or none where that is what the config says.
pub fn load_optimizer(run: &Prepared, optimizer: &mut Optimizer, state: &State, reporter: &mut dyn Reporter) -> Result<()> {
    if begins_with_empty_state(run, state) {
        reporter.report(Event::Notice(format!(
            "train.optimizer: {} instead of {}, with empty optimizer state (train.on_optimizer_change: fresh)",
            optimizer.name(),
            state.optimizer.optimizer
        )));
        return Ok(());
    }
    load_state(optimizer, state)
}

/// The moving average: the saved one, or one that begins at `params`.
pub fn moving_average(
    run: &Prepared,
    saved: Option<&State>,
    places: &[ParamPlace],
    params: &[f32],
    reporter: &mut dyn Reporter,
) -> Result<Option<Ema>> {
    let config = run.config.train.ema_config;
    if !config.use_ema {
        return Ok(None);
    }
    let mut ema = Ema::new(config.ema_decay, config.warmup, params)?;
    match saved.and_then(|state| state.ema.as_ref()) {
        Some((updates, average)) => ema.resume(*updates, in_order(average, places)?)?,
        None if saved.is_some() => {
            reporter.report(Event::Notice("the saved run has no moving average: it begins at the adapters as they are".to_string()));
        }
        None => {}
    }
    Ok(Some(ema))
}

pub fn params(state: &State, places: &[ParamPlace]) -> Result<Vec<f32>> {
    let params = in_order(&state.params, places)?;
    ensure!(params.len() == state.params.values().map(Vec::len).sum::<usize>(), "the saved state trains more modules than this config");
    Ok(params)
}

/// Saved numbers as one slice, in the session's order.
fn in_order(saved: &BTreeMap<String, Vec<f32>>, places: &[ParamPlace]) -> Result<Vec<f32>> {
    let mut params = Vec::new();
    for place in places {
        let values = saved.get(&place.name).with_context(|| {
            format!(
                "the saved state has no {}: this config trains other modules than the saved run did; set them back, or begin a new run",
                place.name
            )
        })?;
        ensure!(
            values.len() == place.shape.elements(),
            "the saved state has {} values for {} where this config needs {}: was the rank changed? Set it back, or begin a new run",
            values.len(),
            place.name,
            place.shape.elements()
        );
        params.extend(values);
    }
    Ok(params)
}
