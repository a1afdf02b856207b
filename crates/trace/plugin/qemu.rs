//! The part of QEMU's plugin interface, version 1, that is used here. It is declared by hand, because distributions
//! ship the interface in the emulator but not its header.

use std::ffi::{c_char, c_int, c_uint, c_void};

pub type PluginId = u64;

/// A block being translated; only QEMU knows its content.
#[repr(C)]
pub struct Block {
    _opaque: [u8; 0],
}

/// An instruction of a block.
#[repr(C)]
pub struct Instruction {
    _opaque: [u8; 0],
}

/// What QEMU says about itself when the plugin is installed.
#[repr(C)]
pub struct Info {
    pub target_name: *const c_char,
    pub version_min: c_int,
    pub version_cur: c_int,
    pub system_emulation: bool,
    pub smp_vcpus: c_int,
    pub max_vcpus: c_int,
}

/// `QEMU_PLUGIN_CB_NO_REGS`: the callback does not look at registers.
pub const NO_REGS: c_int = 0;
/// `QEMU_PLUGIN_MEM_RW`: report loads and stores. (QEMU 7.2 reports some twice if each kind is registered separately.)
pub const MEM_RW: c_int = 3;

pub type VcpuCallback = extern "C" fn(PluginId, c_uint);
pub type TranslateCallback = extern "C" fn(PluginId, *mut Block);
pub type ExecuteCallback = extern "C" fn(c_uint, *mut c_void);
pub type MemoryCallback = extern "C" fn(c_uint, u32, u64, *mut c_void);
pub type SyscallCallback = extern "C" fn(PluginId, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
pub type SyscallReturnCallback = extern "C" fn(PluginId, c_uint, i64, i64);
pub type ExitCallback = extern "C" fn(PluginId, *mut c_void);

unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_exit_cb(id: PluginId, callback: VcpuCallback);
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: PluginId, callback: TranslateCallback);
    pub fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Block,
        callback: ExecuteCallback,
        flags: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut Instruction,
        callback: ExecuteCallback,
        flags: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        callback: MemoryCallback,
        flags: c_int,
        which: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_syscall_cb(id: PluginId, callback: SyscallCallback);
    pub fn qemu_plugin_register_vcpu_syscall_ret_cb(id: PluginId, callback: SyscallReturnCallback);
    pub fn qemu_plugin_register_atexit_cb(id: PluginId, callback: ExitCallback, data: *mut c_void);
    pub fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub fn qemu_plugin_tb_vaddr(block: *const Block) -> u64;
    pub fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    pub fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    pub fn qemu_plugin_mem_size_shift(info: u32) -> c_uint;
    pub fn qemu_plugin_mem_is_store(info: u32) -> bool;
}
