//! The receivers of the results of a stream.

use crate::{
    config::{OutputKind, Stream},
    dump::DumpStore,
    output::{StoreSink, TableSink, check_new, window_name},
    rows::Layout,
};
use hashfold::{
    Env, Result,
    pipeline::{Attribution, Chains, DumpSink, Field, Sink, Summary},
};
use std::path::Path;

/// The place of results.
pub(crate) struct Place<'a> {
    /// Folder of all results.
    pub(crate) out: &'a Path,
    pub(crate) env: &'a Env,
    /// Whether results can come again that were published before a crash.
    pub(crate) continues: bool,
}

impl Place<'_> {
    /// Refuses tables of another run that this one would replace, as far as their names are known before the first event:
    /// those of summaries without windows.
    pub(crate) fn check(&self, stream: &Stream) -> Result<()> {
        if self.continues {
            return Ok(());
        }
        let of_chains = stream.chains.iter().flat_map(|(_, summaries)| summaries);
        let is_known = |(summary, output): &&(Summary, OutputKind)| {
            summary.window_ms.is_none() && *output == OutputKind::Table
        };
        let mut known = stream.summaries.iter().chain(of_chains).filter(is_known);
        known.try_for_each(|(summary, _)| {
            check_new(self.env, &self.out.join(&summary.name).join(window_name(None)))
        })
    }

    /// Returns summaries of events with these fields, and their receivers.
    pub(crate) fn sinks(
        &self,
        summaries: &[(Summary, OutputKind)],
        fields: &[Field],
    ) -> Vec<(Summary, Box<dyn Sink>)> {
        let sink = |(summary, output): &(Summary, OutputKind)| -> (Summary, Box<dyn Sink>) {
            let (folder, env) = (self.out.join(&summary.name), self.env.clone());
            let continues = self.continues;
            let layout = Layout::new(summary, fields);
            let sink: Box<dyn Sink> = match output {
                OutputKind::Table => Box::new(TableSink { folder, layout, env, continues }),
                OutputKind::Store => Box::new(StoreSink { folder, layout, env, continues }),
            };
            (summary.clone(), sink)
        };
        summaries.iter().map(sink).collect()
    }

    /// Returns the chains of a stream, and the receivers of their results.
    pub(crate) fn chains(&self, stream: &Stream) -> Vec<Attribution> {
        let fields = &stream.fields;
        let attribution = |(chains, summaries): &(Chains, Vec<(Summary, OutputKind)>)| {
            let folder = self.out.join(&chains.name);
            let store = || DumpStore::new(folder, chains, fields, self.env.clone(), self.continues);
            Attribution {
                chains: chains.clone(),
                summaries: self.sinks(summaries, &chains.credit_fields(fields)),
                dump: chains.dump_ms.map(|_| Box::new(store()) as Box<dyn DumpSink>),
            }
        };
        stream.chains.iter().map(attribution).collect()
    }
}
