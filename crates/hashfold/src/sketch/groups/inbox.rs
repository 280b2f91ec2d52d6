//! Rows that wait for their shard.

/// A row without its group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// Bits of the group's hash, other than those of its shard.
    pub(super) tag: u32,
    /// The register, and the value that the key gives it.
    pub(super) entry: u32,
    /// Size of the group in bytes.
    size: u32,
}

/// Rows of one shard.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    rows: Vec<Row>,
    /// The groups of the rows, one after the other.
    groups: Vec<u8>,
}

impl Inbox {
    #[inline]
    pub(super) fn push(&mut self, tag: u32, entry: u32, group: &[u8]) {
        self.groups.extend_from_slice(group);
        self.rows.push(Row { tag, entry, size: group.len() as u32 });
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Size of the groups in bytes.
    pub(super) fn group_bytes(&self) -> usize {
        self.groups.len()
    }

    /// Size of the rows in bytes.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.rows.len() * size_of::<Row>() + self.groups.len()
    }

    /// Returns the memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Row>() + self.groups.capacity()
    }

    /// Returns the rows and their groups.
    pub(super) fn rows(&self) -> impl Iterator<Item = (Row, &[u8])> {
        let mut rest = &self.groups[..];
        self.rows.iter().map(move |row| {
            let (group, after) = rest.split_at(row.size as usize);
            rest = after;
            (*row, group)
        })
    }

    /// Removes all rows, and gives back memory beyond `bytes`.
    pub(super) fn clear(&mut self, bytes: usize) {
        self.rows.clear();
        self.groups.clear();
        self.groups.shrink_to(bytes);
    }
}
