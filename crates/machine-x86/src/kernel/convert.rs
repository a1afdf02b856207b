//! Words of programs in words of the memory manager.

use mm::units::{GroupId, NodeId, Nodes, PAGE_SIZE, Vpn, pages_of};
use mm::{api, mempolicy};
use program::{Advice, Errno, FileAdvice, Group, GroupLimits, MemPolicy, PolicyMode, Prot};

/// Bits of a program's address.
pub(super) const ADDRESS_BITS: u32 = 47;

pub(super) fn errno(error: api::Error) -> Errno {
    match error {
        api::Error::NoMemory | api::Error::Killed => Errno::NoMem,
        api::Error::Invalid => Errno::Inval,
        api::Error::Access => Errno::Access,
        api::Error::NotFound => Errno::NoEnt,
        api::Error::NotMapped => Errno::Fault,
        api::Error::NoSpace => Errno::NoSpc,
        api::Error::Again => Errno::Again,
        api::Error::Busy => Errno::Busy,
    }
}

pub(super) fn prot(prot: Prot) -> api::Prot {
    let flag = |on: bool, bit: api::Prot| if on { bit } else { api::Prot::empty() };
    flag(prot.read, api::Prot::READ) | flag(prot.write, api::Prot::WRITE) | flag(prot.exec, api::Prot::EXEC)
}

pub(super) fn advice(advice: Advice) -> api::Advice {
    match advice {
        Advice::Normal => api::Advice::Normal,
        Advice::Random => api::Advice::Random,
        Advice::Sequential => api::Advice::Sequential,
        Advice::WillNeed => api::Advice::WillNeed,
        Advice::DontNeed => api::Advice::DontNeed,
        Advice::Free => api::Advice::Free,
        Advice::Cold => api::Advice::Cold,
        Advice::PageOut => api::Advice::PageOut,
        Advice::HugePage => api::Advice::HugePage,
        Advice::NoHugePage => api::Advice::NoHugePage,
        Advice::Collapse => api::Advice::Collapse,
    }
}

pub(super) fn file_advice(advice: FileAdvice) -> api::FileAdvice {
    match advice {
        FileAdvice::Normal => api::FileAdvice::Normal,
        FileAdvice::Random => api::FileAdvice::Random,
        FileAdvice::Sequential => api::FileAdvice::Sequential,
        FileAdvice::WillNeed => api::FileAdvice::WillNeed,
        FileAdvice::DontNeed => api::FileAdvice::DontNeed,
        FileAdvice::NoReuse => api::FileAdvice::NoReuse,
    }
}

pub(super) fn node(node: u32) -> Result<NodeId, Errno> {
    u8::try_from(node).map(NodeId).map_err(|_| Errno::NoEnt)
}

pub(super) fn mem_policy(policy: MemPolicy) -> Result<mempolicy::MemPolicy, Errno> {
    let mode = match policy.mode {
        PolicyMode::Default => mempolicy::PolicyMode::Default,
        PolicyMode::Preferred => mempolicy::PolicyMode::Preferred,
        PolicyMode::Bind => mempolicy::PolicyMode::Bind,
        PolicyMode::Interleave => mempolicy::PolicyMode::Interleave,
    };
    mempolicy::MemPolicy::new(mode, Nodes(policy.nodes)).ok_or(Errno::Inval)
}

pub(super) fn group(group: Group) -> Result<GroupId, Errno> {
    u16::try_from(group.0).map(GroupId).map_err(|_| Errno::NoEnt)
}

pub(super) fn group_limits(limits: GroupLimits) -> api::GroupLimits {
    let GroupLimits { max, high, low, min, swap_max } = limits;
    api::GroupLimits::of_bytes(max, high, low, min, swap_max)
}

/// Pages of a range given in bytes, if it is one.
pub(super) fn range(addr: u64, len: u64) -> Result<(Vpn, u64), Errno> {
    let end = addr.checked_add(len).filter(|&end| end <= 1 << ADDRESS_BITS);
    match end {
        Some(_) if addr.is_multiple_of(PAGE_SIZE) && len > 0 => Ok((Vpn::of(addr), pages_of(len))),
        _ => Err(Errno::Inval),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_whole_pages_of_a_programs_addresses() {
        assert_eq!(range(0x1000, 1), Ok((Vpn(1), 1)));
        assert_eq!(range((1 << 47) - 4096, 4096).map(|(_, pages)| pages), Ok(1));
        for (addr, len) in [(1, 4096), (0, 0), (1 << 47, 1), (4096, u64::MAX), (0, u64::MAX)] {
            assert_eq!(range(addr, len), Err(Errno::Inval));
        }
    }
}
