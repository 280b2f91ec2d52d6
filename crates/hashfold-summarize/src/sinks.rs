//! The receivers of the results of a stream.

use crate::{
    config::{OutputKind, Stream},
    dump::DumpStore,
    output::{StoreSink, TableSink, check_new, window_name},
    rows::Layout,
    versions::Versions,
};
use hashfold::{
    Env, Result, Store,
    folder::check_outside,
    io::create_durable_folder,
    pipeline::{Attribution, Chains, DumpSink, Field, Sink, Summary},
};
use std::path::Path;

/// The place of results.
pub(crate) struct Place<'a> {
    /// Folder of all results.
    pub(crate) out: &'a Path,
    pub(crate) env: &'a Env,
    /// Id of the run, and of those that it continues.
    pub(crate) run: u64,
}

impl Place<'_> {
    /// Refuses tables of another run that this one would replace, as far as their names are known before the first event:
    /// those of summaries without windows.
    pub(crate) fn check_new(&self, stream: &Stream) -> Result<()> {
        let is_known = |(summary, output): &&(Summary, OutputKind)| {
            summary.window_ms.is_none() && *output == OutputKind::Table
        };
        let mut known = stream.all_summaries().filter(is_known);
        known.try_for_each(|(summary, _)| {
            check_new(self.env, &self.out.join(&summary.name).join(window_name(None)))
        })
    }

    /// Makes the folders of the results, and opens the stores that are there, so that a place that cannot be used is noticed
    /// before the first event. Results have no place in another data set, such as the store that a summary had before it got
    /// tables.
    pub(crate) fn prepare(&self, stream: &Stream) -> Result<()> {
        create_durable_folder(self.env.disk.as_ref(), self.out)?;
        let disk = self.env.disk.as_ref();
        let tables = stream.all_summaries().filter(|(_, output)| *output == OutputKind::Table);
        for (summary, _) in tables {
            let folder = self.out.join(&summary.name);
            create_durable_folder(disk, &folder)?;
            check_outside(disk, &folder.join(window_name(None)))?;
        }
        let stores = stream.all_summaries().filter(|(_, output)| *output == OutputKind::Store);
        let dumps = stream.dumped_chains().map(|chains| &chains.name);
        for name in stores.map(|(summary, _)| &summary.name).chain(dumps) {
            check_outside(disk, &self.out.join(name))?;
            match Store::open_in(self.env.clone(), self.out.join(name)) {
                Err(error) if !error.is_absent() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns summaries of events with these fields, and their receivers.
    pub(crate) fn sinks(
        &self,
        summaries: &[(Summary, OutputKind)],
        fields: &[Field],
    ) -> Vec<(Summary, Box<dyn Sink>)> {
        let sink = |(summary, output): &(Summary, OutputKind)| -> (Summary, Box<dyn Sink>) {
            let (folder, env) = (self.out.join(&summary.name), self.env.clone());
            let run = self.run;
            let layout = Layout::new(summary, fields);
            let sink: Box<dyn Sink> = match output {
                OutputKind::Table => {
                    Box::new(TableSink { folder, layout, env, run, numbered: None })
                }
                OutputKind::Store => {
                    let versions = Versions::new(folder, env);
                    Box::new(StoreSink { versions, layout, run })
                }
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
            let store = || DumpStore::new(folder, chains, fields, self.env.clone(), self.run);
            Attribution {
                chains: chains.clone(),
                summaries: self.sinks(summaries, &chains.credit_fields(fields)),
                dump: chains.dump_ms.map(|_| Box::new(store()) as Box<dyn DumpSink>),
            }
        };
        stream.chains.iter().map(attribution).collect()
    }
}
