//! `velatura bench CONFIG`

use crate::commands::open::{self, ConfigArguments};
use crate::output;
use crate::signals;
use crate::terminal::Terminal;
use anyhow::Result;
use clap::Args;
use train::Planned;
use train::bench::{Bench, Grouping};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,
    /// Steps that are timed, after one to warm up.
    #[arg(long, default_value_t = 3)]
    steps: u64,
    /// A row for each kind of op and its shapes, not only for each kind.
    #[arg(long)]
    by_shape: bool,
    /// As JSON, on standard output.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Result<()> {
    let interrupt = signals::install()?;
    let mut terminal = Terminal::new(1);
    let run = open::prepare(arguments.config.load()?, &mut terminal)?;
    run.notices.iter().for_each(|text| terminal.say(&base::visible(&format!("note: {text}"))));
    let grouping = if arguments.by_shape { Grouping::KindAndShapes } else { Grouping::Kind };
    let backend = open::backend()?;
    let planned = Planned::new(&run, backend.as_ref())?;
    planned.memory.check()?;
    let bench = Bench::run(&run, planned, backend, arguments.steps, grouping, &interrupt, &mut terminal)?;
    drop(terminal);
    if arguments.json { output::json(&bench) } else { output::print(bench.to_string().trim_end()) }
}
