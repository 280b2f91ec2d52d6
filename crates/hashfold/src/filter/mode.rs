//! Sets and multisets.

/// The treatment of a key that is inserted more than once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A key is present or absent, by its last change.
    #[default]
    Set,
    /// A key has a count: an insertion adds 1, a removal subtracts 1.
    Multiset,
}
