//! One optimizer step: micro-batches add up gradients, then one update. Reads like the algorithm; everything else is elsewhere.

use anyhow::{Context, Result};
use diffusion::{NoiseSchedule, weighting};
use engine::Session;
use engine::session::Data;
use optim::{Clip, Ema, Optimizer};
use std::collections::HashMap;

/// Shape of a micro-batch: it decides which program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Form {
    pub batch: usize,
    /// Height and width of the latents.
    pub size: [usize; 2],
}

/// The text side of a micro-batch.
#[derive(Clone, Debug)]
pub enum Text {
    /// Embeddings [B, tokens, width].
    Context(Vec<f32>),
    /// Token ids [B · chunks, tokens of a chunk], for programs that train the text encoder.
    Ids(Vec<u32>),
}

/// A micro-batch as numbers. Kept between steps, so that its vectors are allocated once.
#[derive(Clone, Debug)]
pub struct Batch {
    pub form: Form,
    /// Clean latents x₀ [B, h, w, channels], scaled.
    pub latents: Vec<f32>,
    /// ε, like the latents.
    pub noise: Vec<f32>,
    pub timesteps: Vec<usize>,
    /// A weight for each item.
    pub weights: Vec<f32>,
    pub text: Text,
    /// Seed of the adapters' dropout masks.
    pub dropout_seed: [u32; 2],
}

/// What decides a step's mathematics beside the batch.
#[derive(Clone, Debug)]
pub struct Loss {
    pub schedule: NoiseSchedule,
    /// Min-SNR γ; 0: every timestep weighs the same.
    pub min_snr_gamma: f64,
}

impl Loss {
    /// Weight of the loss at a timestep.
    pub fn weight(&self, timestep: usize) -> f64 {
        if self.min_snr_gamma == 0.0 {
            return 1.0;
        }
        weighting::min_snr(self.schedule.prediction(), self.schedule.snr(timestep), self.min_snr_gamma)
    }
}

/// Input arrays of a run of the training program, allocated once.
#[derive(Default)]
struct Staging {
    noisy: Vec<f32>,
    target: Vec<f32>,
    timesteps: Vec<f32>,
    weights: Vec<f32>,
}

/// What an update did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// Mean loss over the group's items, with their weights.
    pub loss: f64,
    /// Norm of the mean gradient before clipping.
    pub grad_norm: f64,
    /// False if a number was not finite: nothing was changed.
    pub applied: bool,
}

/// How a program of the session is run: timed or not.
type Run<'a> = dyn FnMut(&mut Session, usize, &[(&str, Data)]) -> Result<()> + 'a;

/// Parameters, optimizer and session of a run.
pub struct Trainer {
    session: Session,
    programs: HashMap<Form, usize>,
    loss: Loss,
    optimizer: Optimizer,
    ema: Option<Ema>,
    clip: Clip,
    /// 0: gradients are not clipped.
    max_grad_norm: f64,
    params: Vec<f32>,
    gradients: Vec<f32>,
    /// What is saved and sampled with, where the optimizer trains at another point.
    published: Vec<f32>,
    staging: Staging,
    /// Σ of weighted losses, and number of items, since the last update.
    group: (f64, usize),
}

impl Trainer {
    /// `programs` are the session's training programs; `params` lie as in the session's table. With an `ema` that is saved and
    /// sampled.
    pub fn new(
        mut session: Session,
        programs: HashMap<Form, usize>,
        loss: Loss,
        (optimizer, ema): (Optimizer, Option<Ema>),
        max_grad_norm: f64,
        params: Vec<f32>,
    ) -> Result<Trainer> {
        session.set_params(&params)?;
        session.clear_gradients()?;
        let (clip, gradients) = (Clip::new(params.len()), vec![0.0; params.len()]);
        let published = if optimizer.averages() { params.clone() } else { Vec::new() };
        Ok(Trainer {
            session,
            programs,
            loss,
            optimizer,
            ema,
            clip,
            max_grad_norm,
            params,
            gradients,
            published,
            staging: Staging::default(),
            group: (0.0, 0),
        })
    }

    /// The parameters that are trained.
    pub fn params(&self) -> &[f32] {
        &self.params
    }

    /// The parameters to save for use: the moving average, or what the optimizer makes of the trained ones.
    pub fn published(&mut self) -> &[f32] {
        if let Some(ema) = &self.ema {
            return ema.average();
        }
        if !self.optimizer.averages() {
            return &self.params;
        }
        self.optimizer.publish(&self.params, &mut self.published);
        &self.published
    }

