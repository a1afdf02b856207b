# The functions that the host target's `core` expects from a C library. In assembly: the compiler could turn a loop in Rust
# into a call of the function that contains it.
.text
.globl memcpy
memcpy:
    movq %rdi, %rax
forwards:                         # words, then the remaining bytes
    movq %rdx, %rcx
    shrq $3, %rcx
    rep movsq
    movl %edx, %ecx
    andl $7, %ecx
    rep movsb
    ret

.globl memmove
memmove:
    movq %rdi, %rax
    movq %rdi, %rcx
    subq %rsi, %rcx
    cmpq %rdx, %rcx
    jae forwards
    leaq -1(%rdi, %rdx), %rdi     # the end of the source would be overwritten: go backwards
    leaq -1(%rsi, %rdx), %rsi
    std
    movl %edx, %ecx
    andl $7, %ecx
    rep movsb
    subq $7, %rdi
    subq $7, %rsi
    movq %rdx, %rcx
    shrq $3, %rcx
    rep movsq
    cld
    ret

.globl memset
memset:
    movq %rdi, %r8
    movl %esi, %eax
    movq %rdx, %rcx
    rep stosb
    movq %r8, %rax
    ret

.globl memcmp, bcmp
memcmp:
bcmp:
    xorl %eax, %eax
    xorl %ecx, %ecx
1:  cmpq %rdx, %rcx
    je 2f
    movzbl (%rdi, %rcx), %eax
    movzbl (%rsi, %rcx), %r8d
    incq %rcx
    subl %r8d, %eax
    je 1b
2:  ret

.globl strlen
strlen:
    xorl %eax, %eax
1:  cmpb $0, (%rdi, %rax)
    je 2f
    incq %rax
    jmp 1b
2:  ret
