//! `velatura plan CONFIG`

use crate::commands::open::{self, ConfigArguments, MemoryArguments};
use crate::output;
use crate::plot::{Line, chart};
use crate::terminal::Terminal;
use anyhow::{Context, Result};
use clap::Args;
use std::path::PathBuf;
use train::plan::GroupRow;
use train::sample::Picture;
use train::{Plan, Planned};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,
    #[command(flatten)]
    memory: MemoryArguments,
    /// The plan as JSON, on standard output.
    #[arg(long)]
    json: bool,
    /// Draw the learning rate over the steps to this PNG file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

pub fn run(arguments: Arguments) -> Result<()> {
    arguments.plot.iter().try_for_each(|path| output::ensure_new("--plot", path))?;
    let mut terminal = Terminal::new(1);
    let run = open::prepare(arguments.memory.load(&arguments.config)?, &mut terminal)?;
    // A LoRA to start from is read here too: whether it fits is part of whether the run could start.
    run.first_factors()?.1.iter().for_each(|text| terminal.say(&base::visible(text)));
    run.dump_pixels(&mut terminal)?;
    let plan = Plan::new(&run, Planned::new(&run, open::backend()?.as_ref())?.memory)?;
    drop(terminal);
    if let Some(path) = &arguments.plot {
        train::sample::write_png(path, &rates(&plan)).with_context(|| format!("in --plot {}", path.display()))?;
    }
    if arguments.json { output::json(&plan) } else { output::print(plan.to_string().trim_end()) }
}

/// The learning rate, one curve for each group of parameters.
fn rates(plan: &Plan) -> Picture {
    let rates = &plan.learning_rate;
    let line = |group: &GroupRow| Line { name: format!("{} {:e}", group.name, group.lr), values: rates.curve(group) };
    let title = format!("learning rate: {}, {}, {} steps", rates.schedule, plan.optimizer, plan.steps);
    chart(&title, rates.stride as usize, &rates.groups.iter().map(line).collect::<Vec<_>>())
}
