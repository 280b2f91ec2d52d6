//! Chains, models and credits against a naive single-threaded twin, and their bounds.

use super::{
    Aggregate, Attribution, CREDIT_WHOLE, ChainDump, Chains, ChainsStats, Checkpoint, Column,
    Conversion, DumpSink, Events, Field, FieldKind, FirstTouch, Input, LastTouch, Linear, Model,
    Output, Parser, Pipeline, PipelineOptions, Rule, Sink, Stats, Summary, Test, TimeDecay, Touch,
    Value, Window, chain_touches, share,
};
use crate::{
    error::{Error, ErrorClass, Result},
    key::Seed,
    run::Run as _,
    work::{MemoryBudget, Random as _, SeededRandom},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// The events of tests: time, user, kind, channel, place of the channel, amount.
#[derive(Clone, Debug, PartialEq)]
struct Event {
    time: i64,
    user: String,
    kind: &'static str,
    channel: String,
    place: i64,
    amount: Option<i64>,
}

const KINDS: [&str; 3] = ["view", "click", "buy"];
const USER: usize = 0;
const KIND: usize = 1;
const CHANNEL: usize = 2;
const PLACE: usize = 3;
const AMOUNT: usize = 4;

fn fields() -> Vec<Field> {
    let names = ["user", "kind", "channel", "place", "amount"];
    let kind = |i| if i < PLACE { FieldKind::Text } else { FieldKind::Int };
    names.iter().enumerate().map(|(i, name)| Field::new(name, kind(i))).collect()
}

impl Event {
    fn frame(&self) -> Vec<u8> {
        let Event { time, user, kind, channel, place, amount } = self;
        let amount = amount.map_or(String::new(), |amount| amount.to_string());
        format!("{time};{user};{kind};{channel};{place};{amount}").into_bytes()
    }
}

struct Parse;

impl Parser for Parse {
    fn parse(
        &mut self,
        frame: &[u8],
        events: &mut Events,
    ) -> std::result::Result<(), &'static str> {
        let text = std::str::from_utf8(frame).map_err(|_| "no text")?;
        let parts: Vec<&str> = text.split(';').collect();
        let [time, user, kind, channel, place, amount] = parts[..] else { return Err("no event") };
        events.begin();
        for (field, text) in [(USER, user), (KIND, kind), (CHANNEL, channel)] {
            if !text.is_empty() {
                events.set(field, Value::Text(text.as_bytes()));
            }
        }
        for (field, text) in [(PLACE, place), (AMOUNT, amount)] {
            events.set(field, text.parse().map_or(Value::Null, Value::Int));
        }
        events.end(time.parse().map_err(|_| "no time")?);
        Ok(())
    }
}

fn below(random: &SeededRandom, end: u64) -> u64 {
    random.next_u64() % end
}

/// A stream with skewed users, events out of order and late ones, and jumps of the clock.
fn stream(seed: u64, count: usize) -> Vec<Event> {
    let random = SeededRandom::new(seed);
    let mut now = -3000;
    let mut events = Vec::new();
    for _ in 0..count {
        now += below(&random, 9) as i64;
        if below(&random, 300) == 0 {
            now += 3000;
        }
        let behind = match below(&random, 10) {
            0 => below(&random, 2500),
            1..4 => below(&random, 60),
            _ => 0,
        };
        let user = (below(&random, 30) * below(&random, 30)) / 30;
        events.push(Event {
            time: now - behind as i64,
            user: if user == 0 { String::new() } else { format!("user{user}") },
            kind: KINDS[(below(&random, 11) / 5) as usize],
            channel: ["", "ads", "mail", "search"][below(&random, 4) as usize].into(),
            place: below(&random, 2) as i64,
            amount: (below(&random, 4) > 0).then(|| below(&random, 10_000) as i64 - 2000),
        });
    }
    events
}

fn is(kinds: &[&str]) -> Vec<Rule> {
    let kinds = kinds.iter().map(|kind| kind.as_bytes().to_vec()).collect();
    vec![Rule { field: KIND, test: Test::In(kinds) }]
}

const HALF_LIFE_MS: i64 = 70;

fn models() -> Vec<Arc<dyn Model>> {
    let decay = TimeDecay::new(HALF_LIFE_MS).unwrap();
    vec![Arc::new(FirstTouch), Arc::new(LastTouch), Arc::new(Linear), Arc::new(decay)]
}

/// Chains of different kinds: short and young ones; ones that end; ones whose conversions are touches, too.
fn definitions() -> Vec<Chains> {
    vec![
        Chains {
            touch: is(&["view", "click"]),
            conversion: is(&["buy"]),
            value: Some(AMOUNT),
            age_ms_max: 900,
            touches_max: 6,
            lateness_ms: 50,
            models: models(),
            dump_ms: Some(1000),
            ..Chains::new("short", USER, vec![CHANNEL, PLACE])
        },
        Chains {
            touch: is(&["click"]),
            conversion: is(&["buy"]),
            age_ms_max: 5000,
            touches_max: 3,
            restarts: true,
            ..Chains::new("ending", USER, vec![CHANNEL])
        },
        Chains {
            conversion: is(&["click", "buy"]),
            value: Some(PLACE),
            age_ms_max: 100,
            lateness_ms: 1000,
            models: models()[2..].to_vec(),
            dump_ms: Some(70),
            ..Chains::new("both", USER, vec![PLACE])
        },
    ]
}

/// Numbers of the fields that only credits have.
const MODEL: usize = 5;
const CREDIT: usize = 6;
const CREDIT_VALUE: usize = 7;
const TOUCH_AGE: usize = 8;
const TOUCH_NUMBER: usize = 9;
const TOUCHES: usize = 10;

