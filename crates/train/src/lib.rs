//! The training run: from a config to a LoRA file, and the pictures on the way.
//!
//! [`Prepared`] holds everything up to the first step and loads no weights: it is what `plan` prints. [`train`] goes on from there.
//! The loop is in [`run`], one step's mathematics in [`step`], what a step is fed with in [`feed`], and how that is made ahead of it
//! in [`loader`].

pub mod append;
pub mod bench;
pub mod contents;
pub mod course;
mod dataset_options;
pub mod encode;
pub mod event;
pub mod feed;
pub mod folder;
pub mod frozen;
pub mod groups;
pub mod host;
pub mod identity;
pub mod interrupt;
pub mod latents;
pub mod loader;
pub mod lora;
pub mod loss;
pub mod loss_scale;
pub mod masks;
pub mod memory;
pub mod metrics;
pub mod model;
pub mod plan;
pub mod planned;
pub mod prepare;
pub mod programs;
pub mod recompute;
pub mod resume;
pub mod run;
mod run_programs;
pub mod sample;
pub mod save;
pub mod source;
pub mod space;
pub mod state;
pub mod step;
pub mod studio;
pub mod tensorboard;
pub mod text;
pub mod usage;
pub mod validate;

pub use folder::Start;
pub use model::Model;
pub use plan::Plan;
pub use planned::Planned;
pub use prepare::Prepared;
pub use run::{Finished, train};

use std::path::PathBuf;

/// A signal ended the run. It is an error (what was asked for does not exist), but nothing is lost.
#[derive(Debug)]
pub struct Interrupted {
    pub signal: usize,
    /// The state to go on from.
    pub saved: Option<PathBuf>,
}

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.saved {
            Some(path) => write!(f, "stopped by a signal; saved {}: go on with --resume", path.display()),
            None => write!(f, "stopped by a signal with nothing unsaved: start again to go on"),
        }
    }
}

impl std::error::Error for Interrupted {}
