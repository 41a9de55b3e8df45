//! One optimizer step: micro-batches add up gradients, then one update. Reads like the algorithm; everything else is elsewhere.

use crate::loss::Loss;
use crate::loss_scale::LossScale;
use anyhow::{Context, Result};
use engine::Session;
use engine::session::Data;
use optim::clip::Clipped;
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

impl Text {
    /// As the program's input.
    fn input(&self) -> (&'static str, Data<'_>) {
        match self {
            Text::Context(context) => ("context", Data::F32(context)),
            Text::Ids(ids) => ("ids", Data::U32(ids)),
        }
    }
}

/// Texts whose predictions should stay as they are, and how much that matters for each item.
#[derive(Clone, Debug)]
pub struct Preserved {
    pub text: Text,
    pub weights: Vec<f32>,
}

/// A micro-batch as numbers. Kept between steps, so that its vectors are allocated once.
#[derive(Clone, Debug)]
pub struct Batch {
    pub form: Form,
    /// Clean latents x₀ [B, h, w, channels], scaled.
    pub latents: Vec<f32>,
    /// ε, like the latents.
    pub noise: Vec<f32>,
    /// What is mixed into the latents where that is not ε itself; else empty.
    pub mixed: Vec<f32>,
    pub timesteps: Vec<usize>,
    /// A weight for each item.
    pub weights: Vec<f32>,
    /// A weight for each latent pixel [B, h, w], for programs with a mask; else empty.
    pub mask: Vec<f32>,
    pub text: Text,
    /// The text at which the frozen model's prediction is to be kept.
    pub preserved: Option<Preserved>,
    /// Seed of the adapters' dropout masks.
    pub dropout_seed: [u32; 2],
}

/// Input arrays of a run of the training program, allocated once.
#[derive(Default)]
struct Staging {
    noisy: Vec<f32>,
    target: Vec<f32>,
    timesteps: Vec<f32>,
    weights: Vec<f32>,
    thresholds: Vec<f32>,
    /// A mask that weighs every pixel the same.
    even: Vec<f32>,
}

/// The session's programs for each form: training, and the frozen model's prediction where that is to be kept.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    pub training: HashMap<Form, usize>,
    pub frozen: HashMap<Form, usize>,
}

/// What an update did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// Mean loss over the group's items, with their weights.
    pub loss: f64,
    /// Mean loss against the frozen model's predictions, if they are to be kept.
    pub preservation: Option<f64>,
    /// Norm of the mean gradient before clipping.
    pub grad_norm: f64,
    pub verdict: Verdict,
    /// What the loss was multiplied by for the backward pass, where it is.
    pub loss_scale: Option<f32>,
}

/// What became of an update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    Applied,
    /// The loss or a gradient is not a finite number: nothing was changed.
    NotFinite,
    /// The scaled gradients went beyond what fp16 holds: nothing was changed but the scale, which is this from now on.
    Overflow(f32),
    /// All pictures of the step have gone away: nothing was changed, where momentum and decay would have moved on by themselves.
    Empty,
}

/// How a program of the session is run: timed or not.
type Run<'a> = dyn FnMut(&mut Session, usize, &[(&str, Data)]) -> Result<()> + 'a;

/// Parameters, optimizer and session of a run.
pub struct Trainer {
    session: Session,
    programs: Programs,
    loss: Loss,
    optimizer: Optimizer,
    ema: Option<Ema>,
    clip: Clip,
    /// 0: gradients are not clipped.
    max_grad_norm: f64,
    scale: Option<LossScale>,
    params: Vec<f32>,
    gradients: Vec<f32>,
    /// What is saved and sampled with, where the optimizer trains at another point.
    published: Vec<f32>,
    staging: Staging,
    group: Group,
}

/// Since the last update.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// Σ of weighted losses.
    loss: f64,
    preservation: Option<f64>,
    items: usize,
}

