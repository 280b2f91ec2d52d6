//! Chains in memory: touches are appended, conversions read, and what is too old is removed.

use super::{
    chain_dump::ChainDump,
    chains::Chains,
    definition::{GROUP_BYTES_MAX, in_definition},
    events::{Events, Value},
    model::{CREDIT_WHOLE, Conversion, Model, Touch, share},
    stats::ChainsStats,
    touch::{self, Record},
    windows::{decode_group, put_group},
};
use crate::{
    codec::{Decoder, put_bytes, put_varint},
    error::{Error, ErrorKind, Result},
    key::Seed,
    memory::{AppendTable, MemoryOptions, SHARDS_MAX},
    run::Run as _,
    work::{MemoryBudget, Watch},
};

/// Size of the longest user, in bytes.
const USER_BYTES_MAX: usize = GROUP_BYTES_MAX;
/// Memory of the chains that are in one shard, in bytes. A shard takes at most 64 GiB.
const SHARD_BYTES: u64 = 32 << 30;
/// When memory is exhausted, old chains are removed this many times at most while the age of a chain passes.
const SWEEPS_AN_AGE: i64 = 16;

/// The credit of a touch for a conversion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit<'a> {
    pub(super) model: &'a str,
    pub(super) credit: i64,
    pub(super) value: Option<i64>,
    /// The touch and its place from 1; `None` if the conversion has no touch to credit.
    pub(super) touch: Option<(usize, &'a Touch<'a>)>,
    /// Number of touches of the conversion.
    pub(super) touches: usize,
}

/// The chains of all users.
#[derive(Debug)]
pub(super) struct ChainTable {
    pub(super) chains: Chains,
    table: AppendTable,
    /// The memory of these chains, a part of that of the pipeline.
    budget: MemoryBudget,
    stats: ChainsStats,
    /// Number of the period between dumps that the clock is in: time / length.
    period: Option<i64>,
    /// The clock when old chains were removed last.
    swept_ms: Option<i64>,
    /// The user of the current event.
    user: Vec<u8>,
    channel: Vec<u8>,
    record: Vec<u8>,
    chain: Vec<u8>,
}

impl ChainTable {
    /// Makes chains without users, with memory of the pipeline. `seed` is unpredictable, so that nobody can choose users
    /// that collide.
    ///
    /// # Errors
    /// `Argument` if the memory is exhausted; errors of the system.
    pub(super) fn new(chains: Chains, seed: u64, memory: &MemoryBudget) -> Result<ChainTable> {
        let budget = memory.part(chains.memory_bytes);
        let shards = (chains.memory_bytes / SHARD_BYTES).clamp(1, SHARDS_MAX as u64);
        let options = MemoryOptions {
            seed: Seed(seed),
            shards: (shards as usize).next_power_of_two(),
            budget: budget.clone(),
            ..MemoryOptions::default()
        };
        let table = AppendTable::new(options);
        let table = table.map_err(|error| exhausted(error, &chains, &budget, 0))?;
        Ok(ChainTable {
            chains,
            table,
            budget,
            stats: ChainsStats::default(),
            period: None,
            swept_ms: None,
            user: Vec::new(),
            channel: Vec::new(),
            record: Vec::new(),
            chain: Vec::new(),
        })
    }

    /// Returns the time of the dump that is due when the clock is at `now_ms`, once.
    pub(super) fn due(&mut self, now_ms: i64) -> Option<i64> {
        let dump_ms = self.chains.dump_ms?;
        let period = now_ms.div_euclid(dump_ms);
        let is_due = self.period.is_some_and(|before| before < period);
        self.period = self.period.max(Some(period));
        is_due.then(|| period * dump_ms)
    }

    /// Removes chains that are too old, once while the time passes for which a chain is kept.
    ///
    /// # Errors
    /// Those of a snapshot.
    pub(super) fn advance(&mut self, now_ms: i64) -> Result<()> {
        let swept_ms = *self.swept_ms.get_or_insert(now_ms);
        if now_ms.saturating_sub(swept_ms) >= self.kept_ms() { self.sweep(now_ms) } else { Ok(()) }
    }

    /// Makes the user of an event the current one; returns whether there is one.
    pub(super) fn set_user(&mut self, events: &Events, event: usize) -> bool {
        self.user.clear();
        match events.get(event, self.chains.user) {
            Value::Text(user) => self.user.extend_from_slice(user),
            Value::Int(user) => self.user.extend_from_slice(user.to_string().as_bytes()),
            Value::Null | Value::Float(_) => {}
        }
        let len = self.user.len();
        self.stats.no_user += u64::from(len == 0);
        self.stats.too_long += u64::from(len > USER_BYTES_MAX);
        (1..=USER_BYTES_MAX).contains(&len)
    }

