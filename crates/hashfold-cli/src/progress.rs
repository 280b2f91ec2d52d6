//! Progress of long work: a bar on a terminal, lines or JSON elsewhere.

use crate::{output::write_note, units};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use serde_json::json;
use std::{
    fmt,
    io::{IsTerminal as _, Write as _, stderr, stdout},
    time::{Duration, Instant},
};

/// Time between two lines without a terminal; shorter work prints none.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// Time between two JSON objects.
const JSON_INTERVAL: Duration = Duration::from_secs(1);

/// Ways to show progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    /// For people, on standard error.
    Text,
    /// As JSON objects, one per line, on standard output.
    Json,
    /// No progress.
    Nothing,
}

/// Units of progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Entries,
    Blocks,
}

/// One phase of long work.
#[derive(Debug)]
pub(crate) struct Progress {
    show: Show,
    phase: &'static str,
    unit: Unit,
    total: Option<u64>,
    bar: ProgressBar,
    start: Instant,
    shown: Instant,
}

impl Progress {
    /// Starts a phase; `total` is the amount of work, if it is known.
    pub(crate) fn start(
        show: Show,
        phase: &'static str,
        unit: Unit,
        total: Option<u64>,
    ) -> Progress {
        let on_terminal = show == Show::Text && stderr().is_terminal();
        let target =
            if on_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(total, target);
        bar.set_style(style(unit, total));
        bar.set_message(phase);
        let start = Instant::now();
        Progress { show, phase, unit, total, bar, start, shown: start }
    }

    /// Reports the amount of work done so far.
    pub(crate) fn set(&mut self, done: u64) {
        self.bar.set_position(done);
        let interval = match self.show {
            Show::Json => JSON_INTERVAL,
            Show::Text if self.bar.is_hidden() => LINE_INTERVAL,
            Show::Text | Show::Nothing => return,
        };
        let now = Instant::now();
        if now - self.shown >= interval {
            self.shown = now;
            self.print(done, (now - self.start).as_secs_f64());
        }
    }

    fn print(&self, done: u64, seconds: f64) {
        let unit = format!("{:?}", self.unit).to_lowercase();
        if self.show == Show::Json {
            let object = json!({
                "event": "progress", "phase": self.phase, "unit": unit,
                "done": done, "total": self.total, "seconds": seconds,
            });
            // A closed pipe does not end the work.
            let _ = writeln!(stdout(), "{object}");
            return;
        }
        let amount = |amount| match self.unit {
            Unit::Bytes => units::bytes(amount).to_string(),
            Unit::Entries | Unit::Blocks => format!("{} {unit}", units::count(amount)),
        };
        let of = self.total.map(|total| format!(" of {}", amount(total))).unwrap_or_default();
        let rate = amount(units::per_second(done, seconds));
        write_note(format_args!("{}: {}{of}, {rate}/s", self.phase, amount(done)));
    }
}

impl Drop for Progress {
    /// Clears the bar, even if the phase failed.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(unit: Unit, total: Option<u64>) -> ProgressStyle {
    let template = match (unit, total) {
        (Unit::Bytes, Some(_)) => {
            "{msg} [{bar:30}] {binary_bytes} of {binary_total_bytes}, \
             {binary_bytes_per_sec}, {eta} left"
        }
        (Unit::Bytes, None) => "{msg} {binary_bytes}, {binary_bytes_per_sec}, {elapsed}",
        (_, Some(_)) => "{msg} [{bar:30}] {human_pos} of {human_len}, {rate}, {eta} left",
        (_, None) => "{msg} {human_pos}, {rate}, {elapsed}",
    };
    let rate = |state: &ProgressState, out: &mut dyn fmt::Write| {
        // If this fails, only the rate is missing.
        let _ = write!(out, "{}/s", units::count(state.per_sec() as u64));
    };
    ProgressStyle::with_template(template)
        .expect("the template is well formed")
        .with_key("rate", rate)
        .progress_chars("=> ")
}
