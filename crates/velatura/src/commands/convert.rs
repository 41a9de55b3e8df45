//! `velatura convert --to kohya|diffusers IN OUT`

use crate::commands::open;
use crate::output;
use anyhow::{Context, Result, ensure};
use base::DType;
use clap::Args;
use std::path::PathBuf;
use weights::lora::Layout;

#[derive(Args)]
pub struct Arguments {
    /// The layout to write: `kohya` loads nearly everywhere, `diffusers` is PEFT's.
    #[arg(long, value_name = "LAYOUT")]
    to: String,
    /// Type of the numbers; default: as in the file.
    #[arg(long, value_name = "fp32|fp16|bf16")]
    dtype: Option<String>,
    /// Replaces OUTPUT if it exists
    #[arg(long)]
    over: bool,
    input: PathBuf,
    output: PathBuf,
}

pub fn run(arguments: Arguments) -> Result<()> {
    let layout = Layout::parse(&arguments.to).with_context(|| format!("--to {}: the layouts are kohya and diffusers", arguments.to))?;
    let read = |name: &String| DType::parse(name).with_context(|| format!("--dtype {name}: the types are fp32, fp16 and bf16"));
    let dtype = arguments.dtype.as_ref().map(read).transpose()?;
    let free = arguments.over || !arguments.output.exists();
    ensure!(free, "{} exists already: give another name, or --over to replace it", arguments.output.display());
    let report = weights::inspect::convert(&arguments.input, &arguments.output, layout, dtype)?;
    if report.zeros_share > 0.0 || report.infinite_share > 0.0 {
        output::say(format_args!(
            "warning: {:.2} % of the values became 0, {:.2} % were too large",
            report.zeros_share * 100.0,
            report.infinite_share * 100.0
        ));
    }
    output::print(open::shown(&arguments.output))
}
