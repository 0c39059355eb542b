/* A stand-in for libgdrapi.so.2. A mapping is a copy of the pages elsewhere, which goes back when it is unmapped, so
 * that a wrong offset or size shows. */

#include "kernels/cuda/fake.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 65536, PINS = 8 };

struct gdr_mh_s {
    unsigned long h;
};

/* what the test sees: which call is to fail, and what is under way */
extern EXPORT int gdr_test_fails, gdr_test_opened, gdr_test_pinned, gdr_test_mapped, gdr_test_misused;
int gdr_test_fails, gdr_test_opened, gdr_test_pinned, gdr_test_mapped, gdr_test_misused;

static struct pin {
    unsigned long address;
    size_t bytes;
    char *copy;
} pins[PINS];

ENTRY_OF(void *, gdr_open, void)
{
    if (gdr_test_fails == 1) return NULL;
    gdr_test_opened++;
    return pins;
}

ENTRY(gdr_close, void *g)
{
    gdr_test_misused += g != pins;
    gdr_test_opened--;
    return 0;
}

ENTRY(gdr_pin_buffer, void *g, unsigned long address, size_t bytes, uint64_t token, uint32_t space,
      struct gdr_mh_s *handle)
{
    if (gdr_test_fails == 2) return ENOMEM;
    gdr_test_misused += g != pins || address % PAGE || bytes % PAGE || !bytes || token || space;
    for (unsigned long i = 0; i < PINS; i++)
        if (!pins[i].bytes) {
            pins[i] = (struct pin){ address, bytes, NULL };
            handle->h = i + 1;
            gdr_test_pinned++;
            return 0;
        }
    return EBUSY;
}

static struct pin *pin_of(struct gdr_mh_s handle)
{
    const unsigned long none = handle.h - 1 >= PINS || !pins[handle.h - 1].bytes;
    gdr_test_misused += (int)none;
    return &pins[none ? 0 : handle.h - 1];
}

ENTRY(gdr_unpin_buffer, void *g, struct gdr_mh_s handle)
{
    struct pin *p = pin_of(handle);
    gdr_test_misused += g != pins || p->copy;
    p->bytes = 0;
    gdr_test_pinned--;
    return 0;
}

ENTRY(gdr_map, void *g, struct gdr_mh_s handle, void **at, size_t bytes)
{
    struct pin *p = pin_of(handle);
    if (gdr_test_fails == 3) return EAGAIN;
    gdr_test_misused += g != pins || bytes != p->bytes || p->copy;
    p->copy = aligned_alloc(PAGE, p->bytes);
    if (!p->copy) return ENOMEM;
    memcpy(p->copy, (const void *)p->address, p->bytes);
    *at = p->copy;
    gdr_test_mapped++;
    return 0;
}

ENTRY(gdr_unmap, void *g, struct gdr_mh_s handle, void *at, size_t bytes)
{
    struct pin *p = pin_of(handle);
    gdr_test_misused += g != pins || bytes != p->bytes || at != p->copy;
    memcpy((void *)p->address, p->copy, p->bytes);
    free(p->copy);
    p->copy = NULL;
    gdr_test_mapped--;
    return 0;
}
