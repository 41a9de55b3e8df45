//! SIGINT, SIGTERM and SIGHUP (a closed terminal): the first asks the run to save and stop; the second ends the process at once (writes are atomic, so the files on
//! disk stay whole).

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use train::interrupt::Interrupt;

/// Installs the handlers.
pub fn install() -> Result<Interrupt> {
    let interrupt = Interrupt::default();
    let once = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Order matters: the conditional shutdown sees the flag that an earlier signal has set.
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&once)).context("can't handle signals")?;
        signal_hook::flag::register(signal, Arc::clone(&once)).context("can't handle signals")?;
        signal_hook::flag::register_usize(signal, interrupt.flag(), signal as usize).context("can't handle signals")?;
    }
    Ok(interrupt)
}

/// 128 + signal for an interrupted run, as shells expect; 1 for every other error.
pub fn exit_status(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<train::Interrupted>().map_or(1, |interrupted| (128 + interrupted.signal) as u8)
}
