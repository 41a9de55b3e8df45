//! Architectures, written once and forward only, against [`graph::Builder`]; and the adapters that are trained on them.
//!
//! A folder per architecture ([`clip`], [`vae`], [`unet`]): its config (from `config.json`, or from tensor shapes where a single file
//! has none) and its forward. [`layers::Net`] is the pen: it names weights by path, attaches adapters, and notes which modules exist.
//! [`StableDiffusion`] reads the configs of a whole checkpoint.
//!
//! Maps are `[B, H, W, C]`, tokens `[B, T, C]`. Names are canonical: diffusers' with the component in front.

pub mod adapters;
mod blocks;
pub mod clip;
mod json;
pub mod layers;
mod quantizable;
pub mod shapes;
pub mod stable_diffusion;
pub mod tiny;
pub mod unet;
pub mod vae;

pub use adapters::{AdapterSpec, Adapters, Kind, Module};
pub use clip::{ClipConfig, ClipTokenizer};
pub use layers::Net;
pub use quantizable::is_quantizable;
pub use shapes::Shapes;
pub use stable_diffusion::StableDiffusion;
pub use unet::UnetConfig;
pub use vae::VaeConfig;
