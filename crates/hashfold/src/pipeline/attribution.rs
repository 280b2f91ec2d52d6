//! Chains of a worker, and the summaries of their credits.

use super::{
    chain_dump::{ChainDump, DumpSink},
    chain_table::{ChainTable, Credit},
    chains::{CREDIT_FIELDS, Chains},
    definition::{Field, Summary},
    events::{Events, Value},
    owned::Owned,
    stats::ChainsStats,
    window::Sink,
    windows::Windows,
};
use crate::{
    codec::{Decoder, put_bytes, put_varint},
    error::{Error, Result},
    work::MemoryBudget,
};
use std::fmt;

/// Chains of a pipeline, the summaries of their credits, and the receiver of dumps.
pub struct Attribution {
    /// The chains.
    pub chains: Chains,
    /// Summaries of [`Chains::credit_fields`], and the receivers of their windows. A credit has the time of its conversion.
    pub summaries: Vec<(Summary, Box<dyn Sink>)>,
    /// The receiver of dumps. Dumps come if [`Chains::dump_ms`] is set, in its periods and when all windows are ended.
    pub dump: Option<Box<dyn DumpSink>>,
}

impl fmt::Debug for Attribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attribution({:?}, {} summaries)", self.chains, self.summaries.len())
    }
}

impl Attribution {
    /// Checks all definitions against the fields of the events.
    pub(super) fn check(&self, fields: &[Field]) -> Result<()> {
        self.chains.check(fields)?;
        let fields = self.chains.credit_fields(fields);
        self.summaries.iter().try_for_each(|(summary, _)| summary.check(&fields))
    }
}

/// Chains of a worker.
pub(super) struct OwnedChains {
    /// Number of the chains in the pipeline.
    pub(super) number: usize,
    table: ChainTable,
    credits: Credits,
    sink: Option<Box<dyn DumpSink>>,
}

impl OwnedChains {
    /// Makes chains without users; `seed` is unpredictable. The chains and the groups of their summaries are in the budget.
    ///
    /// # Errors
    /// Those of [`ChainTable::new`].
    pub(super) fn new(
        number: usize,
        attribution: Attribution,
        fields: &[Field],
        (seed, memory): (u64, &MemoryBudget),
    ) -> Result<OwnedChains> {
        let Attribution { chains, summaries, dump } = attribution;
        let credits = Credits::new(&chains, summaries, fields, (seed, memory));
        let table = ChainTable::new(chains, seed, memory)?;
        Ok(OwnedChains { number, table, credits, sink: dump })
    }

    /// Whether an event is a touch or a conversion.
    pub(super) fn takes(&self, events: &Events, event: usize) -> bool {
        self.table.chains.is_touch(events, event) || self.table.chains.is_conversion(events, event)
    }

    /// Takes an event that is a touch, a conversion or both. `now_ms` is the clock of the stream, with this event.
    pub(super) fn take(&mut self, now_ms: i64, events: &Events, event: usize) -> Result<()> {
        let OwnedChains { table, credits, .. } = self;
        if !table.set_user(events, event) {
            return Ok(());
        }
        if table.chains.is_touch(events, event) {
            table.append(now_ms, events, event)?;
        }
        if table.chains.is_conversion(events, event) {
            let mut give = |credit: Credit<'_>| credits.add(now_ms, events, event, &credit);
            table.convert(now_ms, events, event, &mut give)?;
        }
        Ok(())
    }

    /// Makes a dump if one is due. Called whenever the clock has moved, before the event that moved it is taken, so
    /// that dumps do not depend on batches.
    pub(super) fn tick(&mut self, now_ms: i64) -> Result<()> {
        match self.table.due(now_ms) {
            Some(at_ms) => self.give_dump(at_ms),
            None => Ok(()),
        }
    }

    /// Lets windows end, and removes old chains.
    pub(super) fn advance(&mut self, now_ms: i64) -> Result<()> {
        self.table.advance(now_ms)?;
        self.credits.summaries.iter_mut().for_each(|owned| owned.windows.advance(now_ms));
        Ok(())
    }

    /// Makes a dump if there are any, when all windows are ended.
    pub(super) fn dump_at_end(&mut self, now_ms: Option<i64>) -> Result<()> {
        match now_ms.filter(|_| self.table.chains.dump_ms.is_some()) {
            Some(now_ms) => self.give_dump(now_ms),
            None => Ok(()),
        }
    }

