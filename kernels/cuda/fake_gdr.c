/* A stand-in for libgdrapi.so.2. A mapping is a copy of the pages elsewhere, which goes back when it is unmapped, so
 * that a wrong offset or size shows. By HA_EMULATED_GDR it is the pages themselves ("here"), which are memory of this
 * process, or others, from which nothing comes back ("lost"). */

#include "kernels/cuda/fake.h"
#include "kernels/cuda/fake_gdr.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 65536, PINS = 64 };

struct gdr_mh_s {
    unsigned long h;
};

extern EXPORT struct fake_gdr fake_gdr;
struct fake_gdr fake_gdr;

static struct pin {
    unsigned long address;
    size_t bytes;
    char *copy;
} pins[PINS];

static int mode_is(const char *word)
{
    const char *mode = getenv("HA_EMULATED_GDR");
    return mode && !strcmp(mode, word);
}

ENTRY_OF(void *, gdr_open, void)
{
    if (fake_gdr.fails == 1) return NULL;
    fake_gdr.opened++;
    return pins;
}

ENTRY(gdr_close, void *g)
{
    fake_gdr.misused += g != pins;
    fake_gdr.opened--;
    return 0;
}

ENTRY(gdr_pin_buffer, void *g, unsigned long address, size_t bytes, uint64_t token, uint32_t space,
      struct gdr_mh_s *handle)
{
    if (fake_gdr.fails == 2) return ENOMEM;
    fake_gdr.misused += g != pins || address % PAGE || bytes % PAGE || !bytes || token || space;
    for (unsigned long i = 0; i < PINS; i++)
        if (!pins[i].bytes) {
            pins[i] = (struct pin){ address, bytes, NULL };
            handle->h = i + 1;
            fake_gdr.pinned++;
            return 0;
        }
    return EBUSY;
}

static struct pin *pin_of(struct gdr_mh_s handle)
{
    const unsigned long none = handle.h - 1 >= PINS || !pins[handle.h - 1].bytes;
    fake_gdr.misused += (int)none;
    return &pins[none ? 0 : handle.h - 1];
}

ENTRY(gdr_unpin_buffer, void *g, struct gdr_mh_s handle)
{
    struct pin *p = pin_of(handle);
    fake_gdr.misused += g != pins || p->copy;
    p->bytes = 0;
    fake_gdr.pinned--;
    return 0;
}

ENTRY(gdr_map, void *g, struct gdr_mh_s handle, void **at, size_t bytes)
{
    struct pin *p = pin_of(handle);
    if (fake_gdr.fails == 3) return EAGAIN;
    fake_gdr.misused += g != pins || bytes != p->bytes || p->copy;
    p->copy = mode_is("here") ? (char *)p->address : aligned_alloc(PAGE, p->bytes);
    if (!p->copy) return ENOMEM;
    if (!getenv("HA_EMULATED_GDR")) memcpy(p->copy, (const void *)p->address, p->bytes);
    *at = p->copy;
    fake_gdr.mapped++;
    return 0;
}

ENTRY(gdr_unmap, void *g, struct gdr_mh_s handle, void *at, size_t bytes)
{
    struct pin *p = pin_of(handle);
    fake_gdr.misused += g != pins || bytes != p->bytes || at != p->copy;
    if (!getenv("HA_EMULATED_GDR")) memcpy((void *)p->address, p->copy, p->bytes);
    if (!mode_is("here")) free(p->copy);
    p->copy = NULL;
    fake_gdr.mapped--;
    return 0;
}
