//! Shares out purchases among the clicks that led to them, and checks every result against a naive twin.
//!
//! `attribution [EVENTS [SEED]]`: a generator makes a stream of shop visits over two weeks: users whose activity has a Zipf
//! distribution, sessions that begin with a click in some channel, and events that arrive late. Three parsers and three
//! workers keep the clicks of each user in memory. When a purchase comes, four models share out the credit for it and its
//! price; summaries add that up by day, model and channel. Every night, the chains of all users become a version of a store.
//!
//! Then one loop over all events computes everything again in the simplest way, and all results must be equal: daily
//! counts, credits, prices, and each touch of each user in each version. The last lines are the credits by channel and model.

use hashfold::{
    Result, Store,
    pipeline::{
        Aggregate, Attribution, CREDIT_WHOLE, ChainDump, Chains, Column, DumpSink, Events, Field,
        FieldKind, FirstTouch, LastTouch, Linear, Output, Parser, Pipeline, PipelineOptions, Rule,
        Sink, Stats, Summary, Test, TimeDecay, Value, Window, chain_touches,
    },
    run::Run as _,
    store::UpdateMode,
    work::{Random as _, SeededRandom},
};
use std::{
    collections::{BTreeMap, HashMap},
    env, fs,
    path::PathBuf,
    sync::{Arc, Mutex},
};

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
/// Midnight of the first day: 2026-11-02.
const START_MS: i64 = 20_759 * DAY_MS;
const DAYS: i64 = 14;
/// Allowed lateness of purchases and of windows.
const LATENESS_MS: i64 = HOUR_MS;
const HALF_LIFE_MS: i64 = 2 * DAY_MS;
const CHANNELS: [&str; 5] = ["ads", "mail", "partner", "search", "social"];
const MODELS: [&str; 4] = ["first-touch", "last-touch", "linear", "time-decay"];
/// Folder of the stores.
const FOLDER: &str = "target/attribution";

/// Numbers of fields.
const USER: usize = 0;
const KIND: usize = 1;
const CHANNEL: usize = 2;
const CAMPAIGN: usize = 3;
const CENTS: usize = 4;
/// The fields that credits have beside these.
const MODEL: usize = 5;
const CREDIT: usize = 6;
const CREDIT_VALUE: usize = 7;

/// An event of a shop.
#[derive(Clone, Debug)]
struct Event {
    time_ms: i64,
    arrival_ms: i64,
    user: u64,
    kind: &'static str,
    channel: &'static str,
    campaign: i64,
    cents: i64,
}

/// The two kinds of chains: the clicks of a week; and the last clicks since the purchase before.
struct Kind {
    name: &'static str,
    age_ms: i64,
    touches_max: usize,
    restarts: bool,
}

const KINDS: [Kind; 2] = [
    Kind { name: "week", age_ms: 7 * DAY_MS, touches_max: 20, restarts: false },
    Kind { name: "since-purchase", age_ms: 30 * DAY_MS, touches_max: 5, restarts: true },
];

/// Sums of credits, prices and numbers of credits, by kind of chains, start of the day, model and channel.
type Credits = BTreeMap<(usize, i64, String, String), [i64; 3]>;
/// Events by start of the day and kind.
type Counts = BTreeMap<(i64, String), u64>;
/// The touches of users in the order of arrival, as text.
type Chained = BTreeMap<String, Vec<String>>;

/// All results; dumps by kind of chains, in the order of time.
#[derive(Debug, Default, PartialEq)]
struct Results {
    counts: Counts,
    credits: Credits,
    dumps: [Vec<Chained>; 2],
    /// Touches and conversions of each kind of chains, conversions without a touch, and what is late.
    totals: Vec<[u64; 4]>,
}

mod generator {
    //! Streams that look like those of a shop, the same for the same seed.

    use super::*;

    struct Random(SeededRandom);

    impl Random {
        fn below(&self, end: u64) -> u64 {
            self.0.next_u64() % end
        }

