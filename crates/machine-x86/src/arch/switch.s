# switch_context(save, load): store the stack pointer in *save and continue with the stack pointer `load`. Registers that a call
# may clobber need no saving; interrupts are off.
.text
.globl switch_context
switch_context:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret

# The first return address on a new task's stack.
.globl task_begin
task_begin:
    xorl %ebp, %ebp
    call task_main
    ud2

# probe(address): read 8 bytes. Returns 1 if that succeeded, 0 if it faulted (the trap handler continues at probe_failed).
.globl probe, probe_access, probe_failed
probe:
probe_access:
    movq (%rdi), %rax
    movl $1, %eax
    ret
probe_failed:
    xorl %eax, %eax
    ret

# red_zone_torture(rounds): keep values in all words of the red zone while time passes; returns the number of changed words.
.globl red_zone_torture
red_zone_torture:
    xorl %eax, %eax
1:  .set o, 8
    .rept 16
    movq %rdi, -o(%rsp)
    .set o, o + 8
    .endr
    movl $200, %ecx
2:  decl %ecx
    jnz 2b
    .set o, 8
    .rept 16
    cmpq %rdi, -o(%rsp)
    je 3f
    incq %rax
3:
    .set o, o + 8
    .endr
    decq %rdi
    jnz 1b
    ret

# vector_torture(rounds): the same for three vector registers.
.globl vector_torture
vector_torture:
    xorl %eax, %eax
1:  movq %rdi, %xmm0
    movq %rdi, %xmm5
    movq %rdi, %xmm15
    movl $400, %ecx
2:  decl %ecx
    jnz 2b
    movq %xmm0, %rdx
    cmpq %rdx, %rdi
    je 3f
    incq %rax
3:  movq %xmm5, %rdx
    cmpq %rdx, %rdi
    je 3f
    incq %rax
3:  movq %xmm15, %rdx
    cmpq %rdx, %rdi
    je 3f
    incq %rax
3:  decq %rdi
    jnz 1b
    ret