fn summaries() -> Vec<Summary> {
    let columns = [CREDIT, CREDIT_VALUE, TOUCH_AGE, TOUCH_NUMBER, TOUCHES, AMOUNT];
    let columns = || {
        let sum = |field: &usize| Column::new("sum", Aggregate::Sum(*field));
        let mut columns: Vec<Column> = columns.iter().map(sum).collect();
        columns.push(Column::new("count", Aggregate::Count));
        columns
    };
    let touched = Rule { field: TOUCHES, test: Test::AtLeast(1) };
    vec![
        Summary::new("all", columns()).group_by(vec![MODEL, CHANNEL, PLACE]),
        // Never late: its lateness is that of the chains or more.
        Summary::new("windows", columns())
            .group_by(vec![MODEL, CHANNEL, USER])
            .windows(333, 1000)
            .rules(vec![touched]),
    ]
}

/// Sums by chains, summary and window, and the group as text.
type Results = BTreeMap<(usize, usize, Option<i64>), BTreeMap<String, Vec<i64>>>;
/// Users and their touches, by chains and time of the dump; several at one time in a list.
type Dumps = BTreeMap<(usize, i64), Vec<BTreeMap<String, String>>>;

#[derive(Clone, Debug, Default, PartialEq)]
struct Got {
    results: Results,
    dumps: Dumps,
}

#[derive(Clone, Default)]
struct Collected(Arc<Mutex<Got>>);

struct Collector {
    place: (usize, usize),
    to: Collected,
}

fn text(values: &[Value<'_>]) -> String {
    let text = |value: &Value<'_>| match value {
        Value::Null => String::new(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
    };
    values.iter().map(text).collect::<Vec<_>>().join("/")
}

impl Sink for Collector {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        let mut groups = BTreeMap::new();
        window.run(Seed(3), &mut |fields, outputs, key, _| {
            let number = |output: &Output| match output {
                Output::Int(value) => *value,
                Output::Uint(value) => *value as i64,
                other => panic!("{other:?}"),
            };
            key.extend(text(fields).into_bytes());
            groups.insert(text(fields), outputs.iter().map(number).collect());
            Ok(())
        })?;
        let (chains, summary) = self.place;
        let place = (chains, summary, window.span().map(|(start, _)| start));
        assert_eq!(self.to.0.lock().unwrap().results.insert(place, groups), None);
        Ok(())
    }
}

/// Reads a dump, which is in the order of hashes.
fn read(mut dump: ChainDump) -> BTreeMap<String, String> {
    let mut users = BTreeMap::new();
    let mut before = None;
    while dump.advance().unwrap() {
        let entry = dump.entry();
        let order = Some((entry.hash, entry.key.to_vec()));
        assert!(before < order, "in the order of hashes");
        before = order;
        let touches = chain_touches(entry.value.unwrap(), dump.channels()).unwrap();
        let touches = touches.iter().map(|(time, channel)| format!("{time}:{}", text(channel)));
        let user = String::from_utf8(entry.key.to_vec()).unwrap();
        assert_eq!(users.insert(user, touches.collect::<Vec<_>>().join(" ")), None);
    }
    users
}

impl DumpSink for Collector {
    fn dump(&mut self, dump: ChainDump) -> Result<()> {
        let place = (self.place.0, dump.at_ms());
        let users = read(dump);
        self.to.0.lock().unwrap().dumps.entry(place).or_default().push(users);
        Ok(())
    }
}

fn attributions(to: &Collected) -> Vec<Attribution> {
    let one = |(chains, definition): (usize, Chains)| {
        let sink = |summary| Collector { place: (chains, summary), to: to.clone() };
        let with_sink =
            |(number, summary)| -> (Summary, Box<dyn Sink>) { (summary, Box::new(sink(number))) };
        let summaries = summaries().into_iter().enumerate().map(with_sink).collect();
        Attribution { chains: definition, summaries, dump: Some(Box::new(sink(0))) }
    };
    definitions().into_iter().enumerate().map(one).collect()
}

/// A summary of plain events beside the chains.
struct Counted(Arc<Mutex<u64>>);

impl Sink for Counted {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        *self.0.lock().unwrap() += window.groups() as u64;
        Ok(())
    }
}

/// Reads results of any kind, and keeps none.
struct Passed;

impl Sink for Passed {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        let mut number = 0_u64;
        window.run(Seed(3), &mut |_, _, key, _| {
            number += 1;
            key.extend(number.to_le_bytes());
            Ok(())
        })?;
        Ok(())
    }
}

impl DumpSink for Passed {
    fn dump(&mut self, mut dump: ChainDump) -> Result<()> {
        while dump.advance()? {
            chain_touches(dump.entry().value.unwrap_or_default(), dump.channels())?;
        }
        Ok(())
    }
}

fn start(to: &Collected, parsers: usize, options: PipelineOptions) -> Result<Pipeline> {
    start_with(attributions(to), parsers, options)
}

fn start_with(
    chains: Vec<Attribution>,
    parsers: usize,
    options: PipelineOptions,
) -> Result<Pipeline> {
    let parsers = (0..parsers).map(|_| -> Box<dyn Parser> { Box::new(Parse) }).collect();
    let counted: Box<dyn Sink> = Box::new(Counted(Arc::default()));
    let columns = vec![Column::new("count", Aggregate::Count)];
    let plain = vec![(Summary::new("plain", columns).windows(1000, 0), counted)];
    let options = PipelineOptions { chains, sources: 1, ..options };
    Pipeline::start(&fields(), parsers, plain, options)
}

