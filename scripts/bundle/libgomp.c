/* gcc's OpenMP runtime, which the bundle has inside, has no call that says how long idle threads stay awake; linked
 * statically, its own counter is in reach. The call of LLVM's runtime is written over it. */

#include <omp.h>

extern unsigned long long gomp_spin_count_var; /* looks of a thread before it sleeps, of all threads */

enum { LOOKS_PER_MS = 30000 }; /* 25 to 60 ns each, by CPU */

/* A thread of a region cannot have a time of its own here. Hidden: plugins may bring that runtime. */
__attribute__((visibility("hidden"))) void kmp_set_blocktime(int ms)
{
    if (!omp_in_parallel()) gomp_spin_count_var = (unsigned long long)ms * LOOKS_PER_MS;
}
