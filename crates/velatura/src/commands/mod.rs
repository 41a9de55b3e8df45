//! The commands, a file each.

mod av1;
mod bench;
mod cache;
mod config;
mod convert;
mod demo;
mod dev;
mod doctor;
mod inspect;
mod open;
mod plan;
mod sample;
mod train;

use anyhow::Result;
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Command {
    /// Train a small style LoRA on the built-in emoji model and show before and after, in about three minutes.
    Demo(demo::Arguments),
    /// Train a LoRA as a config says.
    Train(train::Arguments),
    /// Show what a config would do, and the memory that it takes, without loading weights.
    Plan(plan::Arguments),
    /// Look through a dataset: what can't be used, what is odd, and what to do about it.
    Doctor(doctor::Arguments),
    /// Time real steps of a config, op by op, beside what this machine can do at most.
    Bench(bench::Arguments),
    /// Say what a cache folder holds and who uses it, and remove what nobody uses.
    Cache(cache::Arguments),
    /// Make pictures, with or without a LoRA.
    Sample(Box<sample::Arguments>),
    /// Say what a LoRA or checkpoint file holds.
    Inspect(inspect::Arguments),
    /// Make, check and take over configs.
    #[command(subcommand)]
    Config(config::Command),
    /// Write a LoRA in another layout.
    Convert(convert::Arguments),
    /// Decode AV1 pictures from standard input to standard output: velatura starts itself so, for AVIF files.
    #[command(hide = true)]
    Av1,
    /// Tools for developing velatura.
    #[command(subcommand)]
    Dev(dev::Command),
}

impl Command {
    pub fn run(self) -> Result<()> {
        match self {
            Command::Demo(arguments) => demo::run(arguments),
            Command::Train(arguments) => train::run(arguments),
            Command::Plan(arguments) => plan::run(arguments),
            Command::Doctor(arguments) => doctor::run(arguments),
            Command::Bench(arguments) => bench::run(arguments),
            Command::Cache(arguments) => cache::run(arguments),
            Command::Sample(arguments) => sample::run(*arguments),
            Command::Inspect(arguments) => inspect::run(arguments),
            Command::Config(command) => config::run(command),
            Command::Convert(arguments) => convert::run(arguments),
            Command::Av1 => av1::run(),
            Command::Dev(command) => dev::run(command),
        }
    }
}