    /// Appends an event to the chain of the current user.
    ///
    /// # Errors
    /// `Argument` if the memory is exhausted.
    pub(super) fn append(&mut self, now_ms: i64, events: &Events, event: usize) -> Result<()> {
        let time_ms = events.times()[event];
        if time_ms < self.chains.oldest_ms(now_ms) {
            self.stats.late += 1;
            return Ok(());
        }
        self.channel.clear();
        if !put_group(&mut self.channel, events, event, &self.chains.channel) {
            self.stats.too_long += 1;
            return Ok(());
        }
        self.record.clear();
        touch::put(&mut self.record, time_ms, &self.channel);
        let mut appended = self.try_to_append(now_ms);
        if appended.as_ref().is_err_and(is_memory) && self.may_sweep(now_ms) {
            self.sweep(now_ms)?;
            appended = self.try_to_append(now_ms);
        }
        appended.map_err(|error| self.exhausted(error))?;
        self.stats.touches += 1;
        Ok(())
    }

    fn try_to_append(&self, now_ms: i64) -> Result<()> {
        let (oldest_ms, keep) = (self.chains.oldest_ms(now_ms), self.chains.touches_max - 1);
        self.table.trim_with(&self.user, |chain| touch::dropped(chain, oldest_ms, keep))?;
        self.table.append(&self.user, &self.record)
    }

    fn may_sweep(&self, now_ms: i64) -> bool {
        let pause_ms = self.kept_ms() / SWEEPS_AN_AGE;
        self.swept_ms.is_none_or(|swept_ms| now_ms.saturating_sub(swept_ms) >= pause_ms)
    }

    /// Returns the time for which a touch is kept, in milliseconds.
    fn kept_ms(&self) -> i64 {
        self.chains.age_ms_max.saturating_add(self.chains.lateness_ms)
    }

