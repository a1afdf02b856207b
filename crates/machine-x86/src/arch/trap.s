# Kernel entry: 256 stubs for exceptions and interrupts, and the system call. `arch::trap` explains the rules.
#
# A frame, from its lowest address: r11 r10 r9 r8 rdi rsi rdx rcx rax vector error rip cs rflags rsp ss. Functions,
# and so the handlers, preserve the other registers.
.set FRAME, 128
.set AT_VECTOR, 72
.set AT_RIP, 88
.set AT_CS, 96
.set AT_RSP, 112
.set RED_ZONE, 128
# Offsets in `arch::cpu::Cpu`, which gs points to in ring 0.
.set CPU_KERNEL_STACK, 8
.set CPU_USER_RSP, 16

.macro push_registers
    pushq %rax
    pushq %rcx
    pushq %rdx
    pushq %rsi
    pushq %rdi
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
.endm

.macro pop_registers
    popq %r11
    popq %r10
    popq %r9
    popq %r8
    popq %rdi
    popq %rsi
    popq %rdx
    popq %rcx
    popq %rax
.endm

.section .text_stub, "ax", @progbits
.code64
.globl trap_stubs
.align 16
trap_stubs:
    .set v, 0
    .rept 256
    .balign 16
    .if (v == 8) || (v == 10) || (v == 11) || (v == 12) || (v == 13) || (v == 14) || (v == 17) || (v == 21) || (v == 29) || (v == 30)
    .else
    pushq $0
    .endif
    pushq $v
    jmp trap_common
    .set v, v + 1
    .endr

trap_common:
    push_registers
    cld
    # Non-maskable traps may occur anywhere, also in these stubs: they are reported on their IST stack.
    movq AT_VECTOR(%rsp), %rax
    cmpq $2, %rax
    je trap_no_return
    cmpq $8, %rax
    je trap_no_return
    cmpq $18, %rax
    je trap_no_return
    testb $3, AT_CS(%rsp)
    jnz from_user
    # A fault in a stub means that a stack is bad: moving the frame there would fault again and again.
    movq AT_RIP(%rsp), %rax
    leaq stub_text_start(%rip), %rcx
    leaq stub_text_end(%rip), %rdx
    cmpq %rcx, %rax
    jb from_kernel
    cmpq %rdx, %rax
    jb trap_no_return
from_kernel:
    movq AT_RSP(%rsp), %rdi
    subq $(RED_ZONE + FRAME), %rdi
    jmp relocate
from_user:
    swapgs
    movq %gs:CPU_KERNEL_STACK, %rdi
    subq $FRAME, %rdi
relocate:
    andq $-64, %rdi
    movq %rdi, %rax
    movq %rsp, %rsi
    movl $(FRAME / 8), %ecx
    rep movsq
    movq %rax, %rsp
    movq %rsp, %rdi
    subq $512, %rsp
    fxsave64 (%rsp)
    call trap_handler
leave:
    fxrstor64 (%rsp)
    addq $512, %rsp
    testb $3, AT_CS(%rsp)
    jz 1f
    swapgs
1:  pop_registers
    addq $16, %rsp
    iretq

# A page fault, with its error code, on the task's kernel stack or, in ring 0, on the interrupted stack: aligned by hardware.
.globl page_fault_entry
page_fault_entry:
    pushq $14
    push_registers
    cld
    testb $3, AT_CS(%rsp)
    jz 1f
    swapgs
1:  movq %rsp, %rdi
    subq $512, %rsp
    fxsave64 (%rsp)
    call page_fault_handler
    jmp leave

# A request to drop translations. It is handled on its IST stack: the handler does not wait, takes no lock, and leaves other work
# before the return to ring 3 to the interrupt that requested that work.
.globl shootdown_entry
shootdown_entry:
    subq $16, %rsp
    push_registers
    cld
    testb $3, AT_CS(%rsp)
    jz 1f
    swapgs
1:  subq $512, %rsp
    fxsave64 (%rsp)
    call shootdown_handler
    jmp leave

trap_no_return:
    movq %rsp, %rdi
    andq $-64, %rsp
    call trap_fatal

# The system call: the same frame, without xmm registers, which the caller does not expect to be preserved.
.globl syscall_entry
syscall_entry:
    swapgs
    movq %rsp, %gs:CPU_USER_RSP
    movq %gs:CPU_KERNEL_STACK, %rsp
    pushq $0x1b
    pushq %gs:CPU_USER_RSP
    pushq %r11
    pushq $0x23
    pushq %rcx
    pushq $0
    pushq $256
    push_registers
    cld
    movq %rsp, %rdi
    call syscall_handler
    pop_registers
    movq 16(%rsp), %rcx
    movq 32(%rsp), %r11
    movq 40(%rsp), %rsp
    swapgs
    sysretq

# user_start(frame): enter ring 3 with the registers of a frame.
.globl user_start
user_start:
    movq %rdi, %rsp
    xorl %ebx, %ebx
    xorl %ebp, %ebp
    xorl %r12d, %r12d
    xorl %r13d, %r13d
    xorl %r14d, %r14d
    xorl %r15d, %r15d
    swapgs
    pop_registers
    addq $16, %rsp
    iretq
.text