        /// Returns a number from 0 to 1.
        fn unit(&self) -> f64 {
            (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    /// Returns `count` events or a few more, in the order of their arrival.
    pub(super) fn events(count: usize, seed: u64) -> Vec<Event> {
        let random = Random(SeededRandom::new(seed));
        let mut total = 0.0;
        // User i comes in proportion to 1 / (i + 1).
        let sums: Vec<f64> = (0..count.div_ceil(8))
            .map(|i| {
                total += 1.0 / (i + 1) as f64;
                total
            })
            .collect();
        let mut events = Vec::with_capacity(count + 16);
        while events.len() < count {
            let at = random.unit() * total;
            let user = sums.partition_point(|sum| *sum < at) as u64;
            session(&random, user, &mut events);
        }
        events.sort_by_key(|event| event.arrival_ms);
        events
    }

    /// Adds a session: a click that leads into the shop, pages, and sometimes a purchase.
    fn session(random: &Random, user: u64, events: &mut Vec<Event>) {
        let mut time_ms = START_MS + random.below((DAYS * DAY_MS) as u64) as i64;
        let (channel, campaign) = (CHANNELS[random.below(5) as usize], random.below(3) as i64);
        let mut add = |time_ms: i64, kind: &'static str, channel: &'static str, cents: i64| {
            let campaign = if kind == "click" { campaign } else { 0 };
            let arrival_ms = time_ms + delay_ms(random);
            events.push(Event { time_ms, arrival_ms, user, kind, channel, campaign, cents });
        };
        // Some come by themselves.
        if random.below(6) > 0 {
            add(time_ms, "click", channel, 0);
        }
        for _ in 0..random.below(8) {
            time_ms += random.below(5 * MINUTE_MS as u64) as i64;
            add(time_ms, "view", "", 0);
        }
        if random.below(8) == 0 {
            time_ms += random.below(MINUTE_MS as u64) as i64;
            add(time_ms, "buy", "", 100 + random.below(20_000) as i64);
        }
    }

    /// Most events arrive within two seconds, a few after minutes or days.
    fn delay_ms(random: &Random) -> i64 {
        let most = match random.below(1000) {
            0 => 9 * DAY_MS,
            1..20 => 90 * MINUTE_MS,
            _ => 2000,
        };
        random.below(most as u64) as i64
    }
}

mod twin {
    //! One loop over all events, with every touch of each user in a list.

    use super::*;

    type Touch = (i64, &'static str, i64);

    /// Returns the results of all events.
    pub(super) fn results(events: &[Event]) -> Results {
        let mut results = Results::default();
        count(events, &mut results.counts);
        for (number, kind) in KINDS.iter().enumerate() {
            let totals = attribute(events, number, kind, &mut results);
            results.totals.push(totals);
        }
        results
    }

    fn count(events: &[Event], counts: &mut Counts) {
        let mut now = i64::MIN;
        for event in events {
            now = now.max(event.time_ms);
            let day = event.time_ms.div_euclid(DAY_MS);
            if day >= (now - LATENESS_MS).div_euclid(DAY_MS) {
                *counts.entry((day * DAY_MS, event.kind.into())).or_default() += 1;
            }
        }
    }

    fn attribute(events: &[Event], number: usize, kind: &Kind, results: &mut Results) -> [u64; 4] {
        let mut users: HashMap<u64, Vec<Touch>> = HashMap::new();
        let mut now = i64::MIN;
        let mut night = None;
        let [mut touches, mut conversions, mut direct, mut late] = [0; 4];
        for event in events {
            now = now.max(event.time_ms);
            let day = now.div_euclid(DAY_MS);
            if night.is_some_and(|night| night < day) {
                results.dumps[number].push(dump(&users, kind, day * DAY_MS));
            }
            night = Some(day);
            let chain = users.entry(event.user).or_default();
            if event.kind == "click" {
                if event.time_ms < now - LATENESS_MS - kind.age_ms {
                    late += 1;
                } else {
                    chain.push((event.time_ms, event.channel, event.campaign));
                    touches += 1;
                }
            } else if event.kind == "buy" && event.time_ms < now - LATENESS_MS {
                late += 1;
            } else if event.kind == "buy" {
                let used = used(chain, kind, event.time_ms);
                conversions += 1;
                direct += u64::from(used.is_empty());
                credit(event, &used, number, &mut results.credits);
                if kind.restarts {
                    chain.clear();
                }
            }
        }
        results.dumps[number].push(dump(&users, kind, now));
        [touches, conversions, direct, late]
    }

    /// The last touches of a user.
    fn last<'a>(chain: &'a [Touch], kind: &Kind) -> &'a [Touch] {
        &chain[chain.len().saturating_sub(kind.touches_max)..]
    }

    /// The touches that a purchase can be credited to, in the order of time.
    fn used(chain: &[Touch], kind: &Kind, time_ms: i64) -> Vec<Touch> {
        let mut used = last(chain, kind).to_vec();
        used.retain(|touch| (time_ms - kind.age_ms..=time_ms).contains(&touch.0));
        used.sort_by_key(|touch| touch.0);
        used
    }

    fn dump(users: &HashMap<u64, Vec<Touch>>, kind: &Kind, at_ms: i64) -> Chained {
        let oldest_ms = at_ms - LATENESS_MS - kind.age_ms;
        let young = |chain: &[Touch]| -> Vec<String> {
            let young = last(chain, kind).iter().filter(|touch| touch.0 >= oldest_ms);
            young.map(|(time, channel, campaign)| format!("{time} {channel} {campaign}")).collect()
        };
        let all = users.iter().map(|(user, chain)| (format!("u{user}"), young(chain)));
        all.filter(|(_, chain)| !chain.is_empty()).collect()
    }

    fn credit(event: &Event, touches: &[Touch], number: usize, credits: &mut Credits) {
        let day = event.time_ms.div_euclid(DAY_MS) * DAY_MS;
        for model in MODELS {
            let mut add = |channel: &str, credit, cents| {
                let place = (number, day, model.to_owned(), channel.to_owned());
                let sums = credits.entry(place).or_default();
                sums.iter_mut().zip([credit, cents, 1]).for_each(|(sum, more)| *sum += more);
            };
            if touches.is_empty() {
                add("", CREDIT_WHOLE, event.cents);
                continue;
            }
            let parts = parts(model, touches);
            let (shares, cents) = (divide(CREDIT_WHOLE, &parts), divide(event.cents, &parts));
            for i in (0..touches.len()).filter(|i| parts[*i] > 0) {
                add(touches[i].1, shares[i], cents[i]);
            }
        }
    }

    fn parts(model: &str, touches: &[Touch]) -> Vec<u128> {
        let last = touches.len() - 1;
        let part = |i: usize| match model {
            "first-touch" => u128::from(i == 0),
            "last-touch" => u128::from(i == last),
            "linear" => 1,
            _ => decayed((touches[last].0 - touches[i].0) as u128),
        };
        (0..touches.len()).map(part).collect()
    }

    /// 2^62, halved for each half-life; the bits of its fraction stand for square roots of a half.
    fn decayed(age: u128) -> u128 {
        let half_life = HALF_LIFE_MS as u128;
        let mut fraction = ((age % half_life) << 32) / half_life;
        let (mut part, mut root) = (1_u128 << 62, 1_u128 << 63);
        for _ in 0..32 {
            root = (root << 64).isqrt();
            fraction <<= 1;
            if fraction >> 32 == 1 {
                fraction -= 1 << 32;
                part = (part * root) >> 64;
            }
        }
        part >> (age / half_life).min(100)
    }

    /// Rounds down; the units that are left over go to the largest fractions, of equal ones to the last first.
    fn divide(whole: i64, parts: &[u128]) -> Vec<i64> {
        let (whole, total) = (whole as u128, parts.iter().sum::<u128>());
        let mut shares: Vec<u128> = parts.iter().map(|part| whole * part / total).collect();
        let mut order: Vec<usize> = (0..parts.len()).rev().collect();
        order.sort_by_key(|i| std::cmp::Reverse(whole * parts[*i] % total));
        let left = whole - shares.iter().sum::<u128>();
        order.into_iter().take(left as usize).for_each(|i| shares[i] += 1);
        shares.into_iter().map(|share| share as i64).collect()
    }
}

/// Parses `time user kind channel campaign cents`, with tabs.
struct Lines;

impl Parser for Lines {
    fn parse(
        &mut self,
        frame: &[u8],
        events: &mut Events,
    ) -> std::result::Result<(), &'static str> {
        let line = std::str::from_utf8(frame).map_err(|_| "no text")?;
        let parts: Vec<&str> = line.split('\t').collect();
        let [time, user, kind, channel, campaign, cents] = parts[..] else {
            return Err("not six columns");
        };
        let number = |text: &str| text.parse::<i64>().map_err(|_| "no number");
        events.begin();
        events.set(USER, Value::Text(user.as_bytes()));
        events.set(KIND, Value::Text(kind.as_bytes()));
        events.set(CHANNEL, Value::Text(channel.as_bytes()));
        events.set(CAMPAIGN, Value::Int(number(campaign)?));
        events.set(CENTS, Value::Int(number(cents)?));
        events.end(number(time)?);
        Ok(())
    }
}

/// Collects the windows of daily counts.
struct CountSink(Arc<Mutex<Counts>>);

impl Sink for CountSink {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        let day = window.span().map_or(0, |(start, _)| start);
        window.run(hashfold::Seed(0), &mut |group, outputs, key, _| {
            key.extend(text(&group[0]).into_bytes());
            if let Output::Uint(count) = outputs[0] {
                self.0.lock().expect("no panic").insert((day, text(&group[0])), count);
            }
            Ok(())
        })?;
        Ok(())
    }
}