/// Pushes events in batches whose sizes follow from `seed`; positions count events.
fn push(input: &Input, events: &[Event], from: usize, seed: u64) -> Result<()> {
    let random = SeededRandom::new(seed);
    let mut rest = events;
    let mut position = from as u64;
    while !rest.is_empty() {
        let (some, others) = rest.split_at((below(&random, 20) as usize).min(rest.len()));
        let mut batch = input.batch()?;
        some.iter().for_each(|event| batch.push(&event.frame()));
        position += some.len() as u64;
        input.push(batch, Some((0, position.into())))?;
        rest = others;
    }
    Ok(())
}

mod naive {
    //! One loop over all events, with every touch of a user in a list.

    use super::*;

    /// A touch: time, channel as text, and place.
    type Seen = (i64, String, i64);

    /// The state of one definition.
    #[derive(Default)]
    struct State {
        /// All touches of users that arrived.
        users: BTreeMap<String, Vec<Seen>>,
        stats: ChainsStats,
        period: Option<i64>,
    }

    /// A credit: model, touch if there is one, credit, value, number of the touch, touches.
    type Given = (String, Option<Seen>, i64, Option<i64>, i64, i64);

    pub(super) fn results(events: &[Event]) -> (Got, Vec<ChainsStats>) {
        let (mut got, mut stats) = (Got::default(), Vec::new());
        for (i, chains) in definitions().iter().enumerate() {
            let mut state = State::default();
            let mut now = i64::MIN;
            for event in events {
                now = now.max(event.time);
                dump_if_due(i, chains, &mut state, now, &mut got);
                take(i, chains, &mut state, now, event, &mut got);
            }
            if chains.dump_ms.is_some() && !events.is_empty() {
                dump(i, chains, &mut state, now, &mut got);
            }
            stats.push(state.stats);
        }
        (got, stats)
    }

    fn dump_if_due(i: usize, chains: &Chains, state: &mut State, now: i64, got: &mut Got) {
        let Some(dump_ms) = chains.dump_ms else { return };
        let period = now.div_euclid(dump_ms);
        if state.period.is_some_and(|before| before < period) {
            dump(i, chains, state, period * dump_ms, got);
        }
        state.period = state.period.max(Some(period));
    }

    fn dump(i: usize, chains: &Chains, state: &mut State, at: i64, got: &mut Got) {
        let oldest = at - chains.lateness_ms - chains.age_ms_max;
        let mut users = BTreeMap::new();
        for (user, touches) in &state.users {
            let young = last(touches, chains).iter().filter(|touch| touch.0 >= oldest);
            let shown = |(time, channel, place): &Seen| match i {
                0 => format!("{time}:{channel}/{place}"),
                1 => format!("{time}:{channel}"),
                _ => format!("{time}:{place}"),
            };
            let young: Vec<String> = young.map(shown).collect();
            if !young.is_empty() {
                users.insert(user.clone(), young.join(" "));
            }
        }
        got.dumps.entry((i, at)).or_default().push(users);
        state.stats.dumps += 1;
    }

    fn last<'a>(touches: &'a [Seen], chains: &Chains) -> &'a [Seen] {
        &touches[touches.len().saturating_sub(chains.touches_max)..]
    }

    fn take(i: usize, chains: &Chains, state: &mut State, now: i64, event: &Event, got: &mut Got) {
        let is_touch = [event.kind != "buy", event.kind == "click", true][i];
        let is_conversion = event.kind == "buy" || (i == 2 && event.kind == "click");
        if !is_touch && !is_conversion {
            return;
        }
        if event.user.is_empty() {
            state.stats.no_user += 1;
            return;
        }
        let touches = state.users.entry(event.user.clone()).or_default();
        if is_touch {
            if event.time < now - chains.lateness_ms - chains.age_ms_max {
                state.stats.late += 1;
            } else {
                touches.push((event.time, event.channel.clone(), event.place));
                state.stats.touches += 1;
            }
        }
        if !is_conversion {
            return;
        }
        if event.time < now - chains.lateness_ms {
            state.stats.late += 1;
            return;
        }
        let usable = event.time - chains.age_ms_max..=event.time;
        let mut used: Vec<Seen> = last(touches, chains).to_vec();
        used.retain(|touch| usable.contains(&touch.0));
        used.sort_by_key(|touch| touch.0);
        state.stats.conversions += 1;
        state.stats.direct += u64::from(used.is_empty());
        if chains.restarts {
            touches.clear();
        }
        for model in &chains.models {
            let value = match i {
                0 => event.amount,
                1 => None,
                _ => Some(event.place),
            };
            credits(model.name(), &used, value).into_iter().for_each(|credit| {
                add(i, chains, event, credit, got);
            });
        }
    }

    fn credits(model: &str, touches: &[Seen], value: Option<i64>) -> Vec<Given> {
        let count = touches.len() as i64;
        if touches.is_empty() {
            return vec![(model.into(), None, CREDIT_WHOLE, value, 0, 0)];
        }
        let parts: Vec<u128> = match model {
            "first-touch" => (0..count).map(|i| u128::from(i == 0)).collect(),
            "last-touch" => (0..count).map(|i| u128::from(i == count - 1)).collect(),
            "linear" => vec![1; touches.len()],
            _ => {
                let newest = touches.last().unwrap().0;
                touches.iter().map(|touch| decayed((newest - touch.0) as u128)).collect()
            }
        };
        let credits = divided(i128::from(CREDIT_WHOLE), &parts);
        let values = value.map(|value| divided(value.into(), &parts));
        let given = |i: usize| {
            let value = values.as_ref().map(|values| values[i]);
            let touch = Some(touches[i].clone());
            (model.to_owned(), touch, credits[i], value, i as i64 + 1, count)
        };
        (0..touches.len()).filter(|i| parts[*i] > 0).map(given).collect()
    }

    /// 2^62 halved for each half-life, with square roots of the half for the bits of its fraction.
    fn decayed(age: u128) -> u128 {
        let half_life = HALF_LIFE_MS as u128;
        let mut fraction = (age % half_life) * (1 << 32) / half_life;
        let (mut part, mut root) = (1_u128 << 62, 1_u128 << 63);
        for _ in 0..32 {
            root = (root << 64).isqrt();
            fraction *= 2;
            if fraction >= 1 << 32 {
                fraction -= 1 << 32;
                part = part * root / (1 << 64);
            }
        }
        part >> (age / half_life).min(100)
    }

    /// Gives what is left over one by one to the largest fraction that has got nothing, the last of equal ones.
    fn divided(whole: i128, parts: &[u128]) -> Vec<i64> {
        let total: u128 = parts.iter().sum();
        let size = whole.unsigned_abs();
        let mut shares: Vec<u128> = parts.iter().map(|part| size * part / total).collect();
        let mut fractions: Vec<Option<u128>> =
            parts.iter().map(|part| Some(size * part % total)).collect();
        while shares.iter().sum::<u128>() < size {
            let largest = fractions.iter().max().unwrap().unwrap();
            let i = fractions.iter().rposition(|fraction| *fraction == Some(largest)).unwrap();
            shares[i] += 1;
            fractions[i] = None;
        }
        shares.iter().map(|share| (*share as i128 * whole.signum()) as i64).collect()
    }

    fn add(i: usize, chains: &Chains, event: &Event, given: Given, got: &mut Got) {
        let (model, touch, credit, value, number, touches) = given;
        let age = touch.as_ref().map_or(0, |touch| event.time - touch.0);
        // A credit has the channel of the touch, and the other fields of the conversion.
        let (mut channel, mut place) = (event.channel.clone(), event.place.to_string());
        if chains.channel.contains(&CHANNEL) {
            channel = touch.as_ref().map_or(String::new(), |touch| touch.1.clone());
        }
        if chains.channel.contains(&PLACE) {
            place = touch.as_ref().map_or(String::new(), |touch| touch.2.to_string());
        }
        let row = [credit, value.unwrap_or(0), age, number, touches, event.amount.unwrap_or(0), 1];
        let mut sum = |place, group: String| {
            let groups = got.results.entry(place).or_default();
            let sums = groups.entry(group).or_insert_with(|| vec![0; row.len()]);
            sums.iter_mut().zip(row).for_each(|(sum, number)| *sum += number);
        };
        sum((i, 0, None), format!("{model}/{channel}/{place}"));
        if touches > 0 {
            let window = event.time.div_euclid(333) * 333;
            sum((i, 1, Some(window)), format!("{model}/{channel}/{}", event.user));
        }
    }
}

