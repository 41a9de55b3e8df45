//! The pass before training: every picture through the VAE, every text through the text encoder, once, into caches.
//!
//! What the caches already hold is not made again, and where they hold everything no weights of these models are loaded at all.

use crate::event::{Event, Reporter};
use crate::interrupt::Interrupt;
use crate::latents::{Latents, View};
use crate::prepare::{Prepared, TEXT_PROGRAM};
use crate::text::{Chunking, Embeddings};
use anyhow::{Context, Result};
use data::Cache;
use engine::{Backend, Session};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::BTreeSet;

/// Pictures decoded ahead of the encoder.
const DECODE_AHEAD: usize = 8;

/// `cache.json`: what the pass did.
#[derive(Clone, Debug, Serialize)]
pub struct CacheReport {
    /// Latents made in this run.
    pub encoded: u64,
    /// Latents found from an earlier run.
    pub reused: u64,
    pub text_encoded: u64,
    pub text_reused: u64,
    pub distinct_latents: u64,
    /// Entries that were there but damaged or of another format, and were made again.
    pub unusable: u64,
}

/// The filled caches of a run.
pub struct Caches {
    pub latents: Latents,
    pub texts: Embeddings,
}

impl Caches {
    /// Opens the caches of a run: on disk, or in memory if every dataset says so.
    pub fn open(run: &Prepared) -> Result<Caches> {
        let on_disk = run.config.datasets.iter().any(|d| d.cache_latents_to_disk);
        Caches::new(run, |folder| if on_disk { Cache::on_disk(&run.config.cache_dir.join(folder)) } else { Ok(Cache::in_memory()) })
    }

    /// What earlier runs left is used; what is missing is made in memory, and nothing is written.
    pub fn open_untouched(run: &Prepared) -> Result<Caches> {
        Caches::new(run, |folder| Ok(Cache::over(&run.config.cache_dir.join(folder))))
    }

    fn new(run: &Prepared, cache: impl Fn(&str) -> Result<Cache>) -> Result<Caches> {
        // Texts of prompts come in any length; those of captions are cut to their limit by `Embeddings::encode`.
        let chunking = Chunking::of(&run.config.train, run.model.tokenizer.room());
        Ok(Caches {
            latents: Latents::new(cache("latents")?, &run.model, &run.model.identity("vae")?),
            texts: Embeddings::new(cache("text")?, &run.model, &run.model.identity("text_encoder")?, chunking),
        })
    }

    /// Makes what the run's pictures and texts miss. Takes the backend for a session of its own, and gives it back.
    pub fn fill(
        &self,
        run: &Prepared,
        backend: Box<dyn Backend>,
        interrupt: &Interrupt,
        reporter: &mut dyn Reporter,
    ) -> Result<Box<dyn Backend>> {
        self.fill_views(run, &run.dataset.views(), backend, interrupt, reporter)
    }

    /// The same for some of the pictures only.
    pub fn fill_views(
        &self,
        run: &Prepared,
        views: &[View],
        backend: Box<dyn Backend>,
        interrupt: &Interrupt,
        reporter: &mut dyn Reporter,
    ) -> Result<Box<dyn Backend>> {
        let texts = self.texts_of(run);
        let missing_text = texts.iter().any(|text| !self.texts.has(text));
        let missing_latents = views.iter().any(|view| !self.latents.has(&run.dataset, *view));
        if !missing_text && !missing_latents {
            self.count_all(run, views, &texts)?;
            return Ok(backend);
        }
        let programs = run.encode_programs(backend.as_ref())?;
        let mut session = Session::new(backend, programs, run.model.source.as_ref()).context("the encoders can't be loaded")?;
        run.model.source.release();
        self.encode_texts(run, &texts, &mut session, reporter)?;
        self.encode_pictures(run, views, &mut session, interrupt, reporter)?;
        Ok(session.into_backend())
    }

    fn texts_of(&self, run: &Prepared) -> BTreeSet<String> {
        let mut texts: BTreeSet<String> = run.cached_texts().into_iter().flatten().collect();
        if run.samples_on() && !run.text_encoder_trains() {
            texts.extend(run.samples.iter().flat_map(|request| request.texts().map(str::to_string)));
        }
        texts
    }

    fn encode_texts(&self, run: &Prepared, texts: &BTreeSet<String>, session: &mut Session, reporter: &mut dyn Reporter) -> Result<()> {
        let Some(program) = session.find(TEXT_PROGRAM) else { return Ok(()) };
        reporter.report(Event::Begin { what: "encoding texts", total: texts.len() as u64 });
        for (done, text) in texts.iter().enumerate() {
            self.texts.encode(text, &run.model, session, program)?;
            reporter.report(Event::Done { done: done as u64 + 1 });
        }
        reporter.report(Event::End);
        Ok(())
    }

    /// Decodes a few pictures ahead on all cores, encodes them one by one.
    fn encode_pictures(
        &self,
        run: &Prepared,
        views: &[View],
        session: &mut Session,
        interrupt: &Interrupt,
        reporter: &mut dyn Reporter,
    ) -> Result<()> {
        reporter.report(Event::Begin { what: "encoding pictures", total: views.len() as u64 });
        let mut done = 0;
        for group in views.chunks(DECODE_AHEAD) {
            let missing: Vec<View> = group.iter().copied().filter(|view| !self.latents.has(&run.dataset, *view)).collect();
            let decoded: Vec<_> = missing.par_iter().map(|(item, flip)| run.dataset.pixels(*item, *flip)).collect();
            for (view, rgb) in missing.iter().zip(decoded) {
                self.latents.encode(&run.dataset, *view, &rgb?, &run.model, session)?;
                if let Some(signal) = interrupt.signal() {
                    return Err(crate::Interrupted { signal, saved: None }.into());
                }
            }
            for view in group.iter().filter(|view| !missing.contains(view)) {
                self.latents.count_reuse(&run.dataset, *view)?;
            }
            done += group.len() as u64;
            reporter.report(Event::Done { done });
        }
        reporter.report(Event::End);
        Ok(())
    }

    /// Nothing is missing: every entry counts as reused.
    fn count_all(&self, run: &Prepared, views: &[View], texts: &BTreeSet<String>) -> Result<()> {
        views.iter().try_for_each(|view| self.latents.count_reuse(&run.dataset, *view))?;
        texts.iter().try_for_each(|text| self.texts.count_reuse(text))
    }

    pub fn report(&self, run: &Prepared) -> CacheReport {
        let (latents, texts) = (self.latents.cache.counts(), self.texts.cache.counts());
        CacheReport {
            encoded: latents.encoded,
            reused: latents.reused,
            text_encoded: texts.encoded,
            text_reused: texts.reused,
            distinct_latents: self.latents.distinct(&run.dataset) as u64,
            unusable: latents.unusable + texts.unusable,
        }
    }
}
