//! `logging:` what is printed, and how often. Every step is a row in `metrics.jsonl` whatever is printed.

use crate::findings::Findings;
use crate::scalar::{Flag, Whole};
use crate::section::section;
use serde::Serialize;

section! {
    RawLogging {
        /// Steps between plain lines where there is no terminal for a progress bar; 0: none.
        log_every: Whole,
        /// TensorBoard event files too, in the run's folder.
        tensorboard: Flag,
        /// sd-scripts' name for the same: `tensorboard`.
        log_with: String,
    }
    no effect {
        verbose: Flag => "errors always say all that is known",
        use_ui_logger: Flag => "there is no such interface",
        project_name: String => "it belongs to wandb",
        run_name: String => "it belongs to wandb",
    }
    not yet { use_wandb: false, }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoggingConfig {
    /// 0: no plain lines.
    pub log_every: u64,
    pub tensorboard: bool,
}

pub(crate) fn resolve(raw: RawLogging, findings: &mut Findings) -> LoggingConfig {
    raw.check_foreign("logging", findings);
    let given = raw.tensorboard.map(|f| f.0);
    let named = names_tensorboard(crate::run::text(raw.log_with).as_deref(), findings);
    if named && given == Some(false) {
        findings.wrong("logging.log_with: tensorboard contradicts logging.tensorboard: false; remove one".to_string());
    }
    LoggingConfig { log_every: raw.log_every.map_or(10, |e| e.0), tensorboard: named || given == Some(true) }
}

fn names_tensorboard(log_with: Option<&str>, findings: &mut Findings) -> bool {
    match log_with {
        None => false,
        Some("tensorboard") => true,
        Some(name @ ("wandb" | "all")) => {
            findings.notice(format!("logging.log_with: {name}: nothing is uploaded, and metrics.jsonl is always written"));
            name == "all"
        }
        Some(other) => {
            findings.wrong(format!("logging.log_with: {other} is unknown; it is tensorboard"));
            false
        }
    }
}
