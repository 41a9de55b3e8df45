//! The diffusion process: noise levels, targets, loss weights, and samplers. Plain f32 slices, no model, no device.
//!
//! ```text
//! x_t = √ᾱ_t · x₀ + √(1 − ᾱ_t) · ε          SNR(t) = ᾱ_t / (1 − ᾱ_t)
//! ```
//! The caller owns the model: training code asks for noise, timesteps, noisy latents and targets; sampling code calls the
//! model between [`Sampler::scale_input`] and [`Sampler::step`].

mod draw;
pub mod guidance;
pub mod huber;
pub mod noise;
pub mod noise_schedule;
pub mod prediction;
pub mod pyramid;
pub mod sampler;
pub mod timesteps;
pub mod weighting;

pub use draw::Draw;
pub use huber::{Huber, HuberSchedule};
pub use noise::NoiseShape;
pub use noise_schedule::{NoiseSchedule, SchedulerConfig};
pub use prediction::Prediction;
pub use pyramid::Pyramid;
pub use sampler::{SAMPLERS, Sampler};
pub use timesteps::Distribution;
pub use weighting::{Bell, Weighting};
