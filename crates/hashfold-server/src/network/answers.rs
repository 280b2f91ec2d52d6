//! What requests waited for: lookups of many connections, commands on maps, jobs, transactions.

use super::{
    allow::note_error,
    batch::{Answer, Answers, Batch, Group, Request},
    connection::Connection,
    event_loop::EventLoop,
    exec::Executed,
    jobs::{AskedJob, Finished},
    on_map::{MapGroup, MapJob, MapRequest},
    on_memory::{MemoryGroup, MemoryRequest, Resources},
    redirect::ask,
};
use crate::{
    command::{JobReply, Run, TABLE},
    metrics::add as add_to,
    protocol::Reply,
    slow_log::shown,
};
use std::time::Duration;

/// Number of keys that are read from the device together: several such parts are read at the same time, so
/// that the device always has work, also while one part is answered.
const DEVICE_KEYS: usize = 64;

/// Mean time of reads from the device up to which a lookup that is alone is not given to another thread:
/// that, and the way back, would take longer than the read.
const LONE_READ_MAX: Duration = Duration::from_micros(250);

/// Time after which lookups that wait for the device, behind those of other clients, are refused.
pub(super) const READ_WAIT_MAX: Duration = Duration::from_secs(1);

/// The reply to them. Clients in cluster mode try again.
pub(super) const TOO_MANY_READS: &str = "TRYAGAIN Too many reads are waiting";

impl EventLoop {
    /// Answers a batch, and then the requests of its connections whose turn came after these lookups.
    pub(super) fn answer_all(&mut self, places: &[usize], mut batch: Batch, is_of_one: bool) {
        while !batch.is_empty() {
            self.look_up(std::mem::take(&mut batch), is_of_one);
            if !self.has_room_after(places) {
                return;
            }
            places.iter().for_each(|place| self.take_requests(*place, &mut batch));
        }
    }

    /// Answers a batch: lookups and changes in memory now, lookups elsewhere on another thread, and commands on maps on
    /// the threads of these. `is_of_one` says whether one connection alone has requests.
    fn look_up(&mut self, batch: Batch, is_of_one: bool) {
        for group in batch.maps {
            self.submit(group);
        }
        for group in batch.memories {
            self.change_in_memory(&group);
        }
        for group in batch.groups {
            let start = self.shared.now();
            if group.is_in_memory() {
                let values = self.values.clone();
                group.answer(&values, &mut |group, answers| {
                    let took = self.shared.now().saturating_sub(start);
                    self.reply_to(&group, &answers, took);
                });
                continue;
            }
            let is_lone = is_of_one && self.is_lone(&group);
            if is_lone && let Some(answers) = group.try_look_up(&self.values) {
                let took = self.shared.now().saturating_sub(start);
                self.reply_to(&group, &answers, took);
                self.lone_read = (self.lone_read * 7 + took) / 8;
                continue;
            }
            for request in &group.requests {
                self.begin_wait(request.place);
            }
            for part in group.in_parts(DEVICE_KEYS) {
                let (results, clock) = (self.results.clone(), self.shared.env.clock.clone());
                let values = self.shared.values.clone();
                self.executor.spawn(Box::new(move || {
                    let pass = &mut |group, answers| {
                        results.put(Finished::Lookups { group, answers, start });
                    };
                    match clock.now().saturating_sub(start) < READ_WAIT_MAX {
                        true => part.answer(&values, pass),
                        false => part.refuse(TOO_MANY_READS, pass),
                    }
                }));
            }
        }
    }

    /// Gives commands on a map to its thread. Their connections wait.
    fn submit(&mut self, group: MapGroup) {
        group.places().for_each(|place| self.begin_wait(place));
        self.job_bytes += group.bytes();
        group.submit(&self.shared, self.results.clone());
    }

