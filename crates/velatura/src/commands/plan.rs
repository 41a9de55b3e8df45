//! `velatura plan CONFIG`

use crate::commands::open::{self, ConfigArguments};
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
    let plan = Plan::new(&run, open::backend()?.as_ref())?;
    drop(terminal);
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&plan)?);
    } else {
        print!("{plan}");
    }
    Ok(())
}
