//! Sources with clocks of their own: slow ones, idle ones, ones that end, and ones whose clocks are wrong.

use super::{
    Aggregate, Column, Events, Field, FieldKind, Parser, Pipeline, PipelineOptions, Position,
    RejectedSink, Sink, SourceId, Stats, Summary, Value, Window,
};
use crate::{env::Env, error::Result, key::Seed, work::ManualClock};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

const AHEAD_MS: i64 = 10_000;
const IDLE_MS: i64 = 60_000;
/// A time that is decades ahead of all others.
const WRONG_MS: i64 = 3_000_000_000_000;

/// A frame is the time of an event and its user.
struct Pairs;

impl Parser for Pairs {
    fn parse(
        &mut self,
        frame: &[u8],
        events: &mut Events,
    ) -> std::result::Result<(), &'static str> {
        let text = std::str::from_utf8(frame).map_err(|_| "no text")?;
        let (time, user) = text.split_once(' ').ok_or("no pair")?;
        events.begin();
        events.set(0, Value::Text(user.as_bytes()));
        events.end(time.parse().map_err(|_| "no time")?);
        Ok(())
    }
}

/// Numbers of events by the start of their window and their user.
type Counts = Arc<Mutex<BTreeMap<(i64, String), String>>>;

struct Collector(Counts);

impl Sink for Collector {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        let (start, _) = window.span().expect("the summary has windows");
        window.run(Seed(1), &mut |fields, outputs, key, _| {
            let Value::Text(user) = fields[0] else { panic!("the group is a text") };
            let user = String::from_utf8_lossy(user).into_owned();
            key.extend(user.as_bytes());
            let before = self.0.lock().unwrap().insert((start, user), format!("{:?}", outputs[0]));
            assert_eq!(before, None, "each window ends once");
            Ok(())
        })?;
        Ok(())
    }
}

#[derive(Clone, Default)]
struct Refused(Arc<Mutex<Vec<String>>>);

impl RejectedSink for Refused {
    fn rejected(&mut self, frame: &[u8], reason: &'static str) -> Result<()> {
        let frame = String::from_utf8_lossy(frame);
        self.0.lock().unwrap().push(format!("{frame}: {reason}"));
        Ok(())
    }
}

/// A pipeline with windows of a second, and a clock that only [`Case::wait`] moves.
struct Case {
    pipeline: Pipeline,
    clock: ManualClock,
    counts: Counts,
    refused: Refused,
}

impl Case {
    fn new() -> Case {
        Case::with(PipelineOptions::default())
    }

    /// Begins with these options, but for those that all cases have.
    fn with(options: PipelineOptions) -> Case {
        let (clock, counts, refused) = (ManualClock::new(1), Counts::default(), Refused::default());
        let columns = vec![Column::new("count", Aggregate::Count)];
        let summary = Summary::new("users", columns).group_by(vec![0]).windows(1000, 0);
        let options = PipelineOptions {
            ahead_ms_max: AHEAD_MS,
            idle_ms_max: IDLE_MS,
            rejected: Some(Box::new(refused.clone())),
            env: Env { clock: Arc::new(clock.clone()), ..Env::simulated(1) },
            ..options
        };
        let sinks: Vec<(Summary, Box<dyn Sink>)> =
            vec![(summary, Box::new(Collector(counts.clone())))];
        let fields = [Field::new("user", FieldKind::Text)];
        let pipeline = Pipeline::start(&fields, vec![Box::new(Pairs)], sinks, options).unwrap();
        Case { pipeline, clock, counts, refused }
    }

    fn open(&self) -> SourceId {
        self.pipeline.input().open().unwrap()
    }

    /// Pushes an event at each of these times, and waits until they are handled.
    fn push(&self, source: SourceId, user: &str, times: impl IntoIterator<Item = i64>) {
        let input = self.pipeline.input();
        let mut batch = input.batch().unwrap();
        for time in times {
            batch.push(format!("{time} {user}").as_bytes());
        }
        input.push_from(source, batch).unwrap();
        self.pipeline.checkpoint().unwrap();
    }

    fn wait(&self, ms: i64) {
        self.clock.advance(Duration::from_millis(ms.unsigned_abs()));
    }

    fn stats(&self) -> Stats {
        self.pipeline.checkpoint().unwrap();
        self.pipeline.stats()
    }

