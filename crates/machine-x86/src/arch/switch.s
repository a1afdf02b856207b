# switch_context(save, load): leave a kernel stack, noting where it stood in *save, and go on where `load` stood. What a call
# may clobber needs no saving; interrupts are off.
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

# Where a new task's stack goes on first.
.globl task_begin
task_begin:
    xorl %ebp, %ebp
    call task_main
    ud2

# probe(address): read 8 bytes. Returns 1 if they could be read, 0 if a fault ended it (the trap handler goes on at
# probe_failed).
.globl probe, probe_access, probe_failed
probe:
probe_access:
    movq (%rdi), %rax
    movl $1, %eax
    ret
probe_failed:
    xorl %eax, %eax
    ret

# red_zone_torture(rounds): keep a word in each place of the red zone while time passes; the number that changed.
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
