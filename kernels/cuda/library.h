#ifndef HA_KERNELS_CUDA_LIBRARY_H
#define HA_KERNELS_CUDA_LIBRARY_H

/* Libraries that are loaded at run time. Each is declared by a list of X(member, symbol, result, (parameters)), from
 * which a struct of pointers and the table of their names are made. */

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

struct ha_cuda_symbol {
    const char *name;
    size_t offset; /* of its pointer in the struct */
};
#define HA_CUDA_MEMBER(member, symbol, result, parameters) result(*member) parameters;
#define HA_CUDA_SYMBOL(member, symbol, result, parameters) { #symbol, offsetof(struct entries, member) },
/* Where the library's own header is there: the entry takes and gives pointers where ours does, and numbers of the same
 * size. gcc says where it does not (-Wcast-function-type). */
#define HA_CUDA_SAME(member, symbol, result, parameters) (void)(result(*) parameters)symbol;

/* Fills in the pointers; what the library lacks is NULL. NULL, or which of the first `needed` ones that is. */
static inline const char *ha_cuda_look_up(void *library, void *entries, const struct ha_cuda_symbol *symbols,
                                          size_t count, size_t needed)
{
    for (size_t i = 0; i < count; i++) {
        void *found = dlsym(library, symbols[i].name);
        if (!found && i < needed) return symbols[i].name;
        memcpy((char *)entries + symbols[i].offset, &found, sizeof found);
    }
    return NULL;
}

/* Where a library of the toolkit may be. Loads the next one that there is of names, which end in NULL: as the loader
 * finds them, in their order, then in the folders of $CUDA_HOME, $CUDA_PATH and /usr/local/cuda. *at: 0 before the
 * first. NULL: there are no more. One that lacks a symbol of a library that it uses is passed over here, and does not
 * end the process when it is called. */
void *ha_cuda_library_next(const char *const *names, size_t *at);
/* The toolkit that this was built with goes first: a driver may be too old for a newer one. */
#if CUDART_VERSION >= 13000
#define HA_CUDA_NAMES(name) name ".13", name ".12"
#else
#define HA_CUDA_NAMES(name) name ".12", name ".13"
#endif

#endif
