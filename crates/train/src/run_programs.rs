//! The programs that a run needs: which graphs, at which sizes.

use crate::latents;
use crate::prepare::Prepared;
use crate::programs::{self, Frame, TextSide};
use crate::recompute::Forward;
use crate::sample;
use crate::source::Stored;
use crate::step::Form;
use crate::validate;
use anyhow::Result;
use base::DType;
use engine::{Backend, Program};
use models::Adapters;
use std::collections::BTreeSet;

impl Prepared {
    /// Every shape of micro-batch that the run meets.
    pub fn forms(&self) -> Vec<Form> {
        let forms: BTreeSet<Form> = self
            .batches
            .shapes()
            .into_iter()
            .flat_map(|(bucket, sizes)| sizes.into_iter().map(move |batch| (bucket, batch)))
            .map(|(bucket, batch)| Form { batch, size: latents::latent_size(&self.model, bucket) })
            .collect();
        forms.into_iter().collect()
    }

    /// Forward and loss at one form.
    pub fn training_forward(&self, form: Form) -> Forward {
        programs::training(&self.model, &self.adapters, self.frame(form), self.loss_op())
    }

    fn frame(&self, form: Form) -> Frame {
        Frame { form, text: self.text, activations: self.config.train.dtype }
    }

    /// The frozen model's predictions at every form, if they are to be kept.
    pub fn frozen_programs(&self, backend: &dyn Backend) -> Vec<(Form, Program)> {
        let kept = self.config.train.loss.diff_output_preservation;
        let forms = self.forms().into_iter().filter(|_| kept);
        forms.map(|form| (form, Program::new(frozen_name(form), programs::frozen(&self.model, self.frame(form)), backend))).collect()
    }

    /// The programs of the training session that do not train: encoders of what is not cached, samples, validation.
    pub fn sample_programs(&self, backend: &dyn Backend) -> Result<Vec<Program>> {
        let mut all = Vec::new();
        let dtype = self.config.train.dtype;
        all.extend(self.encoders(false, backend)?);
        if self.samples_on() {
            all.extend(sample::plan(&self.model, &self.sampling_adapters(), &self.samples, dtype, backend)?);
        }
        if self.validates() {
            all.extend(validate::plan(self, backend)?);
        }
        let encodes_to_validate = self.validates() && matches!(self.text, TextSide::Encoded { .. });
        if encodes_to_validate || self.samples_on() && self.text_encoder_trains() {
            let graph = programs::text(&self.model, &self.sampling_adapters(), 1, dtype, self.model.stored);
            all.push(Program::new(TEXT_PROGRAM, graph, backend));
        }
        Ok(all)
    }

    /// The programs of the session that fills the caches: the VAE's encoder for every tile, and the text encoder.
    pub fn encode_programs(&self, backend: &dyn Backend) -> Result<Vec<Program>> {
        let mut all = self.encoders(true, backend)?;
        if self.cached_texts().is_some() || self.samples_on() {
            let graph = programs::text(&self.model, &Adapters::none(), 1, DType::F32, Stored::default());
            all.push(Program::new(TEXT_PROGRAM, graph, backend));
        }
        Ok(all)
    }

    /// The VAE's encoder for every tile of the pictures whose latents are (or are not) cached; the cached ones are encoded in batches.
    fn encoders(&self, cached: bool, backend: &dyn Backend) -> Result<Vec<Program>> {
        let mut tiles = BTreeSet::new();
        for item in self.dataset.items.iter().filter(|item| self.is_cached(item) == cached) {
            let tile = latents::tile_size(&self.model, item.bucket)?;
            tiles.insert((tile, 1));
            if cached && tile == latents::latent_size(&self.model, item.bucket) {
                tiles.insert((tile, self.config.dataloader.vae_batch_size));
            }
        }
        let encoder = |(tile, batch): ([usize; 2], usize)| {
            Program::new(latents::program_name(tile, batch), programs::encoder(&self.model, batch, tile), backend)
        };
        Ok(tiles.into_iter().map(encoder).collect())
    }
}

fn frozen_name(form: Form) -> String {
    format!("frozen {}x{} batch {}", form.size[1], form.size[0], form.batch)
}

/// Name of the program that encodes one chunk of text.
pub const TEXT_PROGRAM: &str = "text";

pub fn train_name(form: Form) -> String {
    format!("train {}x{} batch {}", form.size[1], form.size[0], form.batch)
}