    /// Number of windows that have ended.
    fn windows(&self) -> u64 {
        self.stats().summaries[0].windows
    }

    /// Ends the pipeline. Returns events that were summarised, late, and too far ahead.
    fn end(self) -> [u64; 3] {
        let stats = self.pipeline.finish().unwrap();
        assert_eq!(stats.totals.held, 0);
        let summary = stats.summaries[0];
        assert_eq!(summary.events + summary.late + stats.totals.ahead, stats.totals.events);
        assert_eq!(self.refused.0.lock().unwrap().len() as u64, stats.totals.ahead);
        [summary.events, summary.late, stats.totals.ahead]
    }
}

/// The sender with the wrong clock comes first, in the middle, or between the events of the other; it sends few events or
/// many.
#[test]
fn a_sender_with_a_wrong_clock_is_refused_and_makes_no_event_of_others_late() {
    for count in [1, 99, 100, 1000] {
        let case = Case::new();
        let (good, wrong) = (case.open(), case.open());
        case.push(good, "good", (0..1000).map(|i| i * 7));
        case.push(wrong, "wrong", (0..count).map(|i| WRONG_MS + i));
        case.push(good, "good", (1000..2000).map(|i| i * 7));
        case.push(wrong, "wrong", [WRONG_MS]);
        let first = format!("{WRONG_MS} wrong: the time is too far ahead");
        assert_eq!(case.refused.0.lock().unwrap()[0], first);
        // It is silent for hours, and the good one, too; it stays wrong.
        case.wait(10 * IDLE_MS);
        case.push(wrong, "wrong", [WRONG_MS]);
        case.push(good, "good", [14_000]);
        assert_eq!(case.windows(), 14);
        assert_eq!(case.end(), [2001, 0, count as u64 + 2]);
    }
}

/// Both are there before the first event. It is known who is wrong when the second has sent one.
#[test]
fn a_sender_with_a_wrong_clock_may_be_the_first_to_send() {
    let case = Case::new();
    let (good, wrong) = (case.open(), case.open());
    case.push(wrong, "wrong", (0..500).map(|i| WRONG_MS + i));
    assert_eq!(case.windows(), 0, "the other may be behind");
    case.push(good, "good", (0..1000).map(|i| i * 7));
    case.push(wrong, "wrong", (0..500).map(|i| WRONG_MS + i));
    case.push(good, "good", (1000..2000).map(|i| i * 7));
    assert_eq!(case.windows(), 13);
    case.wait(10 * IDLE_MS);
    case.push(wrong, "wrong", [WRONG_MS]);
    case.push(good, "good", [14_000]);
    assert_eq!(case.end(), [500 + 2001, 0, 501]);
}

/// A single wrong time of a lone sender is refused when the next event shows that it is wrong.
#[test]
fn wrong_times_of_a_lone_sender_are_refused() {
    let case = Case::new();
    let lone = case.open();
    for i in 0..20 {
        case.push(lone, "good", (0..50).map(|k| i * 50 + k));
        case.push(lone, "wrong", (0..i).map(|k| WRONG_MS + k));
        assert_eq!(case.stats().totals.held, i as u64);
    }
    case.push(lone, "good", [1000]);
    assert_eq!(case.end(), [1001, 0, 190]);
}

/// A sender that is behind is waited for; one that is silent is not, whether or not events come.
#[test]
fn the_slowest_sender_holds_windows_open_until_it_is_idle() {
    let case = Case::new();
    let (fast, slow) = (case.open(), case.open());
    case.push(fast, "fast", [0, 5000]);
    assert_eq!(case.windows(), 0);
    case.push(slow, "slow", [0, 1500]);
    assert_eq!(case.windows(), 1);
    case.wait(IDLE_MS);
    case.push(fast, "fast", [5500]);
    assert_eq!(case.windows(), 1);
    case.wait(1);
    case.pipeline.pass_time().unwrap();
    assert_eq!(case.windows(), 2, "the window of 1500 ends without a further event");
    case.push(fast, "fast", [7000]);
    assert_eq!(case.windows(), 3);
    // It comes back: what is behind is late, and it is waited for again.
    case.push(slow, "slow", [1600, 7200]);
    case.push(fast, "fast", [9000]);
    assert_eq!(case.windows(), 3);
    // Without the slow one, the clock is that of the fast one.
    case.pipeline.input().close(slow).unwrap();
    assert_eq!(case.windows(), 4);
    assert_eq!(case.end(), [8, 1, 0]);
}

