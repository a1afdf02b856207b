//! **ChampSim** reads instructions of 64 bytes each, without a header, little-endian:
//!
//! ```text
//! u64 address, u8 is_branch, u8 branch_taken, 2 × u8 and 4 × u8 registers,
//! 2 × u64 addresses that it stores to, 4 × u64 addresses that it loads from (0: none)
//! ```
//!
//! Traces that are published are compressed with xz, sometimes with gzip. How many bytes are loaded and stored is not
//! known: one is taken. Source: `input_instr` in ChampSim's `inc/trace_instruction.h`.

use abi::AccessKind;

use super::error::ImportError;
use super::input::Input;
use super::step::{Sink, Step};

/// Bytes of an instruction.
const RECORD: usize = 64;

/// Read instructions.
pub(super) fn read(mut input: Input, sink: &mut Sink<'_>) -> Result<(), ImportError> {
    let mut record = [0; RECORD];
    loop {
        let at = input.at();
        if !input.record(&mut record)? {
            return Ok(());
        }
        if record[8] > 1 || record[9] > 1 {
            let flags = [record[8], record[9]];
            return Err(input.refuse(
                at,
                format!(
                    "not an instruction of ChampSim's: its two branch flags are 0 or 1, these are {flags:?}"
                ),
            ));
        }
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| record[at + byte]));
        let mut access = |addr, mode| match addr {
            0 => Ok(()),
            addr => sink(Step::Access { task: 0, addr, bytes: 1, mode, times: 1 }),
        };
        access(word(0), AccessKind::Fetch)?;
        for source in 0..4 {
            access(word(32 + 8 * source), AccessKind::Load)?;
        }
        for destination in 0..2 {
            access(word(16 + 8 * destination), AccessKind::Store)?;
        }
        sink(Step::Instructions { task: 0, count: 1 })?;
    }
}
