//! Groups of buckets and sets of groups: Algorithm 2 of the paper, and where pages are.

/// Number of groups of a set from which it is merged, to bound the cost of one merge.
pub const SET_GROUPS_MAX: usize = 4;

/// Returns the bucket or group of a hash, of `count`: the low bits, one fewer if there is no such bucket.
pub fn address(hash: u64, count: u64) -> u64 {
    let bits = u64::BITS - (count - 1).leading_zeros();
    let low = |bits: u32| hash & ((1 << bits) - 1);
    if low(bits) < count { low(bits) } else { low(bits - 1) }
}

/// Returns the number of low bits of a hash that choose this one of `count` buckets or groups.
pub fn depth(number: u64, count: u64) -> u32 {
    let bits = (count - 1).ilog2();
    bits + u32::from(number >= 1 << bits || number + (1 << bits) < count)
}

/// Returns the page of a bucket: the buckets of a doubling are followed by their log-heads.
pub fn bucket_page(bucket: u64, group_size: u64) -> u64 {
    if bucket < 2 * group_size { bucket } else { bucket + (1 << bucket.ilog2()) / group_size }
}

/// Returns the page of the log-head of a group.
pub fn head_page(group: u64, group_size: u64) -> u64 {
    if group < 2 { 2 * group_size + group } else { (2 << (group * group_size).ilog2()) + group }
}

/// Returns the group of a page, and whether the page is its log-head.
pub fn page_group(page: u64, group_size: u64) -> (u64, bool) {
    // The groups of a doubling begin at this page; the first two begin at page 0.
    let doubling = page / (group_size + 1);
    let (first, groups) =
        if doubling < 2 { (0, 2) } else { (1 << doubling.ilog2(), 1 << doubling.ilog2()) };
    let offset = page - first * (group_size + 1);
    let buckets = groups * group_size;
    if offset < buckets {
        (first + offset / group_size, false)
    } else {
        (first + offset - buckets, true)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// Has no records: those of its keys are in the lazy group of its set.
    Empty,
    /// Has the records of its whole set.
    Lazy,
    /// Is a set of its own.
    Split,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    category: Category,
    /// Number of low bits that all groups of the set share; unused for split groups.
    bits: u32,
}

const SPLIT: Group = Group { category: Category::Split, bits: 0 };

/// The groups of an index. A set is named by the group that has its records.
#[derive(Clone, Debug)]
pub struct Groups(Vec<Group>);

impl Groups {
    pub fn new() -> Groups {
        Groups(vec![SPLIT; 2])
    }

    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// Returns the set of a group.
    pub fn owner(&self, group: u64) -> u64 {
        let Group { category, bits } = self.0[group as usize];
        if category == Category::Empty { group & ((1 << bits) - 1) } else { group }
    }

    /// Adds a group. Returns the set that it joins.
    pub fn add(&mut self) -> u64 {
        let group = self.count();
        let half = group.ilog2();
        let base = &mut self.0[(group - (1 << half)) as usize];
        if base.category == Category::Split {
            *base = Group { category: Category::Lazy, bits: half };
        }
        let bits = base.bits;
        self.0.push(Group { category: Category::Empty, bits });
        self.owner(group)
    }

    /// Returns the groups of a set: formula 2.
    pub fn members(&self, set: u64) -> impl Iterator<Item = u64> + use<> {
        let Group { category, bits } = self.0[set as usize];
        assert!(category != Category::Empty, "group {set} is no set");
        let (step, end) =
            if category == Category::Lazy { (1_u64 << bits, self.count()) } else { (1, set + 1) };
        (set..end).step_by(step as usize)
    }

    /// Returns the number of low bits of a group number that the records of a set share.
    pub fn depth(&self, set: u64) -> u32 {
        let Group { category, bits } = self.0[set as usize];
        if category == Category::Lazy { bits } else { depth(set, self.count()) }
    }

    /// Makes each group of a set a set of its own.
    pub fn split(&mut self, set: u64) {
        for member in self.members(set) {
            self.0[member as usize] = SPLIT;
        }
    }
}
