//! The run: caches, session, then step after step until done; and what happens around the steps.

use crate::Interrupted;
use crate::course::{Course, Rates};
use crate::encode::Caches;
use crate::event::{Event, Reporter};
use crate::feed;
use crate::folder::{RunFolder, Start};
use crate::frozen;
use crate::interrupt::Interrupt;
use crate::loader::{self, Loaded};
use crate::loss::Loss;
use crate::loss_scale::LossScale;
use crate::metrics::{Metrics, Row, Seconds, finite, peak_bytes};
use crate::planned::Planned;
use crate::prepare::Prepared;
use crate::resume;
use crate::run_programs::TEXT_PROGRAM;
use crate::sample;
use crate::save::Saver;
use crate::space::{self, Space};
use crate::state::State;
use crate::step::{Trainer, Update, Verdict};
use crate::tensorboard::{self, TensorBoard};
use crate::text::{Chunking, Embeddings};
use crate::usage::{self, Usage};
use crate::validate;
use anyhow::{Context, Result, bail, ensure};
use data::{Cache, ahead};
use engine::session::ParamPlace;
use engine::{Backend, Session};
use models::adapters::Factor;
use std::path::PathBuf;
use std::time::Instant;

/// What a finished run leaves.
#[derive(Clone, Debug)]
pub struct Finished {
    pub lora: PathBuf,
    pub steps: u64,
    /// Steps that this call ran; 0 if the run was complete already.
    pub ran: u64,
    /// Updates that were not applied, in this call.
    pub skipped: u64,
}

/// Trains to the end (or until interrupted: an [`Interrupted`] error, after a resumable state was saved).
pub fn train(
    run: &Prepared,
    planned: Planned,
    backend: Box<dyn Backend>,
    start: Start,
    interrupt: &Interrupt,
    reporter: &mut dyn Reporter,
) -> Result<Finished> {
    planned.memory.check()?;
    let folder = RunFolder::open(&run.folder(), &run.config.name, start)?;
    space::explained(train_in(run, planned, (&folder, start), backend, interrupt, reporter), folder.path())
}

/// The run in its folder.
fn train_in(
    run: &Prepared,
    planned: Planned,
    (folder, start): (&RunFolder, Start),
    backend: Box<dyn Backend>,
    interrupt: &Interrupt,
    reporter: &mut dyn Reporter,
) -> Result<Finished> {
    let saved = resume::state(run, folder, start, reporter)?;
    frozen::freeze(run, folder)?;
    if let Some(state) = saved.as_ref().filter(|s| s.manifest.step == run.steps && folder.final_lora().exists()) {
        reporter.report(Event::Notice(format!("this run is complete already: {} of {} steps are done", state.manifest.step, run.steps)));
        return Ok(Finished { lora: folder.final_lora(), steps: state.manifest.step, ran: 0, skipped: 0 });
    }
    if let Some(manifest) = saved.as_ref().map(|state| &state.manifest).filter(|m| m.step == m.total_steps) {
        match folder.keep_finished(manifest.step) {
            Ok(kept) => {
                kept.into_iter().for_each(|path| reporter.report(Event::Notice(format!("the finished LoRA stays as {}", path.display()))))
            }
            Err(error) => reporter.report(Event::Warning(format!("the finished LoRA will be replaced at the end of this run: {error:#}"))),
        }
    }
    if saved.is_none() {
        // Here too, so that a LoRA to start from that does not fit is found before everything is encoded.
        run.first_factors()?;
    }
    Space::of(run)?.check(folder)?.into_iter().for_each(|line| reporter.report(Event::Warning(line)));
    let rates = resume::rates(run, saved.as_ref(), reporter)?;
    run.dump_pixels(reporter)?;
    let caches = Caches::open(run)?;
    let backend = caches.fill(run, backend, interrupt, reporter)?;
    caches.write_report(run, folder.path())?;
    let memory = planned.memory.clone();
    let encoding = caches.has_encoded().then(|| Usage::so_far(memory.process + memory.encoding));
    if let Some(usage) = encoding {
        reporter.report(Event::Memory("encoding", usage));
    }
    let (trainer, saver, first) = begin(run, (planned, rates.course.clone()), folder, backend, saved, reporter)?;
    let (caches, saver, reporting) = (&caches, &saver, &mut *reporter);
    let make = |step| loader::step(run, caches, step);
    let finished = ahead::with(first..run.steps, loader::reach(&run.config), make, |loaded| {
        Loop { run, caches, saver, rates, trainer, interrupt, reporter: reporting, loaded, skipped: 0, in_a_row: 0, unsaved: false }
            .run(first)
    })?;
    let report = usage::Report::new(&memory, encoding);
    base::fs::write_atomic(&folder.path().join("memory.json"), &serde_json::to_vec_pretty(&report)?)?;
    reporter.report(Event::Memory("the run", report.training));
    Ok(finished)
}

