//! From folders of pictures to batches.
//!
//! `scan` finds the pictures and proves that each can be decoded; `caption` gives each its text; `bucket` the size it is brought
//! to; `dataset` holds all of it as one list that can be printed before anything is trained. `batch` cuts the list into the
//! batches of any epoch as a pure function of the seed, so a resumed run finds its place by arithmetic. `pixels` makes the exact
//! picture that is encoded, and `cache` keeps what was encoded, under a key of everything that it depends on.
//!
//! Nothing here knows about models, and nothing writes into the user's folders.

pub mod batch;
pub mod bucket;
pub mod cache;
pub mod caption;
pub mod colour;
pub mod dataset;
pub mod decode;
pub mod format;
pub mod gate;
pub mod pixels;
pub mod png;
pub mod report;
pub mod scan;
pub mod tags;

pub use batch::{Batch, BatchItem, Schedule, Step};
pub use bucket::{Bucket, Fit, Scheme};
pub use cache::{Cache, Entry, Key};
pub use caption::{CaptionOptions, CaptionSource};
pub use dataset::{Dataset, DatasetOptions, Item, OnBadImage};
pub use report::ImageRow;
