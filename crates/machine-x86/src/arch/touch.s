# Accesses that may fault, in ring 0 and in ring 3. Each returns 0 in rax, and the word that it read in rdx. After a fault that
# cannot be handled, execution continues at touch_failed, with the error in rax (see touch.rs).
.text
.globl touch_load
touch_load:                     # touch_load(address)
    movq (%rdi), %rdx
    xorl %eax, %eax
    ret

.globl touch_store
touch_store:                    # touch_store(address, word)
    movq %rsi, (%rdi)
    xorl %eax, %eax
    ret

.globl touch_fetch, touch_fetched
touch_fetch:                    # touch_fetch(address): run the code there, which must return and change no register
    call *%rdi
touch_fetched:
    xorl %eax, %eax
    ret

.globl touch_failed_fetch, touch_failed
touch_failed_fetch:
    addq $8, %rsp
touch_failed:
    ret
