//! How calls fail.

use crate::numbered;

numbered! {
    /// Why a call was refused. The names are errno's.
    Errno {
        /// No memory, even after reclaim; or the process has been killed.
        NoMem = 12,
        /// Bad argument.
        Inval = 22,
        /// Not permitted (for example, a shared writable mapping of a read-only file).
        Access = 13,
        /// No such file, group or process.
        NoEnt = 2,
        /// Bad file descriptor.
        BadF = 9,
        /// The range is not mapped or the address is bad.
        Fault = 14,
        /// In use.
        Busy = 16,
        /// No space on the device.
        NoSpc = 28,
        /// Try again later.
        Again = 11,
        /// A device could not read or write it.
        Io = 5,
        /// This machine does not offer the call.
        NoSys = 38,
    }
}
