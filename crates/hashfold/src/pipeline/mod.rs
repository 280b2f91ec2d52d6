//! Summaries of event streams on all cores: bounded queues, one writer a summary, back-pressure, and
//! nothing dropped silently.
//!
//! ```text
//! Input ─batches of frames→ parsers ─events, routed→ workers ─ windows that ended → Sink
//!   ↑                       Parser, Rule            Windows: groups, aggregates      a run
//!   │                                               Chains: touches of users ─ credits → Windows
//!   └───────────── empty batches, a fixed number: the back-pressure ─┘
//! ```
//!
//! A source takes an empty [`Batch`] from the [`Input`], fills it with frames, the bytes of one event each, and
//! pushes it. A parser thread turns frames into [`Events`] and decides by [`Rule`]s which [`Summary`] takes which
//! event. Each summary belongs to one worker thread, so no lock guards it. A worker handles batches in the
//! order in which they were pushed, whatever the number of threads; so the results are those of one thread.
//! Idle threads sleep.
//!
//! Time is that of the events. Each source, such as a connection ([`Input::open`]), has a watermark, the latest time of its
//! events. The least watermark of the sources that are active is the clock of the stream. A window of a
//! summary ends when the clock is past its end by the allowed lateness; events that come later are counted.
//! A source whose times are too far ahead of those of the others is refused, and does not move the clock
//! ([`PipelineOptions::ahead_ms_max`], [`PipelineOptions::future_ms_max`]). [`Window::run`] makes a run of a window.
//!
//! [`Pipeline::checkpoint`] returns the state behind all batches that were pushed, with the positions of their
//! sources. A pipeline that starts with it continues as if it had never stopped.
//!
//! [`Chains`] keep the last touches of each user: events that may lead to a conversion, such as clicks. When a conversion
//! comes, [`Model`]s share out the credit for it among the user's touches, and summaries add up credits.
//! [`Pipeline::chains`] returns the chains of one moment as runs; a [`DumpSink`] gets them every night.
//!
//! Parsing, sockets, files and configuration are the caller's.
//!
//! ```
//! use hashfold::{
//!     Seed,
//!     pipeline::{
//!         Aggregate, Column, Events, Field, FieldKind, Parser, Pipeline, PipelineOptions, Sink, Summary, Value, Window,
//!     },
//!     run::Run as _,
//! };
//! use std::sync::{Arc, Mutex};
//!
//! struct Words; // Each frame is a word.
//! impl Parser for Words {
//!     fn parse(&mut self, frame: &[u8], events: &mut Events) -> Result<(), &'static str> {
//!         events.begin();
//!         events.set(0, Value::Text(frame));
//!         events.end(0);
//!         Ok(())
//!     }
//! }
//!
//! struct Groups(Arc<Mutex<u64>>);
//! impl Sink for Groups {
//!     fn window(&mut self, window: &Window<'_>) -> hashfold::Result<()> {
//!         let run = window.run(Seed(1), &mut |_, _, key, _| {
//!             key.extend(b"word");
//!             Ok(())
//!         })?;
//!         *self.0.lock().unwrap() += run.summary().entries_max;
//!         Ok(())
//!     }
//! }
//!
//! let groups = Arc::new(Mutex::new(0));
//! let fields = vec![Field::new("word", FieldKind::Text)];
//! let columns = vec![Column::new("count", Aggregate::Count)];
//! let summary = Summary::new("words", columns).group_by(vec![0]);
//! let sinks: Vec<(Summary, Box<dyn Sink>)> = vec![(summary, Box::new(Groups(groups.clone())))];
//! let pipeline = Pipeline::start(&fields, vec![Box::new(Words)], sinks, PipelineOptions::default())?;
//! let input = pipeline.input();
//! let mut batch = input.batch()?;
//! batch.push(b"a");
//! input.push(batch, None)?;
//! let stats = pipeline.finish()?;
//! assert_eq!((stats.totals.events, *groups.lock().unwrap()), (1, 1));
//! # Ok::<(), hashfold::Error>(())
//! ```

mod aggregate;
mod attribution;
mod batch;
mod budget;
mod chain_dump;
mod chain_table;
#[cfg(test)]
mod chain_tests;
mod chains;
mod checkpoint;
mod clock;
mod definition;
mod events;
mod handle;
mod held;
mod histogram;
mod identity;
mod model;
#[cfg(test)]
mod orders;
mod owned;
mod parse;
mod queue;
#[cfg(test)]
mod source_tests;
mod stats;
#[cfg(test)]
mod tests;
mod top;
mod touch;
mod window;
mod windows;
mod worker;

pub use self::{
    aggregate::Output,
    attribution::Attribution,
    batch::Batch,
    chain_dump::{ChainDump, DumpSink},
    chains::{Chains, TOUCHES_MAX},
    checkpoint::{Beginning, Checkpoint, Position},
    definition::{
        Aggregate, Column, DISTINCT_PRECISION, Field, FieldKind, GROUP_BYTES_MAX, Rule, Summary,
        Test,
    },
    events::{Events, TIME_MS_MAX, Value},
    handle::{BATCHES_MAX, Pipeline, PipelineOptions, THREADS_MAX},
    histogram::RELATIVE_ERROR,
    model::{
        CREDIT_WHOLE, Conversion, FirstTouch, LastTouch, Linear, Model, TimeDecay, Touch, share,
    },
    parse::Parser,
    queue::{Input, SourceId},
    stats::{ChainsStats, QueueFill, Stats, SummaryStats, Totals, WorkerStats},
    top::TopItem,
    touch::chain_touches,
    window::{Encode, Sink, Window},
    worker::RejectedSink,
};

/// The channels, locks and threads of a pipeline; a test replaces them by those of a scheduler that tries many
/// orders.
mod sync {
    pub(super) use crossbeam_channel::{Receiver, Sender, bounded};
    pub(super) use std::{
        sync::{Mutex, MutexGuard, atomic::AtomicBool},
        thread,
    };
}