/// Session, parameters and optimizer; returns the first step to run.
fn begin<'a>(
    run: &'a Prepared,
    (planned, course): (Planned, Course),
    folder: &'a RunFolder,
    backend: Box<dyn Backend>,
    saved: Option<State>,
    reporter: &mut dyn Reporter,
) -> Result<(Trainer, Saver<'a>, u64)> {
    let mut trainer = trainer(run, planned, backend, saved.as_ref(), reporter)?;
    let places = trainer.session().params().to_vec();
    let saver = Saver { run, folder, places, data: resume::data_identity(run), course };
    if saved.is_none() {
        saver.write_state(&trainer, 0).context("the run's folder can't take checkpoints")?;
    }
    Ok((trainer, saver, saved.map_or(0, |state| state.manifest.step)))
}

/// Everything that steps need, in memory: as at the start of the run, or as it was saved.
pub fn trainer(
    run: &Prepared,
    planned: Planned,
    backend: Box<dyn Backend>,
    saved: Option<&State>,
    reporter: &mut dyn Reporter,
) -> Result<Trainer> {
    let session = Session::new(backend, planned.programs, run.model.source.as_ref()).context("the base model can't be loaded")?;
    run.model.source.release();
    let places = session.params().to_vec();
    let train = &run.config.train;
    let mut optimizer = run.optimizer()?;
    let order = run.layout()?;
    let same = |(param, place): (&optim::Param, &ParamPlace)| param.name == place.name && param.range() == place.range;
    assert!(order.params().len() == places.len() && order.params().iter().zip(&places).all(same), "the optimizer's table is the session's");
    let params = match saved {
        Some(state) => {
            let params = resume::params(state, &places)?;
            resume::load_optimizer(run, &mut optimizer, state, reporter)?;
            params
        }
        None => first_params(run, &places, reporter)?,
    };
    let ema = resume::moving_average(run, saved, &places, &params, reporter)?;
    let loss = Loss::new(&train.loss, run.model.schedule.clone());
    let scale = train.loss_scaling().map(|config| LossScale::new(config, saved.and_then(|state| state.manifest.loss_scale)));
    Ok(Trainer::new(session, planned.index, loss, (optimizer, ema), train.max_grad_norm, params)?.with_loss_scale(scale))
}

/// Fresh adapters, or those of an existing LoRA.
fn first_params(run: &Prepared, places: &[ParamPlace], reporter: &mut dyn Reporter) -> Result<Vec<f32>> {
    let (factors, notices) = run.first_factors()?;
    notices.into_iter().for_each(|text| reporter.report(Event::Notice(text)));
    flat(&factors, places)
}

/// Factors as one slice, in the session's order.
pub fn flat(factors: &[Factor], places: &[ParamPlace]) -> Result<Vec<f32>> {
    ensure!(factors.len() == places.len(), "the adapters have {} factors where the session has {}", factors.len(), places.len());
    let mut params = Vec::new();
    for (factor, place) in factors.iter().zip(places) {
        ensure!(factor.name == place.name && factor.shape == place.shape, "the factor {} stands where {} belongs", factor.name, place.name);
        params.extend(&factor.data);
    }
    Ok(params)
}

