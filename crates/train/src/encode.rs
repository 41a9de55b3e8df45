//! The pass before training: every mask to the size of its latents, every picture through the VAE, every text through the text
//! encoder, once, into caches.
//!
//! What the caches already hold is not made again, and where they hold everything no weights of these models are loaded at all.
//! Pictures are decoded on other threads while the VAE works, each file once for all its sizes, and never more than a few ahead: the
//! memory that the pass takes does not depend on the number of pictures.

use crate::event::{Event, Reporter};
use crate::identity::Identities;
use crate::interrupt::Interrupt;
use crate::latents::{self, Latents};
use crate::masks::Masks;
use crate::prepare::Prepared;
use crate::run_programs::TEXT_PROGRAM;
use crate::text::{Chunking, Embeddings};
use anyhow::{Context, Result, ensure};
use config::BadImages;
use data::ahead::{self, Reach};
use data::decode::Rgb;
use data::{Cache, Key, View, collect};
use engine::{Backend, Session};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Pictures decoded ahead of the encoder.
pub const DECODE_AHEAD: usize = 8;

/// Pictures that wait for others of their size, in groups: beyond this the fullest group goes to the encoder as it is.
pub const MOST_WAITING_GROUPS: usize = 4;

/// `cache.json`: what the pass did.
#[derive(Clone, Debug, Serialize)]
pub struct CacheReport {
    /// Latents made in this run.
    pub encoded: u64,
    /// Latents found from an earlier run.
    pub reused: u64,
    pub text_encoded: u64,
    pub text_reused: u64,
    pub masks_made: u64,
    pub masks_reused: u64,
    pub distinct_latents: u64,
    /// Entries that were there but damaged or of another format, and were made again.
    pub unusable: u64,
    /// Pictures that were usable when they were scanned and no longer when they were read again.
    pub lost: u64,
}

/// The filled caches of a run.
pub struct Caches {
    pub latents: Latents,
    pub masks: Masks,
    pub texts: Embeddings,
    /// Indices of entries of the dataset that can't be read any more: they take part in no step.
    lost: Mutex<BTreeSet<usize>>,
}

impl Caches {
    /// Opens the caches of a run: on disk, or in memory if every dataset says so.
    pub fn open(run: &Prepared) -> Result<Caches> {
        let folder = &run.config.cache_dir;
        let cache = |kind: &str| if run.caches_on_disk() { Cache::on_disk(&folder.join(kind)) } else { Ok(Cache::in_memory()) };
        let identities = if run.caches_on_disk() { Identities::kept(&folder.join("identity")) } else { Identities::forgotten() };
        let caches = Caches::new(run, &identities, cache)?;
        if run.caches_on_disk() {
            collect::claim(folder, &run.folder(), &caches.keys(run)).context("the cache can't be written; set cache_dir")?;
        }
        Ok(caches)
    }

    /// Every entry that the run uses.
    fn keys(&self, run: &Prepared) -> BTreeSet<Key> {
        let latents = run.cached_views().into_iter().map(|view| self.latents.key(&run.dataset, view));
        let masks = (0..run.dataset.items.len()).filter_map(|item| self.masks.key(run, item));
        latents.chain(masks).chain(self.texts_of(run).iter().map(|text| self.texts.key(text))).collect()
    }

    /// What earlier runs left is used; what is missing is made in memory, and nothing is written.
    pub fn open_untouched(run: &Prepared) -> Result<Caches> {
        let folder = |name: &str| run.config.cache_dir.join(name);
        Caches::new(run, &Identities::over(&folder("identity")), |name| Ok(Cache::over(&folder(name))))
    }

