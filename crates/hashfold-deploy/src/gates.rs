//! Gates: conditions that versions must meet before a pointer names them.

use crate::{
    controller::PublishOptions,
    error::ErrorKind,
    pointer::{GroupPointer, Targets},
    ready::{NodeSample, Readiness},
};
use hashfold::store::VersionInfo;
use std::collections::BTreeMap;

/// Returns a refusal if a version of a store has too few entries, compared with the number in the current
/// version.
pub(crate) fn check_entries(
    store: &str,
    info: &VersionInfo,
    current: u64,
    options: &PublishOptions,
) -> Option<ErrorKind> {
    let kept = current as f64 * (1.0 - options.loss_max);
    let (min, got) = (options.entries_min.max(kept.ceil() as u64), *info.entries().end());
    (got < min).then(|| ErrorKind::Gate {
        what: name(store, info.name.number),
        expected: format!("at least {min} entries"),
        got: got.to_string(),
    })
}

/// Returns a refusal if the samples of all nodes together say that too many keys of the current versions
/// are missing, or have other values. A limit of changes is not met without a sample.
pub(crate) fn check_samples(
    pointer: &GroupPointer,
    targets: &Targets,
    nodes: &BTreeMap<String, Readiness>,
    options: &PublishOptions,
) -> Option<ErrorKind> {
    targets.iter().find_map(|(store, target)| {
        let current = pointer.stores.get(store).filter(|current| *current != target)?;
        let samples = nodes.values().filter_map(|node| node.version(store, target)?.sample);
        let mut sum = NodeSample { from: current.version, ..NodeSample::default() };
        for sample in samples.filter(|sample| sample.from == current.version) {
            sum.keys = sum.keys.saturating_add(sample.keys);
            sum.removed = sum.removed.saturating_add(sample.removed);
            sum.changed = sum.changed.saturating_add(sample.changed);
        }
        let (expected, got) = refusal(&sum, options)?;
        Some(ErrorKind::Gate { what: name(store, target.version), expected, got })
    })
}

/// Returns what was expected of a sample, and what was found instead.
fn refusal(sum: &NodeSample, options: &PublishOptions) -> Option<(String, String)> {
    let &NodeSample { from, keys, removed, changed } = sum;
    if keys == 0 {
        let unknown = || {
            let expected = format!("a server that has compared keys with those of version {from}");
            (expected, "none".to_owned())
        };
        return options.change_max.map(|_| unknown());
    }
    let part = |count: u64| count as f64 / keys as f64;
    let differing = removed.saturating_add(changed);
    let limits = [
        (removed, options.loss_max, "removed"),
        (differing, options.change_max.unwrap_or(1.0), "changed or removed"),
    ];
    let (count, max, what) = limits.into_iter().find(|(count, max, _)| part(*count) > *max)?;
    let expected = format!("at most {max} of the sampled keys of version {from} {what}");
    Some((expected, format!("{:.6}: {count} of {keys}", part(count))))
}

fn name(store: &str, number: u64) -> String {
    format!("version {number} of store {store}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sample of 1000 keys against these limits of removed and of differing keys.
    fn refused(removed: u64, changed: u64, loss_max: f64, change_max: Option<f64>) -> bool {
        let sum = NodeSample { from: 1, keys: 1000, removed, changed };
        let options = PublishOptions { loss_max, change_max, ..PublishOptions::default() };
        refusal(&sum, &options).is_some()
    }

    #[test]
    fn limits_are_accepted_and_more_is_refused() {
        assert!(!refused(500, 500, 0.5, None));
        assert!(refused(501, 0, 0.5, None));
        assert!(!refused(1000, 0, 1.0, None));
        assert!(!refused(40, 60, 0.5, Some(0.1)));
        assert!(refused(40, 61, 0.5, Some(0.1)));
        assert!(refused(0, 1, 1.0, Some(0.0)));
        assert!(!refused(0, 0, 0.0, Some(0.0)));
    }

    #[test]
    fn a_limit_of_changes_needs_a_sample() {
        let none = NodeSample::default();
        let options = PublishOptions { change_max: Some(1.0), ..PublishOptions::default() };
        assert!(refusal(&none, &options).is_some());
        assert_eq!(refusal(&none, &PublishOptions::default()), None);
    }
}
