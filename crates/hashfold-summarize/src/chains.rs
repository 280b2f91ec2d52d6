//! The part `[chains.NAME]` of a configuration.

use crate::{
    duration::{DurationMs, Size},
    range::distinct,
    rule::RuleEntry,
};
use hashfold::pipeline::{Chains, Field, FirstTouch, LastTouch, Linear, Model, Rule, TimeDecay};
use serde::Deserialize;
use std::sync::Arc;

/// Name of the time of a touch in a dump.
pub(crate) const TIME: &str = "time";

/// Chains as the file has them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ChainsEntry {
    pub(crate) stream: String,
    user: String,
    channel: Vec<String>,
    #[serde(default)]
    touch: Vec<RuleEntry>,
    conversion: Vec<RuleEntry>,
    value: Option<String>,
    age: Option<DurationMs>,
    touches_max: Option<usize>,
    lateness: Option<DurationMs>,
    #[serde(default)]
    restart: bool,
    models: Vec<ModelName>,
    half_life: Option<DurationMs>,
    memory: Option<Size>,
    dump: Option<DurationMs>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum ModelName {
    FirstTouch,
    LastTouch,
    Linear,
    TimeDecay,
}

impl ChainsEntry {
    /// Returns the chains of a stream with these fields.
    pub(crate) fn chains(
        self,
        name: &str,
        fields: &[Field],
        has_time: bool,
    ) -> Result<Chains, String> {
        let field = |name: &str| {
            let found = fields.iter().position(|field| field.name == name);
            found.ok_or_else(|| {
                format!("there is no field \"{name}\" in the stream \"{}\"", self.stream)
            })
        };
        if !has_time {
            return Err(format!("chains need `time` in the stream \"{}\"", self.stream));
        }
        if self.dump.is_some() && self.channel.iter().any(|name| name == TIME) {
            return Err(format!("channel: expected another name than \"{TIME}\", which dumps use"));
        }
        let rules = |place: &str, entries: Vec<RuleEntry>| -> Result<Vec<Rule>, String> {
            entries.into_iter().map(|entry| entry.rule(place, &field, fields)).collect()
        };
        distinct("channel", &self.channel)?;
        let channel: Result<Vec<usize>, String> =
            self.channel.iter().map(|name| field(name)).collect();
        let mut chains = Chains::new(name, field(&self.user)?, channel?);
        chains.touch = rules("touch", self.touch)?;
        chains.conversion = rules("conversion", self.conversion)?;
        chains.value = self.value.as_deref().map(field).transpose()?;
        chains.restarts = self.restart;
        chains.models = models(&self.models, self.half_life)?;
        chains.dump_ms = self.dump.map(|dump| dump.0);
        chains.lateness_ms = self.lateness.map_or(chains.lateness_ms, |lateness| lateness.0);
        chains.age_ms_max = self.age.map_or(chains.age_ms_max, |age| age.0);
        chains.touches_max = self.touches_max.unwrap_or(chains.touches_max);
        chains.memory_bytes = self.memory.map_or(chains.memory_bytes, |memory| memory.0);
        chains.check(fields).map_err(|error| error.to_string())?;
        Ok(chains)
    }
}

fn models(
    names: &[ModelName],
    half_life: Option<DurationMs>,
) -> Result<Vec<Arc<dyn Model>>, String> {
    if half_life.is_some() && !names.contains(&ModelName::TimeDecay) {
        return Err("`half-life` is for the model \"time-decay\"".into());
    }
    let model = |name: &ModelName| -> Result<Arc<dyn Model>, String> {
        Ok(match name {
            ModelName::FirstTouch => Arc::new(FirstTouch),
            ModelName::LastTouch => Arc::new(LastTouch),
            ModelName::Linear => Arc::new(Linear),
            ModelName::TimeDecay => {
                let half_life = half_life.ok_or("the model \"time-decay\" needs `half-life`")?;
                Arc::new(TimeDecay::new(half_life.0).map_err(|error| error.to_string())?)
            }
        })
    };
    names.iter().map(model).collect()
}
