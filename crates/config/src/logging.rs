//! `logging:` what is printed, and how often. Every step is a row in `metrics.jsonl` whatever is printed.

use crate::scalar::Whole;
use crate::section::section;
use anyhow::Result;
use serde::Serialize;

section! {
    RawLogging {
        /// Steps between plain lines where there is no terminal for a progress bar; 0: none.
        log_every: Whole,
    }
    no effect {
        verbose: "errors always say all that is known",
        use_ui_logger: "there is no such interface",
        project_name: "it belongs to wandb",
        run_name: "it belongs to wandb",
    }
    not yet { use_wandb: false, }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoggingConfig {
    /// 0: no plain lines.
    pub log_every: u64,
}

pub(crate) fn resolve(raw: RawLogging, notices: &mut Vec<String>) -> Result<LoggingConfig> {
    raw.check_foreign("logging", notices)?;
    Ok(LoggingConfig { log_every: raw.log_every.map_or(10, |e| e.0) })
}