/// Returns the counts of all chains that a twin has, too.
fn counts(stats: &[ChainsStats]) -> Vec<ChainsStats> {
    let count = |stats: &ChainsStats| ChainsStats {
        users: 0,
        bytes: 0,
        summaries: Vec::new(),
        ..stats.clone()
    };
    stats.iter().map(count).collect()
}

#[track_caller]
fn check(events: &[Event], parsers: usize, workers: usize) {
    let (expected, expected_counts) = naive::results(events);
    let collected = Collected::default();
    let options = PipelineOptions { workers, batches: 5, ..PipelineOptions::default() };
    let pipeline = start(&collected, parsers, options).unwrap();
    push(&pipeline.input(), events, 0, 7).unwrap();
    let stats = pipeline.finish().unwrap();
    assert_eq!(counts(&stats.chains), expected_counts);
    let got = collected.0.lock().unwrap();
    assert_eq!(got.dumps, expected.dumps);
    assert_eq!(got.results.keys().collect::<Vec<_>>(), expected.results.keys().collect::<Vec<_>>());
    for (place, groups) in &expected.results {
        assert_eq!(got.results[place], *groups, "{place:?}");
    }
    sums_are_whole(&got.results, &stats);
}

/// For each model, the credits of all conversions have the number of conversions as their sum.
fn sums_are_whole(results: &Results, stats: &Stats) {
    for (i, chains) in definitions().iter().enumerate() {
        let Some(groups) = results.get(&(i, 0, None)) else { continue };
        for model in &chains.models {
            let of_model = |group: &&String| group.starts_with(&format!("{}/", model.name()));
            let sum: i64 = groups.keys().filter(of_model).map(|group| groups[group][0]).sum();
            assert_eq!(sum, stats.chains[i].conversions as i64 * CREDIT_WHOLE, "{}", model.name());
        }
    }
}

#[test]
fn credits_and_dumps_are_those_of_a_single_thread_with_any_number_of_threads() {
    for (seed, parsers, workers) in [(1, 1, 1), (2, 3, 2), (3, 1, 3), (4, 4, 4), (5, 2, 9)] {
        check(&stream(seed, 3000), parsers, workers);
    }
    check(&[], 2, 2);
}

/// Stops at all kinds of moments, starts again with the checkpoint, and compares with a run without a stop.
#[test]
fn chains_continue_exactly_where_their_checkpoint_was() {
    for (seed, at) in [(11, 0), (12, 1), (13, 900), (14, 2000)] {
        let events = stream(seed, 2000);
        let (expected, expected_counts) = naive::results(&events);
        let collected = Collected::default();
        let options = |checkpoint, workers| PipelineOptions {
            workers,
            checkpoint,
            ..PipelineOptions::default()
        };
        let first = start(&collected, 2, options(None, 3)).unwrap();
        push(&first.input(), &events[..at], 0, seed).unwrap();
        let bytes = first.checkpoint().unwrap().to_bytes();
        let before = collected.0.lock().unwrap().clone();
        // These are lost, and come again.
        push(&first.input(), &events[at..(at + 50).min(events.len())], at, seed).unwrap();
        first.stop().unwrap();
        *collected.0.lock().unwrap() = before;

        let checkpoint = Checkpoint::from_bytes(&bytes).unwrap();
        assert_eq!(Checkpoint::from_bytes(&checkpoint.to_bytes()).unwrap(), checkpoint);
        let second = start(&collected, 3, options(Some(checkpoint), 2)).unwrap();
        push(&second.input(), &events[at..], at, seed).unwrap();
        let stats = second.finish().unwrap();
        assert_eq!(counts(&stats.chains), expected_counts);
        assert_eq!(*collected.0.lock().unwrap(), expected);
    }
}

