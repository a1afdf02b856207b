//! The frame of a trap.

/// The caller-saved registers of the interrupted code, as the stubs push them.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
#[allow(missing_docs, reason = "the names are the registers'")]
pub struct Frame {
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rax: u64,
    pub vector: u64,
    pub error: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
}

impl Frame {
    /// Whether it is from ring 3.
    pub fn is_user(&self) -> bool {
        self.cs & 3 == 3
    }
}

const _: () = assert!(size_of::<Frame>() == 128);