    pub fn optimizer(&self) -> &Optimizer {
        &self.optimizer
    }

    pub fn ema(&self) -> Option<&Ema> {
        self.ema.as_ref()
    }

    /// The session as it is.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Lets `draw` use the session with the published parameters; training goes on with its own.
    pub fn with_published<T>(&mut self, draw: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        if self.ema.is_none() && !self.optimizer.averages() {
            return draw(&mut self.session);
        }
        self.published();
        let published = self.ema.as_ref().map_or(self.published.as_slice(), Ema::average);
        self.session.set_params(published)?;
        let drawn = draw(&mut self.session);
        self.session.set_params(&self.params)?;
        drawn
    }

    /// Runs forward and backward of one micro-batch and adds to the group's gradient.
    pub fn accumulate(&mut self, batch: &Batch) -> Result<()> {
        self.accumulate_with(batch, &mut Session::run)
    }

    /// Like [`Trainer::accumulate`], and says how many seconds each step of its program took. Returns the program's number.
    pub fn accumulate_timed(&mut self, batch: &Batch, seconds: &mut Vec<f64>) -> Result<usize> {
        let mut program = 0;
        self.accumulate_with(batch, &mut |session, number, inputs| {
            program = number;
            session.run_timed(number, inputs, seconds)
        })?;
        Ok(program)
    }

    fn accumulate_with(&mut self, batch: &Batch, run: &mut Run) -> Result<()> {
        let program = *self.programs.get(&batch.form).with_context(|| format!("no program was planned for {:?}", batch.form))?;
        self.stage(batch);
        let text = match &batch.text {
            Text::Context(context) => ("context", Data::F32(context)),
            Text::Ids(ids) => ("ids", Data::U32(ids)),
        };
        let Staging { noisy, target, timesteps, weights } = &self.staging;
        let inputs = [
            ("latents", Data::F32(noisy)),
            ("timestep", Data::F32(timesteps)),
            text,
            ("target", Data::F32(target)),
            ("weight", Data::F32(weights)),
            (models::layers::DROPOUT_SEED, Data::U32(&batch.dropout_seed)),
        ];
        run(&mut self.session, program, &inputs)?;
        let mut loss = [0.0];
        self.session.read_output(program, "loss", &mut loss)?;
        self.group = (self.group.0 + f64::from(loss[0]), self.group.1 + batch.form.batch);
        Ok(())
    }

    /// x_t, target, and weights. The program takes the mean over its items; weights times their number turn it into a sum, so that
    /// micro-batches of different sizes add up to the mean over all items of the group.
    fn stage(&mut self, batch: &Batch) {
        let Staging { noisy, target, timesteps, weights } = &mut self.staging;
        let count = batch.timesteps.len();
        let item = batch.latents.len() / count;
        noisy.resize(batch.latents.len(), 0.0);
        target.resize(batch.latents.len(), 0.0);
        timesteps.clear();
        weights.clear();
        for (i, t) in batch.timesteps.iter().enumerate() {
            let range = i * item..(i + 1) * item;
            let (x0, noise) = (&batch.latents[range.clone()], &batch.noise[range.clone()]);
            self.loss.schedule.add_noise(*t, x0, noise, &mut noisy[range.clone()]);
            self.loss.schedule.target(*t, x0, noise, &mut target[range]);
            timesteps.push(*t as f32);
            weights.push((self.loss.weight(*t) * f64::from(batch.weights[i]) * count as f64) as f32);
        }
    }

    /// Ends the group: one update at the rate `lr` with the mean gradient over its items.
    pub fn update(&mut self, lr: f64) -> Result<Update> {
        let (sum, items) = std::mem::take(&mut self.group);
        self.session.read_gradients(&mut self.gradients)?;
        self.session.clear_gradients()?;
        let loss = sum / items as f64;
        optim::clip::scale(&mut self.gradients, 1.0 / items as f32);
        self.optimizer.choose(&mut self.gradients);
        let limit = if self.max_grad_norm > 0.0 { self.max_grad_norm } else { f64::INFINITY };
        let clipped = self.clip.clip(&mut self.gradients, limit);
        let applied = loss.is_finite() && clipped.finite();
        if applied {
            self.optimizer.step(&mut self.params, &self.gradients, lr);
            self.session.set_params(&self.params)?;
            if let Some(ema) = &mut self.ema {
                ema.update(&self.params);
            }
        }
        Ok(Update { loss, grad_norm: clipped.norm, applied })
    }
}