    /// Removes the chains that have only touches that are too old. Without the memory for that, they stay.
    fn sweep(&mut self, now_ms: i64) -> Result<()> {
        self.swept_ms = Some(now_ms);
        let oldest_ms = self.chains.oldest_ms(now_ms);
        let mut run = self.table.snapshot()?.scan();
        let mut user = Vec::new();
        while run.advance()? {
            let entry = run.entry();
            let chain = entry.value.unwrap_or_default();
            if touch::records(chain).all(|record| record.time_ms < oldest_ms) {
                user.clear();
                user.extend_from_slice(entry.key);
                // Its group was read, so that this needs no memory, unless a dump is being read.
                match self.table.remove(&user) {
                    Err(error) if is_memory(&error) => break,
                    removed => removed?,
                };
            }
        }
        drop(run);
        // Pages that are nearly empty are of use for other sizes then; if there is no memory for that, they stay.
        match self.table.compact(&Watch::default()) {
            Err(error) if !is_memory(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Shares out a conversion of the current user: calls `give` with each credit.
    ///
    /// # Errors
    /// `Argument` if a model has another number of parts than touches; those of `give`.
    pub(super) fn convert(
        &mut self,
        now_ms: i64,
        events: &Events,
        event: usize,
        give: &mut dyn FnMut(Credit<'_>),
    ) -> Result<()> {
        let time_ms = events.times()[event];
        if time_ms < now_ms.saturating_sub(self.chains.lateness_ms) {
            self.stats.late += 1;
            return Ok(());
        }
        self.chain.clear();
        self.table.get_into(&self.user, &mut self.chain);
        let records = self.usable(time_ms);
        let mut values = Vec::new();
        for record in &records {
            values.extend(decode_group(record.channel, self.chains.channel.len())?);
        }
        let channels = values.chunks(self.chains.channel.len());
        let touch =
            |(record, channel): (&Record<'_>, _)| Touch { time_ms: record.time_ms, channel };
        let touches: Vec<Touch<'_>> = records.iter().zip(channels).map(touch).collect();
        let value = match self.chains.value.map(|value| events.get(event, value)) {
            Some(Value::Int(value)) => Some(value),
            _ => None,
        };
        let conversion = Conversion { time_ms, value };
        for model in &self.chains.models {
            let shared = give_credits(model.as_ref(), &conversion, &touches, give);
            shared.map_err(|error| in_definition(error, "chains", &self.chains.name))?;
        }
        let is_direct = touches.is_empty();
        self.stats.conversions += 1;
        self.stats.direct += u64::from(is_direct);
        if self.chains.restarts {
            let mut removed = self.table.remove(&self.user);
            if removed.as_ref().is_err_and(is_memory) && self.may_sweep(now_ms) {
                self.sweep(now_ms)?;
                removed = self.table.remove(&self.user);
            }
            removed.map_err(|error| self.exhausted(error))?;
        }
        Ok(())
    }

    /// Returns the touches of the chain that was read that a conversion can use, in the order of time.
    fn usable(&self, time_ms: i64) -> Vec<Record<'_>> {
        let oldest_ms = time_ms.saturating_sub(self.chains.age_ms_max);
        let is_usable = |record: &Record<'_>| (oldest_ms..=time_ms).contains(&record.time_ms);
        let mut records: Vec<_> = touch::records(&self.chain).filter(is_usable).collect();
        // Stable, so that touches of one time stay in the order of arrival.
        records.sort_by_key(|record| record.time_ms);
        records
    }

    /// Returns the chains at this moment, without touches that are too old at `at_ms`.
    ///
    /// # Errors
    /// Those of a snapshot.
    pub(super) fn dump(&self, at_ms: i64) -> Result<ChainDump> {
        let oldest_ms = self.chains.oldest_ms(at_ms);
        let run = self.table.snapshot()?.scan();
        Ok(ChainDump::new(run, &self.chains, self.stats(), (at_ms, oldest_ms)))
    }

    /// Counts a dump.
    pub(super) fn dumped(&mut self) {
        self.stats.dumps += 1;
    }

    /// Returns the counts so far, without summaries.
    pub(super) fn stats(&self) -> ChainsStats {
        let (users, bytes) = (self.table.len(), self.budget.reserved());
        ChainsStats { users, bytes, ..self.stats.clone() }
    }

    /// Appends counts and chains to a checkpoint.
    ///
    /// # Errors
    /// Those of a snapshot.
    pub(super) fn put(&self, out: &mut Vec<u8>) -> Result<()> {
        self.stats.put(out);
        out.push(u8::from(self.period.is_some()));
        out.extend(self.period.unwrap_or(0).to_le_bytes());
        put_varint(out, self.table.len());
        let mut run = self.table.snapshot()?.scan();
        while run.advance()? {
            let entry = run.entry();
            put_bytes(out, entry.key);
            put_bytes(out, entry.value.unwrap_or_default());
        }
        Ok(())
    }

    /// Reads counts and chains from a checkpoint.
    ///
    /// # Errors
    /// Damage, or `Argument` if the memory is exhausted.
    pub(super) fn restore(&mut self, fields: &mut Decoder<'_>) -> Result<()> {
        self.stats = ChainsStats::take(fields)?;
        let is_set = fields.u8()? != 0;
        let period = fields.u64()? as i64;
        self.period = is_set.then_some(period);
        for _ in 0..fields.varint()? {
            let user = fields.sized_bytes()?;
            if !(1..=USER_BYTES_MAX).contains(&user.len()) {
                let expected = format!("1 to {USER_BYTES_MAX}");
                return Err(Error::field("size of a user in bytes", expected, user.len()));
            }
            let chain = fields.sized_bytes()?;
            touch::check(chain, self.chains.channel.len(), self.chains.touches_max)?;
            if self.table.put(user, chain).map_err(|error| self.exhausted(error))? {
                return Err(Error::field("user of a chain", "each once", "one twice"));
            }
        }
        Ok(())
    }

    /// Makes an error that says which memory is exhausted, if it is that.
    fn exhausted(&self, error: Error) -> Error {
        exhausted(error, &self.chains, &self.budget, self.table.len())
    }
}

/// Makes an error that says which memory is exhausted, if it is that: the one of chains, or all of the pipeline's.
fn exhausted(error: Error, chains: &Chains, own: &MemoryBudget, users: u64) -> Error {
    let ErrorKind::Memory { needs, reserved, limit } = *error.kind() else { return error };
    let Chains { name, memory_bytes, .. } = chains;
    let bytes = own.reserved();
    if bytes.saturating_add(needs) > *memory_bytes {
        let expected = "more, or chains with fewer or younger touches";
        let got =
            format!("{memory_bytes} bytes in the chains \"{name}\", all in use by {users} users");
        return Error::argument("memory of chains", expected, got);
    }
    let expected = "more, or fewer groups, or chains with fewer or younger touches";
    let got = format!(
        "{limit} bytes, of which {reserved} are in use: {bytes} by the chains \"{name}\" of {users} users"
    );
    Error::argument("memory of groups and chains", expected, got)
}

fn is_memory(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Memory { .. })
}

/// Calls `give` with the credits that a model gives for a conversion.
fn give_credits(
    model: &dyn Model,
    conversion: &Conversion,
    touches: &[Touch<'_>],
    give: &mut dyn FnMut(Credit<'_>),
) -> Result<()> {
    let (name, value) = (model.name(), conversion.value);
    let direct =
        Credit { model: name, credit: CREDIT_WHOLE, value, touch: None, touches: touches.len() };
    if touches.is_empty() {
        give(direct);
        return Ok(());
    }
    let parts = model.parts(conversion, touches);
    if parts.len() != touches.len() {
        let got = format!("{} of the model \"{name}\"", parts.len());
        let expected = format!("{}, one a touch", touches.len());
        return Err(Error::argument("number of parts", expected, got));
    }
    let Some(credits) = share(CREDIT_WHOLE, &parts) else {
        give(direct);
        return Ok(());
    };
    let values = value.and_then(|value| share(value, &parts));
    for (i, touch) in touches.iter().enumerate().filter(|(i, _)| parts[*i] > 0) {
        let value = values.as_ref().map(|values| values[i]);
        give(Credit { credit: credits[i], value, touch: Some((i + 1, touch)), ..direct });
    }
    Ok(())
}
