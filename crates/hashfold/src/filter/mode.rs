//! What a filter keeps of a key that comes more than once.

/// A set or a multiset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A key is in or not; of an insertion and a removal the later one holds.
    #[default]
    Set,
    /// Keys are counted: insertions add one, removals take one away.
    Multiset,
}