/// Collects the windows of credits of a kind of chains.
struct CreditSink(usize, Arc<Mutex<Credits>>);

impl Sink for CreditSink {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        let day = window.span().map_or(0, |(start, _)| start);
        window.run(hashfold::Seed(0), &mut |group, outputs, key, _| {
            let (model, channel) = (text(&group[0]), text(&group[1]));
            key.extend(format!("{model}/{channel}").into_bytes());
            let number = |output: &Output| match output {
                Output::Int(number) => *number,
                Output::Uint(number) => *number as i64,
                _ => 0,
            };
            let sums = [number(&outputs[0]), number(&outputs[1]), number(&outputs[2])];
            self.1.lock().expect("no panic").insert((self.0, day, model, channel), sums);
            Ok(())
        })?;
        Ok(())
    }
}

/// Makes each dump a version of a store.
struct Versions(PathBuf);

impl DumpSink for Versions {
    fn dump(&mut self, mut dump: ChainDump) -> Result<()> {
        let mut update = Store::open_or_create(&self.0)?.update()?.mode(UpdateMode::Replace);
        update.merge(&mut dump)?;
        update.publish().map(drop)
    }
}

fn text(value: &Value<'_>) -> String {
    match value {
        Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Null => String::new(),
    }
}

fn is(kind: &str) -> Vec<Rule> {
    vec![Rule { field: KIND, test: Test::In(vec![kind.into()]) }]
}

