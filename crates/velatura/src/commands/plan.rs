//! `velatura plan CONFIG`

use crate::commands::open::{self, ConfigArguments};
use crate::output;
use crate::terminal::Terminal;
use anyhow::Result;
use clap::Args;
use train::Plan;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,
    /// The plan as JSON, on standard output.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Result<()> {
    let mut terminal = Terminal::new(1);
    let run = open::prepare(arguments.config.load()?, &mut terminal)?;
    // A LoRA to start from is read here too: whether it fits is part of whether the run could start.
    run.first_factors()?.1.iter().for_each(|text| terminal.say(text));
    run.dump_pixels(&mut terminal)?;
    let plan = Plan::new(&run, open::backend()?.as_ref())?;
    drop(terminal);
    if arguments.json { output::print(serde_json::to_string_pretty(&plan)?) } else { output::print(plan.to_string().trim_end()) }
}