/// The steps.
struct Loop<'a> {
    run: &'a Prepared,
    caches: &'a Caches,
    saver: &'a Saver<'a>,
    rates: Rates,
    trainer: Trainer,
    interrupt: &'a Interrupt,
    reporter: &'a mut dyn Reporter,
    /// The micro-batches of each step, in order.
    loaded: &'a mut dyn Iterator<Item = Result<Vec<Loaded>>>,
    skipped: u64,
    /// Updates in a row that were not applied.
    in_a_row: u64,
    /// Whether a checkpoint that was due waits for room on the disk.
    unsaved: bool,
}

/// A checkpoint that found no room is tried again after so many steps.
const RETRY_STEPS: u64 = 10;

impl Loop<'_> {
    fn run(mut self, first: u64) -> Result<Finished> {
        let total = self.run.steps;
        let mut metrics = Metrics::open(&self.saver.folder.metrics(), first)?;
        let mut board = self.run.config.logging.tensorboard.then(|| self.board(first)).transpose()?;
        if first == 0 && !self.run.config.train.skip_first_sample {
            self.sample(0);
        }
        self.reporter.report(Event::Training { first, total });
        for step in first..total {
            if let Some(signal) = self.interrupt.signal() {
                return Err(self.stop(step, signal)?);
            }
            let Some((mut row, update)) = self.step(step)? else {
                let signal = self.interrupt.signal().unwrap_or_default();
                return Err(self.stop(step, signal)?);
            };
            row.validation_loss = self.validate(row.step)?;
            metrics.append(&row)?;
            if let Some(board) = &mut board {
                board.append(&row)?;
            }
            self.reporter.report(Event::Step(&row));
            self.guard(row.step, update)?;
            self.after(row.step)?;
        }
        self.reporter.report(Event::End);
        metrics.flush()?;
        board.iter_mut().try_for_each(TensorBoard::flush)?;
        self.check_applied(total)?;
        let path = self.saver.folder.final_lora();
        self.saver.write_lora(&path, self.trainer.published(), total, self.reporter)?;
        self.saver.write_state(&self.trainer, total)?;
        self.reporter.report(Event::Saved(&path));
        if self.run.config.sample.sample_every == 0 || !total.is_multiple_of(self.run.config.sample.sample_every) {
            self.sample(total);
        }
        Ok(Finished { lora: path, steps: total, ran: total.saturating_sub(first), skipped: self.skipped })
    }

    /// A run none of whose updates was applied has learned nothing: its LoRA would be the one that it began with. So it ends as a failure;
    /// its state is saved, from which a longer run goes on with the loss scale that it has come to. The optimizer that counts the updates
    /// may have been put in another's place since some were applied.
    fn check_applied(&mut self, total: u64) -> Result<()> {
        if self.trainer.optimizer().steps() > 0 || total == 0 {
            return Ok(());
        }
        let first = self.run.first_factors().and_then(|(factors, _)| flat(&factors, &self.saver.places));
        if !first.is_ok_and(|first| first == self.trainer.params()) {
            self.reporter.report(Event::Warning(format!(
                "not one update by {} was applied: the LoRA is what it was when the run went on with this optimizer",
                self.run.config.train.optimizer
            )));
            return Ok(());
        }
        self.saver.write_state(&self.trainer, total)?;
        let advice = match self.trainer.loss_scale() {
            Some(scale) => format!(
                "train.grad_scaler.init_scale: {} begins where this run's loss scale ended; train.dtype: bf16 needs none; --resume with \
                 more train.steps goes on from here",
                scale.scale()
            ),
            None => "a lower train.lr, train.dtype: bf16 or fp32, or a look at the base model's weights may help".to_string(),
        };
        bail!("nothing was learned: not one of {} was applied, so no LoRA is written. {advice}", base::counted(total, "update"))
    }

    fn board(&self, first: u64) -> Result<TensorBoard> {
        let layout = self.run.layout()?;
        let groups = layout.groups().iter().map(|group| tensorboard::Group { name: group.name.clone(), lr_scale: group.lr_scale });
        TensorBoard::open(&self.saver.folder.tensorboard(), first, groups.collect())
    }

    /// One optimizer step; none if it was interrupted between micro-batches, in which case it is made anew on resume.
    fn step(&mut self, step: u64) -> Result<Option<(Row, Update)>> {
        let mut seconds = Seconds::default();
        let began = Instant::now();
        let mut loaded = self.loaded.next().context("no micro-batches were made for this step")??;
        seconds.data = began.elapsed().as_secs_f64();
        for (k, Loaded { number, batch, open, .. }) in loaded.iter_mut().enumerate() {
            if k > 0 && self.interrupt.signal().is_some() {
                return Ok(None);
            }
            let began = Instant::now();
            self.caches.lose_in_step(self.run, &open.failed, self.saver.folder.path(), self.reporter)?;
            feed::encode(self.run, *number, &open.pictures, self.trainer.session(), batch)?;
            self.trainer.accumulate(batch)?;
            seconds.compute += began.elapsed().as_secs_f64();
        }
        let began = Instant::now();
        let lr = self.rates.lr(step);
        let is_gone = |loaded: &Loaded| {
            let entries = loaded.picked.items.iter().map(|item| self.run.dataset.items[item.item].entry);
            entries.into_iter().all(|entry| self.caches.is_lost(entry))
        };
        let update = if loaded.iter().all(is_gone) { self.trainer.pass_over()? } else { self.trainer.update(lr)? };
        seconds.optimizer = began.elapsed().as_secs_f64();
        let there = |loaded: &'_ Loaded| {
            let items = loaded.picked.items.iter().zip(&loaded.batch.weights).filter(|(_, weight)| **weight != 0.0);
            items.map(|(item, _)| self.run.dataset.entry(item.item).picture.file.clone()).collect::<Vec<_>>()
        };
        let row = Row {
            step: step + 1,
            epoch: (step + 1) as f64 / self.run.batches.steps_per_epoch() as f64,
            loss: finite(update.loss),
            validation_loss: None,
            preservation_loss: update.preservation.and_then(finite),
            lr,
            adapted: self.trainer.optimizer().quantities().map(|(name, value)| (name.to_string(), value)).collect(),
            grad_norm: finite(update.grad_norm),
            files: loaded.iter().flat_map(there).collect(),
            skipped: u64::from(update.verdict != Verdict::Applied),
            loss_scale: update.loss_scale.map(f64::from),
            overflow: update.loss_scale.map(|_| u64::from(matches!(update.verdict, Verdict::Overflow(_)))),
            seconds,
            peak_bytes: peak_bytes(),
        };
        Ok(Some((row, update)))
    }

    /// The loss on the pictures that are set aside, where it is due after `done` steps.
    fn validate(&mut self, done: u64) -> Result<Option<f64>> {
        let due = done.is_multiple_of(self.run.config.train.validate_every.max(1)) || done == self.run.steps;
        if !due || !self.run.validates() {
            return Ok(None);
        }
        let (run, caches, interrupt) = (self.run, self.caches, self.interrupt);
        let loss = self.trainer.with_published(|session| validate::loss(run, caches, session, interrupt))?;
        Ok(loss.and_then(finite))
    }

    /// Counts updates that were not applied; too many in a row end the run, whose last checkpoint is untouched. A loss scale that falls
    /// is on its way to where nothing overflows, so it does not count among these.
    fn guard(&mut self, step: u64, update: Update) -> Result<()> {
        match update.verdict {
            Verdict::Applied => {
                self.in_a_row = 0;
                return Ok(());
            }
            Verdict::Overflow(scale) => {
                self.skipped += 1;
                let before = update.loss_scale.unwrap_or(scale);
                self.reporter.report(Event::Notice(format!(
                    "step {step}: a gradient goes beyond what fp16 holds; the update is not applied, and the loss is scaled by {scale} \
                     instead of {before}"
                )));
                return Ok(());
            }
            Verdict::Empty => {
                self.reporter.report(Event::Warning(format!("step {step}: all of its pictures have gone away; it is passed over")));
                return Ok(());
            }
            Verdict::NotFinite => self.skipped += 1,
        }
        self.in_a_row += 1;
        self.reporter
            .report(Event::Warning(format!("step {step}: the loss or a gradient is not a finite number; the update is not applied")));
        if self.in_a_row >= self.run.config.train.max_non_finite_steps {
            bail!(
                "{} updates in a row were not finite (train.max_non_finite_steps); nothing of them was applied. A lower train.lr, \
                 train.dtype: bf16 or fp32, or a look at the base model's weights may help; the last checkpoint is in {}",
                self.in_a_row,
                self.saver.folder.path().display()
            );
        }
        Ok(())
    }

    /// What the settings ask for after `done` steps.
    fn after(&mut self, done: u64) -> Result<()> {
        let due = |every: u64| every > 0 && done.is_multiple_of(every);
        let again = self.unsaved && done.is_multiple_of(RETRY_STEPS);
        if (due(self.run.config.save.save_every) || again) && done < self.run.steps {
            self.checkpoint(done)?;
        }
        if due(self.run.config.sample.sample_every) {
            self.sample(done);
        }
        Ok(())
    }

    /// Saves what is due. A full disk does not end the run: what it has learned is still in memory, and room may come.
    fn checkpoint(&mut self, done: u64) -> Result<()> {
        match self.saver.checkpoint(&mut self.trainer, done, self.reporter) {
            Ok(_) => self.unsaved = false,
            Err(error) if space::is_full(&error) => {
                if !self.unsaved {
                    self.reporter.report(Event::Warning(format!(
                        "no checkpoint at step {done}: {error:#}. Make room: training goes on and tries again every {RETRY_STEPS} steps; \
                         earlier checkpoints are whole"
                    )));
                }
                self.unsaved = true;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Saves a state to go on from, and gives the error that the run ends with.
    fn stop(&mut self, step: u64, signal: usize) -> Result<anyhow::Error> {
        let saved = self.saver.write_state(&self.trainer, step)?;
        Ok(Interrupted { signal, saved: Some(saved) }.into())
    }

    /// Draws the samples. Whatever goes wrong is a warning: samples never end a run.
    fn sample(&mut self, step: u64) {
        if !self.run.samples_on() {
            return;
        }
        if let Err(error) = self.draw_samples(step) {
            self.reporter.report(Event::Warning(format!("no samples at step {step}: {error:#}")));
        }
    }

    fn draw_samples(&mut self, step: u64) -> Result<()> {
        let run = self.run;
        let (folder, interrupt, caches) = (self.saver.folder.samples(), self.interrupt, self.caches);
        base::fs::create_dir(&folder)?;
        let reporter = &mut *self.reporter;
        self.trainer.with_published(|session| {
            let current = if run.text_encoder_trains() { Some(current_texts(run, session)?) } else { None };
            let texts = current.as_ref().unwrap_or(&caches.texts);
            for (i, request) in run.samples.iter().enumerate() {
                if interrupt.signal().is_some() {
                    return Ok(());
                }
                let noise = sample::noise(&run.model, request);
                let picture = sample::draw(session, &run.model, texts, request, run.config.sample.sampler, &noise)?;
                let path = folder.join(format!("{}_{step:09}_{i}.png", run.config.name));
                sample::write_png(&path, &picture)?;
                reporter.report(Event::Sampled(&path));
            }
            Ok(())
        })
    }
}

/// Embeddings of the prompts by the text encoder as it is now.
fn current_texts(run: &Prepared, session: &mut Session) -> Result<Embeddings> {
    let texts = Embeddings::new(Cache::in_memory(), &run.model, "in training", Chunking::long());
    let program = session.find(TEXT_PROGRAM).context("the text encoder was planned for the samples")?;
    for text in run.samples.iter().flat_map(|r| r.texts().map(str::to_string)) {
        if !texts.check(&text) {
            texts.encode(&text, &run.model, session, program)?;
        }
    }
    Ok(texts)
}