/// States of versions 1 and 2, which have no clocks of sources, no events that are held, no sums that overflow, and no windows that
/// have ended.
#[test]
fn checkpoints_of_older_versions_are_read() {
    let run = |checkpoint| {
        let sink: Box<dyn Sink> = Box::new(Counted(Arc::default()));
        let columns = vec![Column::new("count", Aggregate::Count)];
        let options = PipelineOptions { checkpoint, sources: 1, ..PipelineOptions::default() };
        let plain = vec![(Summary::new("plain", columns), sink)];
        Pipeline::start(&fields(), vec![Box::new(Parse)], plain, options).unwrap()
    };
    let first = run(None);
    push(&first.input(), &stream(1, 100), 0, 1).unwrap();
    let newest = first.checkpoint().unwrap();
    first.stop().unwrap();
    for version in [1, 2] {
        let mut older = newest.clone();
        older.version = version;
        // The clock, 4 bytes, and the counts. Behind these, the newest version has the number of events that are held.
        let counts = &newest.head[40..newest.head.len() - 1];
        older.head = [&newest.head[..9], &[0; 4], counts].concat();
        // The counts of the summary are a byte each; the last one is that of sums that overflow.
        older.summaries[0].remove(5);
        // The number of windows that have ended.
        assert_eq!(older.summaries[0].pop(), Some(0));
        let bytes = older.to_bytes();
        assert_eq!(bytes[4], version);
        let second = run(Some(Checkpoint::from_bytes(&bytes).unwrap()));
        push(&second.input(), &stream(2, 50), 100, 1).unwrap();
        assert_eq!(second.finish().unwrap().summaries[0].events, 150);
    }
}

#[test]
fn forged_states_of_chains_are_errors_and_never_panics() {
    let collected = Collected::default();
    let pipeline = start(&collected, 1, PipelineOptions::default()).unwrap();
    push(&pipeline.input(), &stream(3, 40), 0, 1).unwrap();
    let checkpoint = pipeline.checkpoint().unwrap();
    let begin = |checkpoint| {
        let options =
            PipelineOptions { checkpoint: Some(checkpoint), ..PipelineOptions::default() };
        let mut chains = attributions(&collected);
        for one in &mut chains {
            one.summaries.iter_mut().for_each(|(_, sink)| *sink = Box::new(Passed));
            one.dump = Some(Box::new(Passed));
        }
        start_with(chains, 1, options)
    };
    begin(checkpoint.clone()).unwrap();
    let more = stream(4, 20);
    let go_on = |pipeline: Pipeline| {
        push(&pipeline.input(), &more, 40, 1)?;
        pipeline.chains()?;
        pipeline.checkpoint()?;
        pipeline.finish()
    };
    for (i, state) in checkpoint.chains.iter().enumerate() {
        for place in (0..state.len()).step_by(11) {
            let mut forged = checkpoint.clone();
            forged.chains[i][place] ^= 0x81;
            // A panic of a worker is an error of this class.
            let ended = begin(forged).and_then(go_on);
            let is_bug = ended.as_ref().is_err_and(|error| error.class() == ErrorClass::Bug);
            assert!(!is_bug, "chains {i} forged at {place}: {ended:?}");
            let mut cut = checkpoint.clone();
            cut.chains[i].truncate(place);
            assert!(begin(cut).is_err(), "chains {i} cut at {place}");
        }
    }
}

/// A pipeline of one definition whose events are pushed one by one.
struct One {
    pipeline: Pipeline,
    to: Collected,
}

impl One {
    fn new(chains: Chains) -> One {
        One::within(&MemoryBudget::unlimited(), chains)
    }

    /// Starts with memory of a budget.
    fn within(memory: &MemoryBudget, chains: Chains) -> One {
        let to = Collected::default();
        let sink: Box<dyn Sink> = Box::new(Collector { place: (0, 0), to: to.clone() });
        let summaries = vec![(summaries().remove(0), sink)];
        let chains = vec![Attribution { chains, summaries, dump: None }];
        let memory = memory.clone();
        let options = PipelineOptions { chains, memory, ..PipelineOptions::default() };
        let pipeline =
            Pipeline::start(&fields(), vec![Box::new(Parse)], Vec::new(), options).unwrap();
        One { pipeline, to }
    }

    /// Pushes views of other users, one after the other, until the pipeline fails; returns the error and the number of
    /// users.
    fn fail(&self) -> (Error, u64) {
        let input = self.pipeline.input();
        let failed = (0..200_000).find_map(|i| {
            let pushed = input.batch().and_then(|mut batch| {
                batch.push(format!("{i};user{i};view;ads;0;").as_bytes());
                input.push(batch, None)
            });
            pushed.err().map(|error| (error, i))
        });
        failed.expect("so many users need more memory")
    }

    fn push(&self, frame: &str) {
        let input = self.pipeline.input();
        let mut batch = input.batch().unwrap();
        batch.push(frame.as_bytes());
        input.push(batch, None).unwrap();
    }