    fn new(run: &Prepared, identities: &Identities, cache: impl Fn(&str) -> Result<Cache>) -> Result<Caches> {
        let identity = |component: &str| identities.of(run.model.source.of(component), component);
        // Texts of prompts come in any length; those of captions are cut to their limit by `Embeddings::encode`.
        let chunking = Chunking::of(&run.config.train, run.model.tokenizer.room());
        Ok(Caches {
            latents: Latents::new(cache("latents")?, &run.model, &identity("vae")?),
            masks: Masks { cache: cache("masks")? },
            texts: Embeddings::new(cache("text")?, &run.model, &identity("text_encoder")?, chunking),
            lost: Mutex::default(),
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
        reporter.report(Event::Begin { what: "checking caches", total: (views.len() + texts.len()) as u64 });
        let texts: Vec<&String> = texts.par_iter().filter(|text| !self.texts.check(text)).collect();
        let files = self.missing(run, views, |key| self.latents.cache.check(key));
        let masks = self.masks.missing(run, views);
        reporter.report(Event::End);
        let complaints =
            [self.latents.cache.complaint("latents"), self.masks.cache.complaint("masks"), self.texts.cache.complaint("text embeddings")];
        complaints.into_iter().flatten().for_each(|line| reporter.report(Event::Notice(line)));
        self.make_masks(run, &masks, interrupt, reporter)?;
        if texts.is_empty() && files.is_empty() {
            return Ok(backend);
        }
        let programs = run.encode_programs(backend.as_ref())?;
        let mut session = Session::new(backend, programs, run.model.source.as_ref()).context("the encoders can't be loaded")?;
        run.model.source.release();
        self.encode_texts(run, &texts, &mut session, interrupt, reporter)?;
        let mut files = files;
        while !files.is_empty() {
            let lost = self.lost().len();
            self.encode_pictures(run, &files, &mut session, interrupt, reporter)?;
            // Of several pictures with the same latents the first stood for all: if it went away, the next one does.
            let made = |key: &Key| self.latents.cache.get(key).is_some();
            files = if self.lost().len() > lost { self.missing(run, views, made) } else { Vec::new() };
        }
        Ok(session.into_backend())
    }

    fn texts_of(&self, run: &Prepared) -> BTreeSet<String> {
        let mut texts: BTreeSet<String> = run.cached_texts().into_iter().flatten().collect();
        if run.samples_on() && !run.text_encoder_trains() {
            texts.extend(run.samples.iter().flat_map(|request| request.texts().map(str::to_string)));
        }
        texts
    }

    /// The views whose latents have to be made and kept, those of one file together; of several with the same latents only the first.
    fn missing(&self, run: &Prepared, views: &[View], is_kept: impl Fn(&Key) -> bool + Sync) -> Vec<Vec<View>> {
        let mut keys: BTreeMap<Key, View> = BTreeMap::new();
        let there = |item: usize| run.is_cached(&run.dataset.items[item]) && !self.is_lost(run.dataset.items[item].entry);
        for view in views.iter().filter(|(item, _)| there(*item)) {
            keys.entry(self.latents.key(&run.dataset, *view)).or_insert(*view);
        }
        let mut missing: Vec<View> = keys.par_iter().filter(|(key, _)| !is_kept(key)).map(|(_, view)| *view).collect();
        missing.sort_unstable();
        let same_file = |a: &View, b: &View| run.dataset.items[a.0].entry == run.dataset.items[b.0].entry;
        let mut files: Vec<Vec<View>> = missing.chunk_by(same_file).map(<[View]>::to_vec).collect();
        // Pictures of one size one after the other fill the encoder's batches.
        files.sort_by_key(|views| run.dataset.items[views[0].0].bucket);
        files
    }

    /// Makes weights on all threads: as many masks are decoded at once as decoding has room for.
    fn make_masks(&self, run: &Prepared, missing: &[(Key, Vec<usize>)], interrupt: &Interrupt, reporter: &mut dyn Reporter) -> Result<()> {
        if missing.is_empty() {
            return Ok(());
        }
        reporter.report(Event::Begin { what: "reading masks", total: missing.len() as u64 });
        let make = |(key, items): &(Key, Vec<usize>)| {
            interrupt.check()?;
            // Whichever of the files with this mask is still there.
            let mut error = None;
            let made = items.iter().any(|item| self.masks.make(run, key, *item).map_err(|e| error.get_or_insert(e)).is_ok());
            Ok(error.filter(|_| !made))
        };
        let failed = missing.par_iter().map(make).collect::<Result<Vec<_>>>()?;
        for ((_, items), error) in missing.iter().zip(failed) {
            let Some(error) = error else { continue };
            items.iter().try_for_each(|item| self.lose(run, *item, &error, reporter))?;
        }
        reporter.report(Event::End);
        self.check_lost(run)
    }

    fn check_lost(&self, run: &Prepared) -> Result<()> {
        let lost = self.lost().len();
        ensure!(lost < run.dataset.entries.len(), "no picture can be used any more since they were scanned: nothing is left to train on");
        Ok(())
    }

    fn encode_texts(
        &self,
        run: &Prepared,
        texts: &[&String],
        session: &mut Session,
        interrupt: &Interrupt,
        reporter: &mut dyn Reporter,
    ) -> Result<()> {
        if texts.is_empty() {
            return Ok(());
        }
        let program = session.find(TEXT_PROGRAM).context("the text encoder was planned for the captions")?;
        reporter.report(Event::Begin { what: "encoding texts", total: texts.len() as u64 });
        for (done, text) in texts.iter().enumerate() {
            interrupt.check()?;
            self.texts.encode(text, &run.model, session, program)?;
            reporter.report(Event::Done { done: done as u64 + 1 });
        }
        reporter.report(Event::End);
        Ok(())
    }

    /// Encodes in groups of `dataloader.vae_batch_size` pictures of one size, while other threads decode what comes next.
    fn encode_pictures(
        &self,
        run: &Prepared,
        files: &[Vec<View>],
        session: &mut Session,
        interrupt: &Interrupt,
        reporter: &mut dyn Reporter,
    ) -> Result<()> {
        let reach = Reach { workers: rayon::current_num_threads().min(DECODE_AHEAD), window: DECODE_AHEAD };
        reporter.report(Event::Begin { what: "encoding pictures", total: files.iter().map(|views| views.len() as u64).sum() });
        ahead::with(
            0..files.len() as u64,
            reach,
            |file| run.dataset.pixels_of(&files[file as usize]),
            |decoded| {
                let mut waiting = Waiting { groups: BTreeMap::new(), full: run.config.dataloader.vae_batch_size };
                let mut done = 0;
                for (views, pictures) in files.iter().zip(decoded) {
                    interrupt.check()?;
                    match pictures {
                        Ok(pictures) => {
                            for (view, picture) in views.iter().zip(pictures) {
                                let size = latents::latent_size(&run.model, run.dataset.items[view.0].bucket);
                                let group = waiting.add(size, (*view, picture));
                                self.encode_group(run, &group, session)?;
                            }
                        }
                        Err(error) => self.lose(run, views[0].0, &error, reporter)?,
                    }
                    done += views.len() as u64;
                    reporter.report(Event::Done { done });
                }
                for group in std::mem::take(&mut waiting.groups).into_values() {
                    interrupt.check()?;
                    self.encode_group(run, &group, session)?;
                }
                anyhow::Ok(())
            },
        )?;
        reporter.report(Event::End);
        self.check_lost(run)
    }

    fn encode_group(&self, run: &Prepared, group: &[(View, Rgb)], session: &mut Session) -> Result<()> {
        let Some(((first, _), _)) = group.first() else { return Ok(()) };
        let pictures: Vec<&Rgb> = group.iter().map(|(_, picture)| picture).collect();
        let name = |item: usize| &run.dataset.entry(item).picture.file;
        let entries = latents::encode(&pictures, &run.model, session);
        let entries = entries.with_context(|| format!("the latents of {} can't be made", name(*first)))?;
        for ((view, _), entry) in group.iter().zip(entries) {
            let kept = self.latents.cache.put(&self.latents.key(&run.dataset, *view), entry);
            kept.with_context(|| format!("the latents of {} can't be made", name(view.0)))?;
        }
        Ok(())
    }

    /// Leaves a picture out that can't be read any more, if its dataset says so.
    pub fn lose(&self, run: &Prepared, item: usize, error: &anyhow::Error, reporter: &mut dyn Reporter) -> Result<()> {
        let entry = run.dataset.items[item].entry;
        let dataset = &run.config.datasets[run.dataset.items[item].dataset];
        ensure!(dataset.bad_images == BadImages::Skip, "{error:#} (bad_images is `stop`)");
        if self.lost.lock().unwrap_or_else(PoisonError::into_inner).insert(entry) {
            reporter.report(Event::Warning(format!("left out: {error:#}")));
        }
        Ok(())
    }

    /// Leaves out what a step could not read, and counts it in the run's report. That is no reason to end a run for.
    pub fn lose_in_step(
        &self,
        run: &Prepared,
        failed: &[(usize, anyhow::Error)],
        folder: &Path,
        reporter: &mut dyn Reporter,
    ) -> Result<()> {
        let before = self.lost().len();
        failed.iter().try_for_each(|(item, error)| self.lose(run, *item, error, reporter))?;
        if self.lost().len() > before
            && let Err(error) = self.write_report(run, folder)
        {
            reporter.report(Event::Warning(format!("{error:#}")));
        }
        Ok(())
    }

    /// Writes `cache.json`.
    pub fn write_report(&self, run: &Prepared, folder: &Path) -> Result<()> {
        let report = serde_json::to_vec_pretty(&self.report(run)).context("a cache report is plain JSON")?;
        base::fs::write_atomic(&folder.join("cache.json"), &report)
    }

    /// Entries of the dataset that can't be read any more.
    pub fn lost(&self) -> BTreeSet<usize> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn is_lost(&self, entry: usize) -> bool {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).contains(&entry)
    }

    /// Whether anything was made in this run.
    pub fn has_encoded(&self) -> bool {
        self.latents.cache.counts().encoded + self.texts.cache.counts().encoded > 0
    }

    fn report(&self, run: &Prepared) -> CacheReport {
        let (latents, masks, texts) = (self.latents.cache.counts(), self.masks.cache.counts(), self.texts.cache.counts());
        CacheReport {
            encoded: latents.encoded,
            reused: latents.reused,
            text_encoded: texts.encoded,
            text_reused: texts.reused,
            masks_made: masks.encoded,
            masks_reused: masks.reused,
            distinct_latents: self.latents.distinct(run) as u64,
            unusable: latents.unusable + masks.unusable + texts.unusable,
            lost: self.lost().len() as u64,
        }
    }
}

/// Pictures that wait, by the size of their latents, until there are enough of one.
struct Waiting {
    groups: BTreeMap<[usize; 2], Vec<(View, Rgb)>>,
    full: usize,
}

impl Waiting {
    /// Adds a picture; gives the group that is to be encoded now, if one is.
    fn add(&mut self, size: [usize; 2], picture: (View, Rgb)) -> Vec<(View, Rgb)> {
        let group = self.groups.entry(size).or_default();
        group.push(picture);
        if group.len() >= self.full {
            return std::mem::take(group);
        }
        let waiting: usize = self.groups.values().map(Vec::len).sum();
        let fullest = self.groups.values_mut().max_by_key(|group| group.len()).filter(|_| waiting >= MOST_WAITING_GROUPS * self.full);
        fullest.map(std::mem::take).unwrap_or_default()
    }
}
