/* Operations that change what they have read. */

#include "suites/defects/wrong.h"

#include "harness/base/operands.h"

static struct ha_device_api right; /* with the entries of the other files */

static void count_later(struct ha_wrong_later *l) { *(unsigned char *)(void *)l->u.word += 1; }

enum ha_status ha_wrong_count_up(struct ha_stream *s, const void *at)
{
    struct ha_wrong_later *l = ha_wrong_later(count_later, NULL, 0);
    l->u.word = (uint32_t *)(uintptr_t)at;
    return ha_wrong_on(s, l);
}

/* the first operand that is read */
static void find(void *arg, const char *role, enum ha_access access, struct ha_range range)
{
    const void **at = arg;
    if (access == HA_READ && !*at) *at = range.at;
}

#define OPERATION(name, type, operands)                                              \
    static enum ha_status wrong_##name(struct ha_stream *s, const struct type *args) \
    {                                                                                \
        const void *at = NULL;                                                       \
        if (IS(input_changed)) ha_operands_##operands(args, find, &at);              \
        const enum ha_status status = right.name(s, args);                           \
        return at && status == HA_OK ? ha_wrong_count_up(s, at) : status;            \
    }
HA_OPERATIONS(OPERATION)

void ha_wrong_inputs(struct ha_device_api *api)
{
    right = *api;
#define USE(name, type, operands) api->name = wrong_##name;
    HA_OPERATIONS(USE)
}