    fn touch(&self, time: i64, channel: &str) {
        self.push(&format!("{time};eve;view;{channel};0;"));
    }

    fn buy(&self, time: i64) {
        self.push(&format!("{time};eve;buy;;0;60"));
    }

    fn chain(&self) -> Option<String> {
        read(self.pipeline.chains().unwrap().remove(0)).remove("eve")
    }

    /// Returns the credits by channel, as `mail 500000`.
    fn end(self) -> (Vec<String>, ChainsStats) {
        let stats = self.pipeline.finish().unwrap().chains.remove(0);
        let got = self.to.0.lock().unwrap();
        let groups = got.results.get(&(0, 0, None)).cloned().unwrap_or_default();
        let shown = |(group, sums): (String, Vec<i64>)| {
            format!("{} {}", group.split('/').nth(1).unwrap(), sums[0])
        };
        (groups.into_iter().map(shown).collect(), stats)
    }
}

/// Chains of views that share out purchases equally.
fn linear(age_ms_max: i64, touches_max: usize, lateness_ms: i64) -> Chains {
    Chains {
        touch: is(&["view"]),
        conversion: is(&["buy"]),
        age_ms_max,
        touches_max,
        lateness_ms,
        models: vec![Arc::new(Linear)],
        ..Chains::new("linear", USER, vec![CHANNEL])
    }
}

#[test]
fn a_touch_counts_up_to_its_age_and_not_a_millisecond_longer() {
    let one = One::new(linear(100, 10, 0));
    one.touch(0, "old");
    one.touch(1, "edge");
    one.touch(101, "now");
    one.buy(101);
    // Later than the conversion, though it arrives now.
    one.touch(102, "after");
    let (credits, stats) = one.end();
    assert_eq!(credits, ["edge 500000", "now 500000"]);
    assert_eq!((stats.touches, stats.conversions, stats.late), (4, 1, 0));
}

#[test]
fn a_chain_has_the_last_touches_that_arrived() {
    let one = One::new(linear(100, 3, 0));
    for (time, channel) in [(10, "a"), (30, "b"), (20, "c"), (40, "d")] {
        one.touch(time, channel);
    }
    assert_eq!(one.chain().as_deref(), Some("30:b 20:c 40:d"));
    one.buy(35);
    one.buy(40);
    let (credits, stats) = one.end();
    // The first conversion is late, since the clock is at 40.
    assert_eq!(credits, ["b 333333", "c 333333", "d 333334"]);
    assert_eq!((stats.conversions, stats.late), (1, 1));
}

#[test]
fn a_late_conversion_sees_the_touches_before_it_and_one_that_is_later_is_counted() {
    let one = One::new(linear(100, 10, 50));
    one.touch(0, "a");
    one.touch(149, "b");
    // 99 is at the edge, and sees a touch that is 99 old; 98 is later than allowed.
    one.buy(99);
    one.buy(98);
    // As old as a conversion at the edge can use, and a millisecond older.
    one.touch(-1, "c");
    one.touch(-2, "d");
    let (credits, stats) = one.end();
    assert_eq!(credits, ["a 1000000"]);
    assert_eq!((stats.touches, stats.conversions, stats.late), (3, 1, 2));
}

#[test]
fn a_conversion_without_a_touch_is_credited_to_no_channel() {
    let one = One::new(linear(100, 10, 0));
    one.buy(10);
    one.touch(20, "a");
    one.push("20;;buy;;0;5");
    one.push(&format!("20;{};buy;;0;5", "u".repeat(9000)));
    one.push(&format!("20;eve;view;{};0;5", "c".repeat(9000)));
    let (credits, stats) = one.end();
    assert_eq!(credits, [" 1000000"]);
    assert_eq!((stats.conversions, stats.direct, stats.no_user, stats.too_long), (1, 1, 1, 2));
}

#[test]
fn old_chains_are_removed_and_make_room_for_others() {
    let chains = Chains { memory_bytes: 2 << 20, ..linear(1000, 10, 0) };
    let one = One::new(chains);
    // More users than there is room for, but few at a time.
    for i in 0..20_000 {
        let input = one.pipeline.input();
        let mut batch = input.batch().unwrap();
        for user in 0..5 {
            batch.push(format!("{i};user{user}-{i};view;ads;0;").as_bytes());
        }
        input.push(batch, None).unwrap();
    }
    let stats = one.pipeline.finish().unwrap().chains.remove(0);
    assert_eq!(stats.touches, 100_000);
    assert!(stats.users <= 2 * 5 * 1001 && stats.bytes <= 2 << 20, "{stats:?}");
}

#[test]
fn memory_that_is_exhausted_is_an_error_that_says_so() {
    let chains = Chains { memory_bytes: 1 << 20, ..linear(1_000_000, 10, 0) };
    let one = One::new(chains);
    let message = one.fail().0.to_string();
    let expected = "memory of chains is 1048576 bytes in the chains \"linear\", all in use by ";
    assert!(message.starts_with(expected), "{message}");
    assert!(
        message.ends_with("expected more, or chains with fewer or younger touches"),
        "{message}"
    );
    assert!(one.pipeline.finish().is_err());
}