    /// Makes the changes of a group in memory, and writes the replies.
    fn change_in_memory(&mut self, group: &MemoryGroup) {
        let start = self.shared.now();
        let shared = &self.shared;
        let replies = group.run(Resources { values: &shared.values, turns: &shared.turns });
        let took = self.shared.now().saturating_sub(start);
        let is_slow = self.shared.is_slow(took);
        // Requests of one command follow each other mostly: they are counted together.
        let mut counted = (usize::MAX, 0, 0);
        for (i, request) in group.requests.iter().enumerate() {
            let MemoryRequest { place, id, is_silent, .. } = *request;
            let (found, arguments) = group.command(i);
            let failed = note_error(&self.shared, replies.of(i));
            if counted.0 != found.number {
                self.note_lookups(counted, took);
                counted = (found.number, 0, 0);
            }
            counted = (counted.0, counted.1 + 1, counted.2 + u64::from(failed));
            if !self.is_open(place, id) {
                continue;
            }
            let connection = &mut self.connections[place];
            connection.lookups -= 1;
            if is_slow {
                let shown = || shown(found.command, &arguments);
                self.shared.note_slow(found.command, &connection.session.client, took, shown);
            }
            if !is_silent {
                connection.output.extend_from_slice(replies.of(i));
            }
            connection.break_off_if_full();
        }
        self.note_lookups(counted, took);
    }

    /// Whether a group from one connection is a single lookup that nobody else has to wait for, from a device
    /// that answers fast.
    fn is_lone(&self, group: &Group) -> bool {
        group.keys() == 1 && self.waiting == 0 && self.lone_read <= LONE_READ_MAX
    }

    /// Makes a connection wait for a job, or for the device.
    pub(super) fn begin_wait(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        self.waiting += usize::from(!connection.is_waiting);
        connection.is_waiting = true;
    }

    /// Writes the replies of jobs that have ended.
    pub(super) fn take_results(&mut self) {
        while let Ok(finished) = self.finished.try_recv() {
            match finished {
                Finished::Lookups { group, answers, start } => {
                    let took = self.shared.now().saturating_sub(start);
                    self.reply_to(&group, &answers, took);
                    for request in &group.requests {
                        self.end_wait(request.place, request.id);
                    }
                }
                Finished::Map(job) => self.finish_map(*job),
                Finished::Transaction { place, id, executed } => {
                    self.job_bytes -= executed.begun.bytes;
                    if self.is_open(place, id) {
                        self.finish_exec(place, *executed);
                    }
                    self.end_wait(place, id);
                }
                Finished::Reply { place, id, reply, asked } => {
                    if self.is_open(place, id) {
                        self.finish_job(place, reply, asked);
                    }
                    self.end_wait(place, id);
                }
            }
        }
    }

    /// Writes the replies of commands on a map.
    fn finish_map(&mut self, mut job: MapJob) {
        let took = self.shared.now().saturating_sub(job.start);
        self.job_bytes -= job.calls.bytes();
        for i in 0..job.requests.len() {
            let done = std::mem::take(&mut job.replies[i].done);
            add_to(&self.metrics.hits, done.hits);
            add_to(&self.metrics.misses, done.misses);
            let reply = job.reply(i);
            let failed = note_error(&self.shared, reply);
            let (found, arguments) = job.calls.command(i);
            self.metrics.note(found.number, 1, took, u64::from(failed));
            let MapRequest { place, id, is_silent, .. } = job.requests[i];
            if !self.is_open(place, id) {
                continue;
            }
            let connection = &mut self.connections[place];
            connection.lookups -= 1;
            let shown = || shown(found.command, &arguments);
            self.shared.note_slow(found.command, &connection.session.client, took, shown);
            let written = connection.output.len();
            connection.output.extend_from_slice(reply);
            if matches!(found.command.run, Run::Watch) && !failed {
                connection.watch(written, &arguments, done.watches);
            }
            if is_silent {
                connection.output.truncate(written);
            }
            connection.break_off_if_full();
        }
        job.requests.iter().for_each(|request| self.end_wait(request.place, request.id));
    }

    /// Writes the reply of a job.
    fn finish_job(&mut self, place: usize, reply: JobReply, asked: AskedJob) {
        let Connection { output, session, .. } = &mut self.connections[place];
        let written = output.len();
        let mut to_client = Reply::new(output, session.protocol);
        reply(session, &mut to_client);
        let failed = note_error(&self.shared, &output[written..]);
        if asked.is_silent {
            output.truncate(written);
        }
        let took = self.shared.now().saturating_sub(asked.start);
        self.metrics.note(asked.number, 1, took, u64::from(failed));
        let command = TABLE.command(asked.number);
        self.shared.note_slow(command, &session.client, took, || asked.arguments);
    }