impl Trainer {
    /// `programs` are the session's training programs; `params` lie as in the session's table. With an `ema` that is saved and
    /// sampled.
    pub fn new(
        mut session: Session,
        programs: Programs,
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
            scale: None,
            params,
            gradients,
            published,
            staging: Staging::default(),
            group: Group::default(),
        })
    }

    /// With a scaled loss, if one is given.
    pub fn with_loss_scale(self, scale: Option<LossScale>) -> Trainer {
        Trainer { scale, ..self }
    }

    pub fn loss_scale(&self) -> Option<&LossScale> {
        self.scale.as_ref()
    }

    /// What item weights, and so the loss and its gradients, are multiplied by.
    fn scale(&self) -> f32 {
        self.scale.as_ref().map_or(1.0, LossScale::scale)
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

    /// Like [`Trainer::accumulate`], and returns each program that ran with the seconds of its steps.
    pub fn accumulate_timed(&mut self, batch: &Batch) -> Result<Vec<(usize, Vec<f64>)>> {
        let mut runs = Vec::new();
        self.accumulate_with(batch, &mut |session, program, inputs| {
            let mut seconds = Vec::new();
            session.run_timed(program, inputs, &mut seconds)?;
            runs.push((program, seconds));
            Ok(())
        })?;
        Ok(runs)
    }

    fn accumulate_with(&mut self, batch: &Batch, run: &mut Run) -> Result<()> {
        self.stage(batch);
        let loss = self.train_on(batch, &batch.text, &batch.mask, run)?;
        if let Some(preserved) = &batch.preserved {
            let kept = self.preserve(batch, preserved, run)?;
            self.group.preservation = Some(self.group.preservation.unwrap_or_default() + kept);
        }
        self.group.loss += loss;
        self.group.items += batch.form.batch;
        Ok(())
    }

    /// One run of the training program on what is staged, whose weights are scaled; the sum of its items' weighted losses, which is not.
    fn train_on(&mut self, batch: &Batch, text: &Text, mask: &[f32], run: &mut Run) -> Result<f64> {
        let program = *self.programs.training.get(&batch.form).with_context(|| format!("no program was planned for {:?}", batch.form))?;
        let Staging { noisy, target, timesteps, weights, thresholds, .. } = &self.staging;
        let inputs = [
            ("latents", Data::F32(noisy)),
            ("timestep", Data::F32(timesteps)),
            text.input(),
            ("target", Data::F32(target)),
            ("weight", Data::F32(weights)),
            ("threshold", Data::F32(thresholds)),
            ("mask", Data::F32(mask)),
            (models::layers::DROPOUT_SEED, Data::U32(&batch.dropout_seed)),
        ];
        run(&mut self.session, program, &inputs)?;
        let mut loss = [0.0];
        self.session.read_output(program, "loss", &mut loss)?;
        Ok(f64::from(loss[0]) / f64::from(self.scale()))
    }

    /// Differential output preservation: where the caption says the class, the adapted model should predict what the frozen one does.
    /// The same noisy latents go through both; the frozen prediction is the target.
    fn preserve(&mut self, batch: &Batch, preserved: &Preserved, run: &mut Run) -> Result<f64> {
        let program =
            *self.programs.frozen.get(&batch.form).with_context(|| format!("no frozen model was planned for {:?}", batch.form))?;
        let scale = f64::from(self.scale());
        let Staging { noisy, target, timesteps, weights, even, .. } = &mut self.staging;
        let inputs = [("latents", Data::F32(noisy)), ("timestep", Data::F32(timesteps)), preserved.text.input()];
        run(&mut self.session, program, &inputs)?;
        self.session.read_output(program, "prediction", target)?;
        let count = batch.timesteps.len() as f64;
        weights.clear();
        for (t, weight) in batch.timesteps.iter().zip(&preserved.weights) {
            weights.push((self.loss.preservation * self.loss.factor(*t) * f64::from(*weight) * count * scale) as f32);
        }
        even.clear();
        even.resize(batch.mask.len(), 1.0);
        let even = std::mem::take(even);
        let loss = self.train_on(batch, &preserved.text, &even, run);
        self.staging.even = even;
        loss
    }

    /// x_t, target, and weights. The program takes the mean over its items; weights times their number turn it into a sum, so that
    /// micro-batches of different sizes add up to the mean over all items of the group.
    fn stage(&mut self, batch: &Batch) {
        let scale = f64::from(self.scale());
        let Staging { noisy, target, timesteps, weights, thresholds, .. } = &mut self.staging;
        let count = batch.timesteps.len();
        let item = batch.latents.len() / count;
        noisy.resize(batch.latents.len(), 0.0);
        target.resize(batch.latents.len(), 0.0);
        timesteps.clear();
        weights.clear();
        thresholds.clear();
        let mixed = if batch.mixed.is_empty() { &batch.noise } else { &batch.mixed };
        for (i, (t, weight)) in batch.timesteps.iter().zip(&batch.weights).enumerate() {
            let range = i * item..(i + 1) * item;
            let (x0, noise) = (&batch.latents[range.clone()], &batch.noise[range.clone()]);
            self.loss.schedule.add_noise(*t, x0, &mixed[range.clone()], &mut noisy[range.clone()]);
            self.loss.schedule.target(*t, x0, noise, &mut target[range]);
            timesteps.push(*t as f32);
            thresholds.push(self.loss.threshold(*t) as f32);
            weights.push((self.loss.weight(*t) * self.loss.factor(*t) * f64::from(*weight) * count as f64 * scale) as f32);
        }
    }

    /// Ends the group: one update at the rate `lr` with the mean gradient over its items.
    pub fn update(&mut self, lr: f64) -> Result<Update> {
        let Group { loss, preservation, items } = std::mem::take(&mut self.group);
        self.session.read_gradients(&mut self.gradients)?;
        self.session.clear_gradients()?;
        let (loss, preservation) = (loss / items as f64, preservation.map(|sum| sum / items as f64));
        let loss_scale = self.scale.as_ref().map(LossScale::scale);
        optim::clip::scale(&mut self.gradients, 1.0 / (items as f32 * loss_scale.unwrap_or(1.0)));
        self.optimizer.choose(&mut self.gradients);
        let limit = if self.max_grad_norm > 0.0 { self.max_grad_norm } else { f64::INFINITY };
        let clipped = self.clip.clip(&mut self.gradients, limit);
        let verdict = self.judge(loss.is_finite() && preservation.is_none_or(f64::is_finite), clipped);
        if verdict == Verdict::Applied {
            self.optimizer.step(&mut self.params, &self.gradients, lr);
            self.session.set_params(&self.params)?;
            if let Some(ema) = &mut self.ema {
                ema.update(&self.params);
            }
        }
        Ok(Update { loss, preservation, grad_norm: clipped.norm, verdict, loss_scale })
    }

    /// Ends a group that holds nothing without an update.
    pub fn pass_over(&mut self) -> Result<Update> {
        self.group = Group::default();
        self.session.clear_gradients()?;
        let loss_scale = self.scale.as_ref().map(LossScale::scale);
        Ok(Update { loss: f64::NAN, preservation: None, grad_norm: f64::NAN, verdict: Verdict::Empty, loss_scale })
    }

    /// Whether the update may be applied; moves the scale. A loss that is not finite comes out of the forward pass, which no scale
    /// touches.
    fn judge(&mut self, loss_is_finite: bool, gradient: Clipped) -> Verdict {
        match (&mut self.scale, loss_is_finite, gradient.finite()) {
            (None, true, true) => Verdict::Applied,
            (Some(scale), true, true) => {
                scale.grow();
                Verdict::Applied
            }
            (Some(scale), true, false) => scale.fall().map_or(Verdict::NotFinite, Verdict::Overflow),
            (None, true, false) | (_, false, _) => Verdict::NotFinite,
        }
    }
}
