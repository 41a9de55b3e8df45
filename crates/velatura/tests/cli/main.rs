//! The program as its users meet it: processes on a tiny random model, their exit status, files and words.
#![allow(clippy::unwrap_used)]

mod bench;
mod config;
mod data;
mod disk;
mod lora_files;
mod losses;
mod masks;
mod mistakes;
mod optimizers;
mod place;
mod plan;
mod quantized;
mod repeat;
mod resume;
mod sample;
mod signals;
mod variants;