    /// Takes over what a transaction has led to.
    pub(super) fn finish_exec(&mut self, place: usize, done: Executed) {
        let took = self.shared.now().saturating_sub(done.begun.start);
        self.metrics.note(done.begun.number, 1, took, 0);
        for note in &done.notes {
            self.metrics.note(note.command, 1, note.took, u64::from(note.is_failed));
        }
        for read in &done.reads {
            if let Some(view) = &read.view {
                self.latencies.of(view.latency()).note(read.calls, read.took, read.failed);
            }
            add_to(&self.metrics.hits, read.hits);
            add_to(&self.metrics.misses, read.misses);
        }
        let connection = &mut self.connections[place];
        connection.session = done.session;
        if !done.begun.is_silent {
            connection.output.extend(done.output);
            connection.break_off_if_full();
        }
    }

    /// Writes the replies to the lookups of a group.
    fn reply_to(&mut self, group: &Group, answers: &Answers, took: Duration) {
        let (mut hits, mut misses, mut all_failed) = (0, 0, 0);
        // Requests of one command follow each other mostly: they are counted together.
        let mut counted = (usize::MAX, 0, 0);
        for request in &group.requests {
            let answer = answers.of(group, request.keys.clone());
            let (found, absent) = answer.hits_and_misses();
            (hits, misses) = (hits + found, misses + absent);
            let mut failed = answer.is_failed();
            all_failed += u64::from(failed);
            let is_slow = self.shared.is_slow(took);
            if counted.0 != request.command {
                self.note_lookups(counted, took);
                counted = (request.command, 0, 0);
            }
            if self.is_open(request.place, request.id) {
                let connection = &mut self.connections[request.place];
                connection.lookups -= 1;
                if is_slow {
                    let name = TABLE.full_name(request.command);
                    let arguments = || request.lookup.words(name, &answer);
                    let command = TABLE.command(request.command);
                    self.shared.note_slow(command, &connection.session.client, took, arguments);
                }
                failed |= self.write_reply(request, &answer, failed);
            }
            counted = (counted.0, counted.1 + 1, counted.2 + u64::from(failed));
        }
        self.note_lookups(counted, took);
        if let Some(view) = &group.view {
            let calls = group.requests.len() as u64;
            self.latencies.of(view.latency()).note(calls, took, all_failed);
        }
        add_to(&self.metrics.hits, hits);
        add_to(&self.metrics.misses, misses);
    }

    /// Writes the reply to a lookup, unless the client wants none. Returns whether it is an error, which is counted.
    /// `is_failed` says whether a value could not be read.
    fn write_reply(&mut self, request: &Request, answer: &Answer<'_>, is_failed: bool) -> bool {
        let Connection { output, session, .. } = &mut self.connections[request.place];
        let written = output.len();
        let mut reply = Reply::new(output, session.protocol);
        let elsewhere = is_failed.then(|| ask(&self.shared, &session.client, request, answer));
        match elsewhere.flatten() {
            Some(elsewhere) => reply.error(&elsewhere),
            None => request.lookup.reply(answer, &mut reply),
        }
        let is_error = note_error(&self.shared, &output[written..]);
        if request.is_silent {
            output.truncate(written);
        }
        self.connections[request.place].break_off_if_full();
        is_error
    }

    /// Counts calls of one command that were answered together.
    fn note_lookups(&self, (command, calls, failed): (usize, u64, u64), took: Duration) {
        if calls > 0 {
            self.metrics.note(command, calls, took, failed);
        }
    }

    /// Whether the connection at a place is still the one that asked for something.
    fn is_open(&self, place: usize, id: u64) -> bool {
        self.connections.get(place).is_some_and(|it| it.session.client.id == id)
    }

    /// Lets a connection go on, if all it waited for has come.
    fn end_wait(&mut self, place: usize, id: u64) {
        if let Some(connection) = self.connections.get_mut(place)
            && connection.session.client.id == id
            && connection.lookups == 0
        {
            self.waiting -= usize::from(connection.is_waiting);
            connection.is_waiting = false;
            self.list(place);
        }
    }
}