/// The chains of a kind, the daily summary of their credits, and the store of their dumps.
fn attribution(number: usize, credits: &Arc<Mutex<Credits>>) -> Result<Attribution> {
    let kind = &KINDS[number];
    let chains = Chains {
        touch: is("click"),
        conversion: is("buy"),
        value: Some(CENTS),
        age_ms_max: kind.age_ms,
        touches_max: kind.touches_max,
        lateness_ms: LATENESS_MS,
        restarts: kind.restarts,
        models: vec![
            Arc::new(FirstTouch),
            Arc::new(LastTouch),
            Arc::new(Linear),
            Arc::new(TimeDecay::new(HALF_LIFE_MS)?),
        ],
        memory_bytes: 256 << 20, // more is an error, not the end of the process
        dump_ms: Some(DAY_MS),
        ..Chains::new(kind.name, USER, vec![CHANNEL, CAMPAIGN])
    };
    let columns = vec![
        Column::new("credit", Aggregate::Sum(CREDIT)),
        Column::new("cents", Aggregate::Sum(CREDIT_VALUE)),
        Column::new("touches", Aggregate::Count),
    ];
    let summary = Summary::new("credits", columns)
        .group_by(vec![MODEL, CHANNEL])
        .windows(DAY_MS, LATENESS_MS);
    let sink: Box<dyn Sink> = Box::new(CreditSink(number, credits.clone()));
    let dump: Box<dyn DumpSink> = Box::new(Versions(PathBuf::from(FOLDER).join(kind.name)));
    Ok(Attribution { chains, summaries: vec![(summary, sink)], dump: Some(dump) })
}

