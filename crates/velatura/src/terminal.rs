//! What a run says, on a terminal (bars) or in a log (plain lines). Everything goes to standard error; results go to standard output.

use crate::output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use train::event::{Event, Reporter};
use train::metrics::Row;

/// Seconds between lines of a long stretch where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

pub struct Terminal {
    bars: bool,
    bar: Option<ProgressBar>,
    what: String,
    total: u64,
    first_step: u64,
    began: Instant,
    last_line: Instant,
    /// Exponential mean of the loss, for the bar.
    loss: Option<f64>,
    log_every: u64,
}

impl Terminal {
    /// `log_every`: steps between plain lines of training; 0: none.
    pub fn new(log_every: u64) -> Terminal {
        let now = Instant::now();
        Terminal {
            bars: std::io::stderr().is_terminal(),
            bar: None,
            what: String::new(),
            total: 0,
            first_step: 0,
            began: now,
            last_line: now,
            loss: None,
            log_every,
        }
    }

    /// Words for people, of one line or several, above the bar if there is one.
    pub fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| output::say(text)),
            None => output::say(text),
        }
    }

    /// Progress of a download: one bar over all bytes of a file.
    pub fn download(&mut self, progress: &weights::hub::Progress) {
        let what = format!("downloading {} ({} of {})", progress.file, progress.number, progress.files);
        if self.what != what {
            self.begin(&what, progress.total_bytes, "{msg} {wide_bar} {bytes}/{total_bytes} {eta}");
        }
        self.done(progress.received_bytes);
        if progress.number == progress.files && progress.received_bytes == progress.total_bytes {
            self.finish();
        }
    }

    fn line(&self, text: &str) {
        self.say(&base::visible(text));
    }

    fn begin(&mut self, what: &str, total: u64, template: &str) {
        self.finish();
        (self.what, self.total, self.began, self.last_line) = (what.into(), total, Instant::now(), Instant::now());
        if self.bars {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            bar.set_style(ProgressStyle::with_template(template).expect("the templates in this file are valid"));
            bar.set_message(base::visible(what));
            self.bar = Some(bar);
        } else {
            output::say(format_args!("{what}: {total}"));
        }
    }

    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn done(&mut self, done: u64) {
        match &self.bar {
            Some(bar) => bar.set_position(done),
            None if self.last_line.elapsed() >= LINE_INTERVAL => {
                self.last_line = Instant::now();
                output::say(format_args!("{}: {done} of {}", self.what, self.total));
            }
            None => {}
        }
    }

    fn step(&mut self, row: &Row) {
        if let Some(loss) = row.loss {
            self.loss = Some(self.loss.map_or(loss, |mean| 0.95 * mean + 0.05 * loss));
        }
        if let Some(loss) = row.validation_loss {
            self.line(&format!("step {}: validation loss {loss:.5}", row.step));
        }
        if let Some(bar) = &self.bar {
            bar.set_message(format!("loss {:.4}  lr {:.2e}{}", self.loss.unwrap_or(f64::NAN), row.lr, adapted(row)));
            bar.set_position(row.step);
        } else if self.log_every > 0 && self.is_due(row.step) {
            output::say(self.plain_step(row));
        }
    }

    /// Whether a step gets a plain line: the first, the last, and those between at the interval.
    fn is_due(&self, step: u64) -> bool {
        step.is_multiple_of(self.log_every) || step == self.total || step == self.first_step + 1
    }

    fn plain_step(&self, row: &Row) -> String {
        let each = self.began.elapsed().as_secs_f64() / (row.step - self.first_step) as f64;
        let left = Duration::from_secs_f64(each * (self.total - row.step) as f64);
        let number = |value: Option<f64>| value.map_or("not finite".to_string(), |v| format!("{v:.4}"));
        format!(
            "step {}/{}  loss {}  mean {:.4}  lr {:.2e}{}  norm {}  {each:.2} s/step  {} left",
            row.step,
            self.total,
            number(row.loss),
            self.loss.unwrap_or(f64::NAN),
            row.lr,
            adapted(row),
            number(row.grad_norm),
            indicatif::HumanDuration(left)
        )
    }
}

/// What an adaptive optimizer has arrived at, as `  d 1.20e-5`.
fn adapted(row: &Row) -> String {
    row.adapted.iter().map(|(name, value)| format!("  {name} {value:.2e}")).collect()
}

impl Reporter for Terminal {
    fn report(&mut self, event: Event) {
        match event {
            Event::Notice(text) => self.line(&text),
            Event::Warning(text) => self.line(&format!("warning: {text}")),
            Event::Begin { what, total } => self.begin(what, total, "{msg} {wide_bar} {pos}/{len} {eta}"),
            Event::Done { done } => self.done(done),
            Event::End => self.finish(),
            Event::Training { first, total } => {
                self.begin("training", total, "{pos}/{len} {wide_bar} {msg}  {per_sec}  {eta} left");
                self.first_step = first;
                if let Some(bar) = &self.bar {
                    bar.set_position(first);
                    bar.reset_eta();
                }
            }
            Event::Step(row) => self.step(row),
            Event::Saved(path) => self.line(&format!("saved {}", path.display())),
            Event::Memory(what, usage) => self.line(&format!("memory of {what}: {usage}")),
            Event::Sampled(path) => self.line(&format!("sample {}", path.display())),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.finish();
    }
}
