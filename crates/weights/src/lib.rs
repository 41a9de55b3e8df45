//! Checkpoints and LoRA files: what is in them, under which names, and how they are written.
//!
//! - [`safetensors`]: the container, memory-mapped and checked.
//! - [`keys`]: the table of tensor names, canonical ↔ original.
//! - [`Checkpoint`]: a base model, from a diffusers folder or a single file; [`Family`] says which kind.
//! - [`lora`]: LoRA files in kohya and diffusers layout; [`metadata`]: what other programs read about them.
//! - [`inspect`]: a summary of any such file, and conversion between LoRA layouts.
//! - [`hub`]: a name like `owner/model` to a folder on disk.
//!
//! Nothing in here knows about graphs or training.

pub mod checkpoint;
pub mod family;
pub mod hub;
pub mod inspect;
pub mod keys;
pub mod lora;
pub mod metadata;
pub mod safetensors;
pub mod weight_files;

pub use checkpoint::Checkpoint;
pub use family::Family;

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