/// Runs a pipeline over all events.
fn run(events: &[Event]) -> Result<Results> {
    let (counts, credits) = (Arc::<Mutex<Counts>>::default(), Arc::<Mutex<Credits>>::default());
    let names = ["user", "kind", "channel", "campaign", "cents"];
    let kind = |i| if i < CAMPAIGN { FieldKind::Text } else { FieldKind::Int };
    let fields: Vec<Field> =
        names.iter().enumerate().map(|(i, name)| Field::new(name, kind(i))).collect();
    let columns = vec![Column::new("events", Aggregate::Count)];
    let daily = Summary::new("daily", columns).group_by(vec![KIND]).windows(DAY_MS, LATENESS_MS);
    let sink: Box<dyn Sink> = Box::new(CountSink(counts.clone()));
    let chains = (0..KINDS.len()).map(|number| attribution(number, &credits));
    let options = PipelineOptions {
        workers: 3,
        chains: chains.collect::<Result<_>>()?,
        ..PipelineOptions::default()
    };
    let parsers = (0..3).map(|_| -> Box<dyn Parser> { Box::new(Lines) }).collect();
    let pipeline = Pipeline::start(&fields, parsers, vec![(daily, sink)], options)?;
    let input = pipeline.input();
    for some in events.chunks(100) {
        let mut batch = input.batch()?;
        for Event { time_ms, user, kind, channel, campaign, cents, .. } in some {
            let line = format!("{time_ms}\tu{user}\t{kind}\t{channel}\t{campaign}\t{cents}");
            batch.push(line.as_bytes());
        }
        input.push(batch, None)?;
    }
    let stats = pipeline.finish()?;
    let results = Results {
        counts: std::mem::take(&mut *counts.lock().expect("no panic")),
        credits: std::mem::take(&mut *credits.lock().expect("no panic")),
        dumps: [dumps(KINDS[0].name)?, dumps(KINDS[1].name)?],
        totals: totals(&stats),
    };
    Ok(results)
}

fn totals(stats: &Stats) -> Vec<[u64; 4]> {
    let one = |chains: &hashfold::pipeline::ChainsStats| {
        [chains.touches, chains.conversions, chains.direct, chains.late]
    };
    stats.chains.iter().map(one).collect()
}

/// Reads all versions of a store.
fn dumps(name: &str) -> Result<Vec<Chained>> {
    let store = Store::open(PathBuf::from(FOLDER).join(name))?;
    let mut dumps = Vec::new();
    for (number, _) in store.versions()? {
        let mut chains = Chained::new();
        let mut scan = store.version(number)?.scan_all();
        while scan.advance()? {
            let entry = scan.entry();
            let touches = chain_touches(entry.value.unwrap_or_default(), 2)?;
            let shown = |(time, channel): &(i64, Vec<Value<'_>>)| {
                format!("{time} {} {}", text(&channel[0]), text(&channel[1]))
            };
            let user = String::from_utf8_lossy(entry.key).into_owned();
            chains.insert(user, touches.iter().map(shown).collect());
        }
        dumps.push(chains);
    }
    Ok(dumps)
}

/// Prints the credits of the first kind of chains, in conversions, by channel and model.
fn print(credits: &Credits) {
    let mut sums: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for ((_, _, model, channel), [credit, ..]) in credits.iter().filter(|(place, _)| place.0 == 0) {
        *sums.entry((channel.as_str(), model.as_str())).or_default() += credit;
    }
    println!(
        "{:<12}{:>13}{:>13}{:>13}{:>13}",
        "channel", MODELS[0], MODELS[1], MODELS[2], MODELS[3]
    );
    for channel in [""].iter().chain(&CHANNELS) {
        print!("{:<12}", if channel.is_empty() { "(none)" } else { *channel });
        for model in MODELS {
            let credit = sums.get(&(*channel, model)).copied().unwrap_or(0);
            print!("{:>13.2}", credit as f64 / CREDIT_WHOLE as f64);
        }
        println!();
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = env::args().skip(1);
    let count = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let seed = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let _ = fs::remove_dir_all(FOLDER);
    let events = generator::events(count, seed);
    let got = run(&events)?;
    let expected = twin::results(&events);
    assert_eq!(got.totals, expected.totals);
    assert_eq!(got.counts, expected.counts);
    assert_eq!(got.credits, expected.credits);
    for (got, expected) in got.dumps.iter().zip(&expected.dumps) {
        assert_eq!(got.len(), expected.len());
        assert!(got == expected, "a dump differs");
    }
    print(&got.credits);
    let [touches, conversions, direct, late] = got.totals[0];
    println!(
        "{} events, {touches} touches, {conversions} conversions, {direct} of them without a touch, {late} late",
        events.len()
    );
    let dumps: usize = got.dumps.iter().map(Vec::len).sum();
    println!(
        "{} sums and {dumps} dumps are those of the twin",
        got.credits.len() + got.counts.len()
    );
    Ok(())
}
