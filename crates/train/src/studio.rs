//! Pictures outside of a run: a model, perhaps with a LoRA, and a list of requests.

use crate::event::{Event, Reporter};
use crate::host;
use crate::metrics::resident_bytes;
use crate::model::Model;
use crate::programs;
use crate::run::flat;
use crate::run_programs::TEXT_PROGRAM;
use crate::sample::{self, Picture, Request};
use crate::source::Stored;
use crate::text::{Chunking, Embeddings};
use crate::usage::Usage;
use anyhow::{Context, Result};
use base::DType;
use config::Sampler;
use data::Cache;
use engine::{Backend, Program, Session};
use models::adapters::{self, Adapters, Factor};
use weights::lora::LoraFile;

/// A session that can draw the requests that it was opened for.
pub struct Studio {
    model: Model,
    session: Session,
    texts: Embeddings,
    planned_bytes: u64,
}

impl Studio {
    /// Encodes the requests' texts and loads the UNet and the decoder; the text encoder is dropped again.
    pub fn open(
        model: Model,
        lora: Option<&LoraFile>,
        strength: f32,
        requests: &[Request],
        activations: DType,
        backend: Box<dyn Backend>,
        reporter: &mut dyn Reporter,
    ) -> Result<Studio> {
        model.warnings.iter().for_each(|text| reporter.report(Event::Warning(text.clone())));
        let parts = lora.map_or(&[][..], |file| &file.modules);
        let (adapters, factors) =
            adapters::from_file(parts, &model.parts.modules(1)?, 0.0, strength).context("the LoRA does not fit the model")?;
        // Without effect it is left out: adding zeros rounds elsewhere, and the picture shall be the base model's to the bit.
        let adapters = if strength == 0.0 { Adapters::none() } else { adapters };
        let texts = Embeddings::new(Cache::in_memory(), &model, "studio", Chunking::long());
        let process = resident_bytes();
        let (backend, encoding) = encode_texts(&model, &adapters.of_component("text_encoder"), &factors, requests, &texts, backend)?;
        let programs = sample::plan(&model, &adapters.of_component("unet"), requests, activations, backend.as_ref())?;
        let session = session(&model, &factors, programs, backend)?;
        let drawing = session.memory().total() + host::drawing_bytes(requests);
        Ok(Studio { model, session, texts, planned_bytes: process + drawing.max(encoding) })
    }

    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What was planned, beside what the process has used up to now.
    pub fn usage(&self) -> Usage {
        Usage::so_far(self.planned_bytes)
    }

    pub fn draw(&mut self, request: &Request, sampler: Sampler, noise: &[f32]) -> Result<Picture> {
        sample::draw(&mut self.session, &self.model, &self.texts, request, sampler, noise)
    }
}

/// Loads `programs` with the factors that their adapters need.
fn session(model: &Model, factors: &[Factor], programs: Vec<Program>, backend: Box<dyn Backend>) -> Result<Session> {
    let mut session = Session::new(backend, programs, model.source.as_ref()).context("the base model can't be loaded")?;
    model.source.release();
    let known = |factor: &&Factor| session.params().iter().any(|place| place.name == factor.name);
    let needed: Vec<Factor> = factors.iter().filter(known).cloned().collect();
    let params = flat(&needed, session.params())?;
    session.set_params(&params)?;
    Ok(session)
}

/// Fills `texts`; gives the backend back, and the bytes that this took.
fn encode_texts(
    model: &Model,
    adapters: &Adapters,
    factors: &[Factor],
    requests: &[Request],
    texts: &Embeddings,
    backend: Box<dyn Backend>,
) -> Result<(Box<dyn Backend>, u64)> {
    let graph = programs::text(model, adapters, 1, DType::F32, Stored::default());
    let program = Program::new(TEXT_PROGRAM, graph, backend.as_ref());
    let mut session = session(model, factors, vec![program], backend)?;
    for text in requests.iter().flat_map(Request::texts) {
        if !texts.check(text) {
            texts.encode(text, model, &mut session, 0)?;
        }
    }
    let bytes = session.memory().total();
    Ok((session.into_backend(), bytes))
}
