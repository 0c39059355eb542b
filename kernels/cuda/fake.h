#ifndef HA_KERNELS_CUDA_FAKE_H
#define HA_KERNELS_CUDA_FAKE_H

/* For the stand-ins of libraries, which tests load. */

#define EXPORT __attribute__((visibility("default")))

/* An entry of the library, declared and begun: what follows is its body. */
#define ENTRY_OF(type, name, ...)  \
    EXPORT type name(__VA_ARGS__); \
    type name(__VA_ARGS__)
#define ENTRY(name, ...) ENTRY_OF(int, name, __VA_ARGS__)

#endif