/// Connections that come and send nothing do not stop the clock, but for the idle time at the beginning of the stream.
#[test]
fn silent_connections_hold_the_clock_only_at_the_beginning() {
    let case = Case::new();
    let (lone, _silent) = (case.open(), case.open());
    case.push(lone, "lone", [0, 5000]);
    assert_eq!(case.windows(), 0);
    case.wait(IDLE_MS + 1);
    case.open();
    case.push(lone, "lone", [6000]);
    assert_eq!(case.windows(), 2);
    case.open();
    case.push(lone, "lone", [8000]);
    assert_eq!(case.windows(), 3);
    assert_eq!(case.end(), [4, 0, 0]);
}

#[test]
fn when_all_are_idle_the_windows_of_the_latest_end() {
    let case = Case::new();
    let (fast, slow) = (case.open(), case.open());
    case.push(slow, "slow", [0]);
    case.push(fast, "fast", [3000]);
    case.wait(IDLE_MS + 1);
    case.pipeline.pass_time().unwrap();
    assert_eq!(case.windows(), 1);
    assert_eq!(case.stats().summaries[0].open_windows, 1);
    assert_eq!(case.end(), [2, 0, 0]);
}

/// Senders are silent for longer than `ahead`, such as at a weekend: time passes on the machine, too.
#[test]
fn a_pause_of_all_senders_costs_no_event() {
    let case = Case::new();
    let (first, second) = (case.open(), case.open());
    case.push(first, "first", [0, 100]);
    case.push(second, "second", [0, 100]);
    case.wait(50 * AHEAD_MS);
    case.push(first, "first", [50 * AHEAD_MS]);
    case.push(second, "second", [50 * AHEAD_MS + 10, 50 * AHEAD_MS + 2000]);
    case.push(first, "first", [50 * AHEAD_MS + 2000]);
    assert_eq!(case.windows(), 2);
    assert_eq!(case.end(), [8, 0, 0]);
}

/// A sender whose clock is years behind, or that sends old events, holds no window of the others open. Its own are late.
#[test]
fn a_sender_that_is_too_far_behind_stops_no_window() {
    let case = Case::new();
    let (good, old) = (case.open(), case.open());
    case.push(good, "good", [2 * AHEAD_MS]);
    case.pipeline.input().close(old).unwrap();
    let old = case.open();
    for i in 1..=10 {
        case.push(old, "old", [i]);
        case.push(good, "good", [2 * AHEAD_MS + 1000 * i]);
        assert_eq!(case.windows(), i as u64);
    }
    // When it has caught up so far, it is waited for.
    case.push(old, "old", [2 * AHEAD_MS + 1]);
    case.push(good, "good", [2 * AHEAD_MS + 11_000]);
    assert_eq!(case.windows(), 10);
    assert_eq!(case.end(), [12, 11, 0]);
}

/// The first sender has a clock that is years behind, and is silent then. When it is idle, it shows no more who is right.
#[test]
fn a_first_sender_that_is_years_behind_and_silent_is_no_measure_for_the_others() {
    let case = Case::new();
    let old = case.open();
    case.push(old, "old", [0]);
    let good = case.open();
    case.push(good, "good", (0..10).map(|i| 50 * AHEAD_MS + i));
    assert_eq!(case.stats().totals.ahead, 10);
    case.wait(IDLE_MS + 1);
    case.push(good, "good", (0..200).map(|i| 50 * AHEAD_MS + i));
    assert_eq!(case.end(), [201, 0, 10]);
}

/// Time passes between two runs, too: events of now are taken after a long one, also beside a sender that sends what was left over.
#[test]
fn a_pause_between_two_runs_costs_no_event() {
    let first = Case::new();
    let source = first.open();
    first.push(source, "first", [0, 100]);
    let checkpoint = Some(first.pipeline.checkpoint().unwrap());
    // The clocks of both begin at 0; the second one goes on at another date.
    let second = Case::with(PipelineOptions { checkpoint, ..PipelineOptions::default() });
    second.wait(50 * AHEAD_MS);
    let (new, left) = (second.open(), second.open());
    second.push(new, "new", [50 * AHEAD_MS]);
    assert_eq!((second.stats().totals.held, second.windows()), (0, 1));
    second.push(left, "left", [200, 50 * AHEAD_MS]);
    second.push(new, "new", [50 * AHEAD_MS + 1000]);
    assert_eq!(second.end(), [5, 1, 0]);
}

