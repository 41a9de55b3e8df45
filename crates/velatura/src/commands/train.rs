//! `velatura train CONFIG`

use crate::commands::open::{self, ConfigArguments, MemoryArguments};
use crate::output;
use crate::signals;
use crate::terminal::Terminal;
use anyhow::Result;
use clap::Args;
use train::{Finished, Start};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,
    #[command(flatten)]
    memory: MemoryArguments,
    /// Go on from the run's newest saved state.
    #[arg(long)]
    resume: bool,
    /// Begin anew; a run of this name that exists already is moved aside.
    #[arg(long, conflicts_with = "resume")]
    over: bool,
}

pub fn run(arguments: Arguments) -> Result<()> {
    let start = match (arguments.resume, arguments.over) {
        (true, _) => Start::Resume,
        (_, true) => Start::Over,
        _ => Start::New,
    };
    train(arguments.memory.load(&arguments.config)?, start)?;
    Ok(())
}

/// Trains as a loaded config says, talking to the terminal; the last line says where the result is.
pub fn train(loaded: config::Loaded, start: Start) -> Result<Finished> {
    let interrupt = signals::install()?;
    let mut terminal = Terminal::new(loaded.config.logging.log_every);
    let run = open::prepare(loaded, &mut terminal)?;
    let backend = open::backend()?;
    terminal.say(&format!("velatura {} on {}", env!("CARGO_PKG_VERSION"), backend.describe()));
    let planned = train::Planned::new(&run, backend.as_ref())?;
    terminal.say(train::Plan::new(&run, planned.memory.clone())?.to_string().trim_end());
    let finished = train::train(&run, planned, backend, start, &interrupt, &mut terminal)?;
    drop(terminal);
    if finished.skipped > 0 {
        let verb = if finished.skipped == 1 { "was" } else { "were" };
        output::say(format_args!("{} {verb} not finite and {verb} not applied", base::counted(finished.skipped, "update")));
    }
    output::print(format_args!("step {} reached: {}", finished.steps, open::shown(&finished.lora)))?;
    Ok(finished)
}
