#include "kernels/cuda/emulation/simt_fiber.h"

#include <stdint.h>
#include <sys/mman.h>

/* There when the program was linked with the sanitizer. */
#define WEAK __attribute__((weak, visibility("default")))
extern void __sanitizer_start_switch_fiber(void **fake, const void *bottom, size_t bytes) WEAK;
extern void __sanitizer_finish_switch_fiber(void *fake, const void **old_bottom, size_t *old_bytes) WEAK;
extern void *__tsan_get_current_fiber(void) WEAK;
extern void *__tsan_create_fiber(unsigned flags) WEAK;
extern void __tsan_destroy_fiber(void *fiber) WEAK;
extern void __tsan_switch_to_fiber(void *fiber, unsigned flags) WEAK;
extern void __tsan_acquire(void *address) WEAK;
extern void __tsan_release(void *address) WEAK;
enum { TSAN_NO_SYNC = 1 };

/* The registers that a called function has to keep go onto the stack, whose pointer is exchanged. `ret` and not a jump:
 * fibers wait in the same few places, so that the processor's stack of return addresses guesses right. */
void ha_fiber_swap(void **from_sp, void *to_sp);

#if defined __x86_64__
enum { RETURN = 6, FRAME = 8 }; /* rbp rbx r12-r15, return address, and one for the alignment of a call */
__asm__(".text\n"
        ".p2align 4\n"
        ".globl ha_fiber_swap\n"
        ".hidden ha_fiber_swap\n"
        ".type ha_fiber_swap, @function\n"
        "ha_fiber_swap:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size ha_fiber_swap, .-ha_fiber_swap\n");
#elif defined __aarch64__
enum { RETURN = 1, FRAME = 20 }; /* x29 x30 x19-x28 d8-d15 */
__asm__(".text\n"
        ".p2align 4\n"
        ".globl ha_fiber_swap\n"
        ".hidden ha_fiber_swap\n"
        ".type ha_fiber_swap, %function\n"
        "ha_fiber_swap:\n"
        "  sub sp, sp, #160\n"
        "  stp x29, x30, [sp]\n  stp x19, x20, [sp, #16]\n  stp x21, x22, [sp, #32]\n  stp x23, x24, [sp, #48]\n"
        "  stp x25, x26, [sp, #64]\n  stp x27, x28, [sp, #80]\n"
        "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
        "  mov x9, sp\n"
        "  str x9, [x0]\n"
        "  mov sp, x1\n"
        "  ldp x29, x30, [sp]\n  ldp x19, x20, [sp, #16]\n  ldp x21, x22, [sp, #32]\n  ldp x23, x24, [sp, #48]\n"
        "  ldp x25, x26, [sp, #64]\n  ldp x27, x28, [sp, #80]\n"
        "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
        "  add sp, sp, #160\n"
        "  ret\n"
        ".size ha_fiber_swap, .-ha_fiber_swap\n");
#else
#error "the emulation needs a switch of stacks for this processor: see ha_fiber_swap"
#endif

/* A sanitizer's report is written on the stack of the fiber that it is about. */
static size_t stack_bytes(void)
{
    return __sanitizer_start_switch_fiber || __tsan_create_fiber ? (size_t)512 << 10 : (size_t)128 << 10;
}

enum { GUARD = 1 << 16, COLOURS = 64, LINE = 64 }; /* a multiple of every page size in use */

void ha_fiber_thread(struct ha_fiber *fiber)
{
    *fiber = (struct ha_fiber){ .tsan = __tsan_get_current_fiber ? __tsan_get_current_fiber() : NULL };
}

bool ha_fiber_make(struct ha_fiber *fiber, unsigned colour, void (*entry)(void))
{
    const size_t bytes = stack_bytes();
    char *map = mmap(NULL, GUARD + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (map == MAP_FAILED) return false;
    if (mprotect(map, GUARD, PROT_NONE)) {
        munmap(map, GUARD + bytes);
        return false;
    }
    uintptr_t *sp = (uintptr_t *)(void *)(map + GUARD + bytes - colour % COLOURS * LINE) - FRAME;
    sp[RETURN] = (uintptr_t)entry;
    *fiber = (struct ha_fiber){ .sp = sp,
                                .bottom = map + GUARD,
                                .bytes = bytes,
                                .map = map,
                                .tsan = __tsan_create_fiber ? __tsan_create_fiber(0) : NULL };
    return true;
}

void ha_fiber_destroy(struct ha_fiber *fiber)
{
    if (__tsan_destroy_fiber) __tsan_destroy_fiber(fiber->tsan);
    munmap(fiber->map, GUARD + fiber->bytes);
}

void ha_fiber_entered(struct ha_fiber *self)
{
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(self->fake, &self->from->bottom, &self->from->bytes);
}

void ha_fiber_switch(struct ha_fiber *from, struct ha_fiber *to)
{
    to->from = from;
    if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(&from->fake, to->bottom, to->bytes);
    if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(to->tsan, TSAN_NO_SYNC);
    ha_fiber_swap(&from->sp, to->sp);
    ha_fiber_entered(from);
}

bool ha_fiber_watched(void) { return __tsan_create_fiber != NULL; }
void ha_fiber_release(void *address)
{
    if (__tsan_release) __tsan_release(address);
}
void ha_fiber_acquire(void *address)
{
    if (__tsan_acquire) __tsan_acquire(address);
}
