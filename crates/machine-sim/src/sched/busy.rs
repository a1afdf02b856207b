//! A set of CPUs.

/// The CPUs that have a task, one bit each: every step looks for the earliest of them.
pub(super) struct Busy(Vec<u64>);

impl Busy {
    pub(super) fn of(cpus: usize) -> Busy {
        Busy(vec![0; cpus.div_ceil(u64::BITS as usize)])
    }

    pub(super) fn set(&mut self, cpu: usize, busy: bool) {
        let (word, bit) = (&mut self.0[cpu / u64::BITS as usize], 1 << (cpu % u64::BITS as usize));
        if busy { *word |= bit } else { *word &= !bit }
    }

    pub(super) fn has(&self, cpu: usize) -> bool {
        self.0[cpu / u64::BITS as usize] >> (cpu % u64::BITS as usize) & 1 != 0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(at * u64::BITS as usize + bit)
            })
        })
    }
}
