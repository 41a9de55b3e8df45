//! The command line. Each command has a file under `commands/`; this one parses, calls, and turns the result into an exit status.

mod canvas;
mod commands;
mod output;
mod plot;
mod sheet;
mod signals;
mod terminal;

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Trains LoRA adapters for diffusion models: plans memory first, loses nothing, needs no Python.
#[derive(Parser)]
#[command(name = "velatura", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(program) = this_program() {
        data::av1::use_program(program);
    }
    match arguments.command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = format!("error: {error:#}");
            // The lines of this one are its own.
            if error.is::<config::Refusal>() {
                output::say(text)
            } else {
                output::say_line(text)
            }
            ExitCode::from(signals::exit_status(&error))
        }
    }
}

/// What starts this program again, also where its file was replaced since it began.
fn this_program() -> Option<PathBuf> {
    if cfg!(target_os = "linux") { Some(PathBuf::from("/proc/self/exe")) } else { std::env::current_exe().ok() }
}