/// Chains that may have more memory by themselves have no more than the pipeline has.
#[test]
fn chains_are_in_the_memory_of_the_pipeline() {
    let memory = MemoryBudget::new(3 << 20);
    let chains = || linear(1_000_000, 10, 0);
    let (first, second) = (One::within(&memory, chains()), One::within(&memory, chains()));
    first.touch(0, "ads");
    first.buy(0);
    first.chain();
    second.chain();
    let stats = [&first, &second].map(|one| one.pipeline.stats().chains.remove(0));
    let groups: u64 = stats[0].summaries.iter().map(|summary| summary.open_bytes).sum();
    let bytes: u64 = stats.iter().map(|stats| stats.bytes).sum();
    assert!(groups > 0 && stats.iter().all(|stats| stats.bytes > 0), "{stats:?}");
    // Groups are reserved in steps.
    assert!((bytes + groups..bytes + groups + (128 << 10)).contains(&memory.reserved()));

    let (error, users) = second.fail();
    let message = error.to_string();
    let expected = "memory of groups and chains is 3145728 bytes, of which ";
    assert!(message.starts_with(expected) && users > 5000, "{message}");
    assert!(message.contains("by the chains \"linear\" of "), "{message}");
    assert!(memory.reserved() <= 3 << 20 && second.pipeline.finish().is_err());
    // The memory of a pipeline that has ended is free for others, and theirs goes on.
    assert_eq!(first.chain().as_deref(), Some("0:ads"));
    let third = One::within(&memory, chains());
    third.touch(0, "mail");
    assert_eq!(third.chain().as_deref(), Some("0:mail"));
    third.end();
    first.end();
    assert_eq!(memory.reserved(), 0);
}

/// The groups of credits get what chains leave; events without room for a group are counted.
#[test]
fn groups_have_the_memory_that_chains_leave() {
    let memory = MemoryBudget::new(1 << 20);
    let one = One::within(&memory, linear(1_000_000, 10, 0));
    one.touch(0, "ads");
    one.chain();
    let others = memory.reserve((1 << 20) - memory.reserved()).unwrap();
    one.buy(0);
    let (credits, stats) = one.end();
    assert!(credits.is_empty(), "{credits:?}");
    assert_eq!((stats.conversions, stats.summaries[0].no_group), (1, 1));
    drop(others);
    assert_eq!(memory.reserved(), 0);
}

/// Without the memory for empty chains, a pipeline does not start, and says why.
#[test]
fn a_pipeline_without_memory_for_its_chains_does_not_start() {
    let memory = MemoryBudget::new(10_000);
    let dump = None;
    let chains = vec![Attribution { chains: linear(1000, 10, 0), summaries: Vec::new(), dump }];
    let options = PipelineOptions { memory: memory.clone(), ..PipelineOptions::default() };
    let refused = start_with(chains, 1, options).unwrap_err().to_string();
    assert!(refused.starts_with("memory of groups and chains is 10000 bytes"), "{refused}");
    assert_eq!(memory.reserved(), 0);
}

/// Gives each touch the part that is its channel as a number, or too few parts.
#[derive(Debug)]
struct ByChannel {
    forgets: bool,
}

impl Model for ByChannel {
    fn name(&self) -> &str {
        "by-channel"
    }

    fn parts(&self, conversion: &Conversion, touches: &[Touch<'_>]) -> Vec<u64> {
        assert_eq!(conversion.value, Some(60));
        let part = |touch: &Touch<'_>| match touch.channel {
            [Value::Text(text)] => std::str::from_utf8(text).unwrap().parse().unwrap(),
            other => panic!("{other:?}"),
        };
        touches.iter().skip(usize::from(self.forgets)).map(part).collect()
    }
}

#[test]
fn models_of_others_see_touches_and_conversions() {
    let with = |forgets| {
        let models: Vec<Arc<dyn Model>> = vec![Arc::new(ByChannel { forgets })];
        One::new(Chains { models, value: Some(AMOUNT), ..linear(100, 10, 0) })
    };
    let one = with(false);
    for (time, channel) in [(1, "1"), (2, "3"), (3, "0")] {
        one.touch(time, channel);
    }
    one.buy(4);
    assert_eq!(one.end().0, ["1 250000", "3 750000"]);
    // All parts are 0: no touch is credited, and the sum is still the whole.
    let one = with(false);
    one.touch(1, "0");
    one.buy(4);
    assert_eq!(one.end().0, [" 1000000"]);
    let one = with(true);
    one.touch(1, "1");
    one.buy(4);
    let error = one.pipeline.finish().unwrap_err().to_string();
    assert!(
        error.contains("0 of the model \"by-channel\"") && error.contains("1, one a touch"),
        "{error}"
    );
}

#[test]
fn chains_are_read_while_the_pipeline_goes_on() {
    let one = One::new(linear(100, 10, 0));
    one.touch(1, "a");
    let dump = one.pipeline.chains().unwrap().remove(0);
    one.touch(2, "b");
    assert_eq!(one.chain().as_deref(), Some("1:a 2:b"));
    assert_eq!((dump.name(), dump.at_ms(), dump.stats().touches), ("linear", 1, 1));
    let summary = dump.summary();
    assert!(summary.entries_max == 1 && summary.values.min == 0);
    assert_eq!(read(dump), BTreeMap::from([("eve".into(), "1:a".into())]));
}

/// All divisions of small wholes by small parts.
#[test]
fn shares_have_the_whole_as_their_sum_and_are_fair() {
    for whole in -9..=14 {
        for code in 0..4 * 4 * 4 * 4 {
            let parts: Vec<u64> = (0..4).map(|i| code >> (2 * i) & 3).collect();
            let total: u64 = parts.iter().sum();
            let Some(shares) = share(whole, &parts) else {
                assert_eq!(total, 0);
                continue;
            };
            assert_eq!(shares.iter().sum::<i64>(), whole, "{parts:?}");
            for (i, part) in parts.iter().enumerate() {
                let error = shares[i] * total as i64 - whole * *part as i64;
                assert!(error.abs() < total as i64, "{whole} {parts:?} {shares:?}");
                assert!(*part > 0 || shares[i] == 0);
                for (j, other) in parts.iter().enumerate() {
                    let (share, of_other) = (shares[i].abs(), shares[j].abs());
                    assert!(part <= other || share >= of_other, "{whole} {parts:?} {shares:?}");
                    assert!(part != other || i > j || share <= of_other, "the later one gets more");
                }
            }
        }
    }
    assert_eq!(share(i64::MIN, &[u64::MAX, u64::MAX]), Some(vec![i64::MIN / 2; 2]));
    assert_eq!(share(i64::MAX, &[0, u64::MAX]), Some(vec![0, i64::MAX]));
    assert_eq!(share(7, &[]), None);
}