/// Events of a gap that no machine time explains come by connections that are short: 100 in a row confirm it.
#[test]
fn a_gap_is_confirmed_by_short_connections_together() {
    let case = Case::new();
    let first = case.open();
    case.push(first, "first", [0]);
    case.pipeline.input().close(first).unwrap();
    for i in 0..120 {
        let source = case.open();
        case.push(source, "later", [50 * AHEAD_MS + 20 * i]);
        case.pipeline.input().close(source).unwrap();
        assert_eq!(case.stats().totals.held, if i < 99 { i as u64 + 1 } else { 0 });
        assert_eq!(case.windows(), if i < 99 { 0 } else { 1 + (20 * i as u64) / 1000 });
    }
    assert_eq!(case.end(), [121, 0, 0]);
}

/// Events that are held when the pipeline ends are summarised: nothing shows that they are wrong.
#[test]
fn events_that_are_held_at_the_end_are_summarised() {
    let case = Case::new();
    let lone = case.open();
    case.push(lone, "a", [0, 50 * AHEAD_MS, 60 * AHEAD_MS]);
    assert_eq!(case.stats().totals.held, 2);
    let counts = case.counts.clone();
    assert_eq!(case.end(), [3, 0, 0]);
    let counts = counts.lock().unwrap();
    let windows = [0, 50 * AHEAD_MS, 60 * AHEAD_MS];
    assert_eq!(counts.keys().map(|(start, _)| *start).collect::<Vec<_>>(), windows);
}

/// The date of the clock of these tests is 0 at the beginning.
const FUTURE_MS: i64 = 5000;

fn with_future() -> Case {
    Case::with(PipelineOptions { future_ms_max: FUTURE_MS, ..PipelineOptions::default() })
}

/// Nothing else shows that the first times are wrong, however many they are.
#[test]
fn a_lone_sender_whose_first_times_are_wrong_is_refused_until_they_are_right() {
    for count in [1, 99, 100, 1000] {
        let case = with_future();
        let lone = case.open();
        case.push(lone, "wrong", (0..count).map(|i| WRONG_MS + i));
        assert_eq!(case.stats().totals.held, 0);
        case.push(lone, "good", (0..500).map(|i| i * 8));
        case.push(lone, "wrong", [WRONG_MS]);
        case.push(lone, "good", (0..100).map(|i| 4000 + i * 8));
        assert_eq!(case.windows(), 4);
        assert_eq!(case.end(), [600, 0, count as u64 + 1]);
    }
}

/// Each time is ahead of that before by less than what is allowed.
#[test]
fn times_that_run_away_step_by_step_are_refused_where_the_machine_is_too_far_behind() {
    let case = with_future();
    let lone = case.open();
    case.push(lone, "lone", (0..20).map(|i| i * 1000));
    let last = FUTURE_MS / 1000;
    assert_eq!((case.windows(), case.stats().totals.ahead), (last as u64, 19 - last as u64));
    // The machine's time passes, and what was in the future is not any more.
    case.wait(15_000);
    case.push(lone, "lone", (last + 1..21).map(|i| i * 1000));
    assert_eq!(case.end(), [21, 0, 19 - last as u64]);
}

#[test]
fn times_of_files_are_not_compared_with_those_of_the_machine() {
    let options = PipelineOptions { sources: 1, future_ms_max: FUTURE_MS, ..Default::default() };
    let case = Case::with(options);
    let input = case.pipeline.input();
    let mut batch = input.batch().unwrap();
    batch.push(format!("{WRONG_MS} file").as_bytes());
    input.push(batch, Some((0, Position::default()))).unwrap();
    assert_eq!(case.end(), [1, 0, 0]);
    // Without a position, they come while they happen.
    let case = with_future();
    let input = case.pipeline.input();
    let mut batch = input.batch().unwrap();
    batch.push(format!("{WRONG_MS} live").as_bytes());
    input.push(batch, None).unwrap();
    assert_eq!(case.end(), [0, 0, 1]);
}
