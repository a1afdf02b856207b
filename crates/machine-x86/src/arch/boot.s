# From the emulator's entry in 32-bit mode to `kernel_main`, and from a CPU's start in 16-bit mode to `cpu_main`.
#
# Both load the same first tables: the lowest 4 GiB at 0 (where this code runs) and at DIRECT, and the first GiB 2 GiB below
# the top. `arch::paging` replaces them.

# The note by which an emulator finds a 32-bit entry point in a 64-bit image (PVH, type 18).
.section .note.pvh, "a", @note
.align 4
.long 4, 4, 18
.asciz "Xen"
.long boot_start

.section .boot, "awx", @progbits
.code32
.globl boot_start
boot_start:                       # ebx: the PVH start info
    cli
    cld
    movl $boot_stack_end, %esp
    movl %ebx, boot_info
    movl %cr4, %eax
    orl $0x620, %eax              # PAE, OSFXSR, OSXMMEXCPT
    movl %eax, %cr4
    movl $boot_root, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx        # EFER: LME, NXE
    rdmsr
    orl $0x900, %eax
    wrmsr
    movl %cr0, %eax
    andl $0xfffffffb, %eax        # not EM
    orl $0x80010003, %eax         # PG, WP, MP, PE
    movl %eax, %cr0
    lgdt boot_gdt_pointer
    ljmp $8, $1f
.code64
1:  movw $16, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    xorl %eax, %eax
    movw %ax, %fs
    movw %ax, %gs
    movabsq $bss_start, %rdi
    movabsq $bss_end, %rcx
    subq %rdi, %rcx
    rep stosb
    movabsq $first_stack_end, %rsp
    xorl %ebp, %ebp
    movl boot_info, %edi
    movabsq $kernel_main, %rax
    callq *%rax
2:  hlt
    jmp 2b

.align 8
boot_gdt:
    .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff
boot_gdt_pointer:
    .word 23
    .long boot_gdt
boot_info:
    .long 0
.align 16
    .skip 256
boot_stack_end:

.align 4096
boot_root:
    .quad boot_low + 3
    .skip 255 * 8
    .quad boot_low + 3            # 256: DIRECT
    .skip 254 * 8
    .quad boot_high + 3           # 511
boot_low:
    .quad boot_pages + 3, boot_pages + 4096 + 3, boot_pages + 8192 + 3, boot_pages + 12288 + 3
    .skip 508 * 8
boot_high:
    .skip 510 * 8
    .quad boot_pages + 3, 0
boot_pages:
    .set i, 0
    .rept 2048
    .if i >= 2032
    .quad (i << 21) | 0x9b        # device registers below 4 GiB: not cached
    .else
    .quad (i << 21) | 0x83
    .endif
    .set i, i + 1
    .endr

# The entry of the other CPUs. Copied to START_PAGE (see `arch::smp`), so every address in it is relative to that.
.set START_PAGE, 0x8000
.section .rodata.start_page, "a", @progbits
.globl start_page_begin, start_page_end, start_page_stack, start_page_cpu
.code16
start_page_begin:
    cli
    xorw %ax, %ax
    movw %ax, %ds
    lgdtl START_PAGE + (start_gdt_pointer - start_page_begin)
    movl %cr4, %eax
    orl $0x620, %eax
    movl %eax, %cr4
    movl $boot_root, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx
    rdmsr
    orl $0x900, %eax
    wrmsr
    movl %cr0, %eax
    andl $0x9ffffffb, %eax        # not CD, NW (a reset sets them), EM
    orl $0x80010003, %eax
    movl %eax, %cr0
    ljmpl $8, $(START_PAGE + (start_long - start_page_begin))
.code64
start_long:
    movw $16, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    xorl %eax, %eax
    movw %ax, %fs
    movw %ax, %gs
    movq START_PAGE + (start_page_stack - start_page_begin), %rsp
    movq START_PAGE + (start_page_cpu - start_page_begin), %rdi
    xorl %ebp, %ebp
    movabsq $cpu_main, %rax
    callq *%rax
.align 8
start_gdt:
    .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff
start_gdt_pointer:
    .word 23
    .long START_PAGE + (start_gdt - start_page_begin)
.align 8
start_page_stack:
    .quad 0
start_page_cpu:
    .quad 0
start_page_end:

.section .bss.first_stack, "aw", @nobits
.align 4096
    .skip 131072
first_stack_end:
.text