    fn give_dump(&mut self, at_ms: i64) -> Result<()> {
        let Some(sink) = &mut self.sink else { return Ok(()) };
        sink.dump(self.table.dump(at_ms)?)?;
        self.table.dumped();
        Ok(())
    }

    /// Returns the chains at this moment.
    pub(super) fn dump(&self, now_ms: Option<i64>) -> Result<ChainDump> {
        // Without an event, there is no touch.
        self.table.dump(now_ms.unwrap_or(0))
    }

    /// Returns the summaries of credits.
    pub(super) fn summaries(&mut self) -> &mut [Owned] {
        &mut self.credits.summaries
    }

    /// Returns the counts so far.
    pub(super) fn stats(&self) -> ChainsStats {
        let summaries = self.credits.summaries.iter().map(|owned| owned.windows.stats()).collect();
        ChainsStats { summaries, ..self.table.stats() }
    }

    /// Returns the state for a checkpoint.
    pub(super) fn state(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.table.put(&mut out)?;
        put_varint(&mut out, self.credits.summaries.len() as u64);
        self.credits.summaries.iter().for_each(|owned| put_bytes(&mut out, &owned.state()));
        Ok(out)
    }

    /// Reads the state of a checkpoint.
    pub(super) fn restore(&mut self, state: &[u8], version: u8) -> Result<()> {
        let mut fields = Decoder::new(state);
        self.table.restore(&mut fields)?;
        let (expected, got) = (self.credits.summaries.len() as u64, fields.varint()?);
        if got != expected {
            return Err(Error::field("summaries of chains", expected.to_string(), got));
        }
        for owned in &mut self.credits.summaries {
            owned.windows.restore(&mut Decoder::new(fields.sized_bytes()?), version)?;
        }
        fields.end()
    }
}

/// The summaries of credits, and a credit as an event for them.
struct Credits {
    summaries: Vec<Owned>,
    /// Numbers of the fields of events that a summary uses, without those of the channel.
    used: Vec<usize>,
    /// Numbers of the fields of the channel.
    channel: Vec<usize>,
    /// Number of fields of the events, which is the number of the first field that only credits have.
    width: usize,
    /// One credit.
    credit: Events,
}

impl Credits {
    fn new(
        chains: &Chains,
        summaries: Vec<(Summary, Box<dyn Sink>)>,
        fields: &[Field],
        (seed, groups): (u64, &MemoryBudget),
    ) -> Credits {
        let width = fields.len();
        let is_used = |field: &usize| {
            !chains.channel.contains(field)
                && summaries.iter().any(|(summary, _)| summary.uses(*field))
        };
        let used = (0..width).filter(is_used).collect();
        let credit_fields = chains.credit_fields(fields);
        let owned = |(number, (summary, sink))| Owned {
            number,
            windows: Windows::new(summary, &credit_fields, seed, groups),
            sink,
        };
        Credits {
            used,
            channel: chains.channel.clone(),
            width,
            credit: Events::new(width + CREDIT_FIELDS.len()),
            summaries: summaries.into_iter().enumerate().map(owned).collect(),
        }
    }

    /// Adds a credit for an event, a conversion, to the summaries that take it.
    fn add(&mut self, now_ms: i64, events: &Events, event: usize, credit: &Credit<'_>) {
        let time_ms = events.times()[event];
        self.credit.clear();
        self.credit.begin();
        for field in &self.used {
            self.credit.set(*field, events.get(event, *field));
        }
        let (mut age, mut number) = (Value::Null, Value::Null);
        if let Some((place, touch)) = credit.touch {
            for (field, value) in self.channel.iter().zip(touch.channel) {
                let is_empty = *value == Value::Text(b"");
                self.credit.set(*field, if is_empty { Value::Null } else { *value });
            }
            age = Value::Int(time_ms - touch.time_ms);
            number = Value::Int(place as i64);
        }
        let value = credit.value.map_or(Value::Null, Value::Int);
        let touches = Value::Int(credit.touches as i64);
        let model = Value::Text(credit.model.as_bytes());
        let added = [model, Value::Int(credit.credit), value, age, number, touches];
        for (i, value) in added.into_iter().enumerate() {
            self.credit.set(self.width + i, value);
        }
        self.credit.end(time_ms);
        for Owned { windows, .. } in &mut self.summaries {
            if windows.summary.takes(&self.credit, 0) {
                windows.add(now_ms, &self.credit, 0);
            }
        }
    }
}
