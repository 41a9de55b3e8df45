//! From folders of pictures to batches.
//!
//! `gather` finds the pictures, in folders (`scan`, which proves that each can be decoded) or lists (`list`); `caption` gives each
//! its text; `bucket` the size it is brought to; `dataset` holds all of it as one list that can be printed before anything is
//! trained. `batch` cuts the list into the batches of any epoch, and `draw` the texts, as pure functions of the seed, so a resumed
//! run finds its place by arithmetic. `pixels` makes the exact picture that is encoded, and `cache` keeps what was encoded, under a
//! key of everything that it depends on.
//!
//! Nothing here knows about models, and nothing writes into the user's folders.

pub mod ahead;
pub mod av1;
mod avif;
pub mod batch;
pub mod bucket;
pub mod cache;
pub mod caption;
mod cicp;
pub mod collect;
pub mod colour;
pub mod csv;
pub mod dataset;
pub mod decode;
pub mod doctor;
pub mod draw;
pub mod dump;
pub mod format;
pub mod gate;
pub mod gather;
mod gif;
mod jpeg;
mod jxl;
pub mod kohya;
pub mod list;
pub mod mask;
pub mod pixels;
pub mod png;
pub mod report;
mod samples;
pub mod scan;
pub mod tags;
pub mod text;
mod tiff;
mod trigger;
mod validation;

pub use batch::{Batch, BatchItem, Schedule, Step};
pub use bucket::{Bucket, Fit, Limits, Resolution, Scheme};
pub use cache::{Cache, Entry, Key};
pub use caption::CaptionSource;
pub use dataset::{Dataset, DatasetOptions, Item, MissingCaptions, OnBadImage, Purpose, Role, View};
pub use draw::{CaptionOptions, Moment, Replacement};
pub use kohya::FolderNames;
pub use mask::{Inside, Level, Mask, MaskOptions, MaskSource};
pub use report::ImageRow;
