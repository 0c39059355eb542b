#ifndef HA_KERNELS_CUDA_LIBRARY_H
#define HA_KERNELS_CUDA_LIBRARY_H

/* Libraries that are loaded at run time. Each is declared by a list of X(member, symbol, result, (parameters)), from
 * which a struct of pointers and the table of their names are made. */

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

struct ha_cuda_symbol {
    const char *name;
    size_t offset; /* of its pointer in the struct */
};
#define HA_CUDA_MEMBER(member, symbol, result, parameters) result(*member) parameters;
#define HA_CUDA_SYMBOL(member, symbol, result, parameters) { symbol, offsetof(struct entries, member) },

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

#endif