fn touches(times: &[i64]) -> Vec<Touch<'static>> {
    times.iter().map(|time| Touch { time_ms: *time, channel: &[] }).collect()
}

#[test]
fn each_model_gives_exactly_the_whole() {
    let random = SeededRandom::new(5);
    let conversion = Conversion { time_ms: 0, value: None };
    for round in 0..300 {
        let mut times: Vec<i64> =
            (0..=below(&random, 40)).map(|_| -(below(&random, 1 << (round % 40)) as i64)).collect();
        times.sort_unstable();
        let touches = touches(&times);
        for model in models() {
            let parts = model.parts(&conversion, &touches);
            let shares = share(CREDIT_WHOLE, &parts).unwrap();
            assert_eq!(shares.iter().sum::<i64>(), CREDIT_WHOLE);
            let (least, most) = (*shares.iter().min().unwrap(), *shares.iter().max().unwrap());
            match model.name() {
                "first-touch" => assert_eq!(shares[0], CREDIT_WHOLE),
                "last-touch" => assert_eq!(shares[times.len() - 1], CREDIT_WHOLE),
                "linear" => assert!(most - least <= 1, "{shares:?}"),
                _ => assert!(shares.is_sorted(), "the newer, the more: {times:?} {shares:?}"),
            }
        }
    }
}

#[test]
fn a_credit_halves_with_each_half_life() {
    let conversion = Conversion { time_ms: 0, value: None };
    for half_life in [1, 2, 3, 7, 1000, 604_800_000, 1 << 53] {
        let decay = TimeDecay::new(half_life).unwrap();
        let part = |age: i64| decay.parts(&conversion, &touches(&[-age, 0]))[0];
        for lives in 0..60.min((1_i64 << 53) / half_life) {
            assert_eq!(part(lives * half_life), (1 << 62) >> lives, "{half_life} {lives}");
        }
        for i in 0..200_i64 {
            // Up to three half-lives.
            let age = i128::from(half_life) * i128::from(i) * 3 / 200;
            let exact = (-(age as f64) / half_life as f64).exp2();
            let got = part(age as i64) as f64 / (1_u64 << 62) as f64;
            assert!((got - exact).abs() < 1e-9, "{half_life} {age}: {got} {exact}");
        }
    }
    let ages: Vec<i64> = (0..3000).rev().map(|age| -age).collect();
    let parts = TimeDecay::new(100).unwrap().parts(&conversion, &touches(&ages));
    assert!(parts.windows(2).all(|two| two[0] < two[1]), "strictly more for a newer touch");
    let decay = TimeDecay::new(1).unwrap();
    assert_eq!(decay.parts(&conversion, &touches(&[-63, -62, 0])), [0, 1, 1 << 62]);
    assert_eq!(decay.parts(&conversion, &touches(&[-(1 << 53), 1 << 53])), [0, 1 << 62]);
    for wrong in [0, -1, (1 << 53) + 1] {
        assert!(TimeDecay::new(wrong).unwrap_err().to_string().contains("half-life"));
    }
}

#[test]
fn definitions_of_chains_without_meaning_are_refused() {
    let refused = |change: &dyn Fn(&mut Chains), word: &str| {
        let mut chains = linear(1, 1, 0);
        chains.check(&fields()).unwrap();
        change(&mut chains);
        let error = chains.check(&fields()).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains("the chains \"linear\""), "{error}");
    };
    refused(&|chains| chains.user = 9, "number of a field");
    refused(&|chains| chains.channel = vec![9], "number of a field");
    refused(&|chains| chains.channel.clear(), "number of channel fields");
    refused(&|chains| chains.touch[0].field = 9, "number of a field");
    refused(&|chains| chains.conversion.clear(), "conditions of a conversion");
    refused(&|chains| chains.value = Some(KIND), "a field of integers");
    refused(&|chains| chains.age_ms_max = 0, "age of touches");
    refused(&|chains| chains.touches_max = 0, "number of touches");
    refused(&|chains| chains.touches_max = 4097, "number of touches");
    refused(&|chains| chains.lateness_ms = -1, "lateness");
    refused(&|chains| chains.memory_bytes = 1000, "memory of chains");
    refused(&|chains| chains.dump_ms = Some(0), "time between dumps");
    refused(&|chains| chains.models.clear(), "number of models");
    refused(&|chains| chains.models.push(Arc::new(Linear)), "\"linear\" twice");
    let taken = [fields(), vec![Field::new("credit", FieldKind::Int)]].concat();
    let error = linear(1, 1, 0).check(&taken).unwrap_err().to_string();
    assert!(error.contains("credits have a field of this name"), "{error}");
    // The summaries of credits are checked, too.
    let sink: Box<dyn Sink> = Box::new(Counted(Arc::default()));
    let columns = vec![Column::new("sum", Aggregate::Sum(MODEL))];
    let summaries = vec![(Summary::new("s", columns), sink)];
    let chains = vec![Attribution { chains: linear(1, 1, 0), summaries, dump: None }];
    let options = PipelineOptions { chains, ..PipelineOptions::default() };
    let refused = Pipeline::start(&fields(), vec![Box::new(Parse)], Vec::new(), options);
    assert!(refused.unwrap_err().to_string().contains("the summary \"s\""));
}
