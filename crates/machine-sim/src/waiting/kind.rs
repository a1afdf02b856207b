//! Kinds of cache lines that CPUs fetch from each other.

/// What a line holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LineKind {
    /// A lock of a class.
    Lock,
    /// The heads of the lists that such a lock protects, if they are not in its line.
    Lists,
    /// A frame's record.
    Frame,
    /// The lock of a mapped range.
    Vma,
    /// The CPUs of a space.
    CpuMask,
    /// The pages that are charged to a group.
    GroupUsage,
}

impl LineKind {
    pub(super) const ALL: [LineKind; 6] = [
        LineKind::Lock,
        LineKind::Lists,
        LineKind::Frame,
        LineKind::Vma,
        LineKind::CpuMask,
        LineKind::GroupUsage,
    ];

    /// Its name in results.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            LineKind::Lock => "lock_line",
            LineKind::Lists => "list_line",
            LineKind::Frame => "frame_line",
            LineKind::Vma => "vm_lock_line",
            LineKind::CpuMask => "mm_cpumask_line",
            LineKind::GroupUsage => "page_counter_line",
        }
    }
}
