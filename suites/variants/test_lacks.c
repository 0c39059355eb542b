/* What a device, a dataset or a fit lacks is said before a pass begins; what a case does not need may be missing. */

#include "suites/variants/test_session.h"

#include <stddef.h>

#define LACKS(operation) offsetof(struct ha_device_api, operation)
enum { NOTHING = 0, MAPPED = 1, WINDOW = 2 }; /* no operation's place: that of the table's name */

#define OF(name)    name ":dataset=walk,ctx=40,heads=4/2,head_dim=24,layers=2,steps=1"
#define CLO         OF("clo")
#define FLUXION     "fluxion:dataset=walk,ctx=260+700,heads=4/2,head_dim=16,layers=2,steps=1,sink=16,recent=32"
#define NET         "fluxion:dataset=walk,ctx=700,heads=8/2,layers=4,steps=1"
#define HCATTENTION "hcattention:dataset=iid,ctx=9,heads=4/2,head_dim=16,layers=2,steps=1"

static const char no_fetch[] = "the device has no operation copy_pieces; another fetch needs none",
                  no_move[] = "the device has no operation move; another fetch needs none",
                  no_mapped[] = "the device has no mapped memory: there is none",
                  no_inputs[] = "the dataset has no layer inputs to predict from: take dataset=walk, dataset=residual "
                                "or dataset=trace/english (any trace with x)";

static const struct {
    const char *id;
    size_t lacks; /* an operation's place in the table, or one of the above */
    enum ha_status status;
    const char *text;
} rows[] = {
    { OF("gpu_only") ",fetch=move", LACKS(move), HA_WAIVED, no_move },
    { OF("gpu_only") ",fetch=pieces", LACKS(copy_pieces), HA_WAIVED, no_fetch },
    { OF("gpu_only"), MAPPED, HA_WAIVED, no_mapped },
    { OF("lru_blocks") ",lookup=device", LACKS(split), HA_WAIVED,
      "the device has no operation split; lookup=cpu needs none" },
    { OF("lru_blocks") ",fetch=pieces", LACKS(copy_pieces), HA_WAIVED, no_fetch },
    { OF("lru_blocks"), MAPPED, HA_WAIVED, no_mapped },
    { OF("pqcache"), LACKS(split), HA_WAIVED, "the device has no operation split; lookup=cpu needs none" },
    { OF("pqcache") ",parts=32", NOTHING, HA_ERROR, "parts=32 does not divide head_dim=24: the most that does is 8" },
    { OF("scout"), LACKS(flag_write), HA_WAIVED, "the device has no operation flag_write" },
    { "topk:ctx=40,layers=2,steps=1,query=ahead", NOTHING, HA_WAIVED, no_inputs },
    { FLUXION ",predict=fixed,fetch=move", LACKS(move), HA_WAIVED, no_move },
    { FLUXION ",predict=fixed,fetch=pieces", LACKS(copy_pieces), HA_WAIVED, no_fetch },
    /* as where both sides meet in a merge */
    { FLUXION ",predict=fixed", MAPPED, HA_ERROR, "out of mapped memory of device host" },
    { NET ",fit=walk", LACKS(features), HA_WAIVED, "the device has no operation features; another predict= needs" },
    { NET ",fit=walk", LACKS(net), HA_WAIVED, "the device has no operation net; another predict= needs none" },
    { NET, NOTHING, HA_WAIVED, "predict=net reads a net: fit=small with dataset=trace/english or trace/code" },
    { NET ",fit=walk,observed=0", NOTHING, HA_ERROR,
      "fluxion: features are learnt from the last query of the context, and none is observed: observed=1, say" },
    { CLO, MAPPED, HA_WAIVED, no_mapped },
    { CLO ",retrieve=exact,transfer=pieces", MAPPED, HA_WAIVED, no_mapped },
    { CLO ",transfer=stores", LACKS(map_device), HA_WAIVED,
      "the device has no operation map_device; another transfer= needs none" },
    { CLO ",transfer=stores", WINDOW, HA_WAIVED,
      "transfer=stores, where any other needs no window: no driver maps this device's memory" },
    { CLO ",transfer=pieces", LACKS(copy_pieces), HA_WAIVED, "the device has no operation copy_pieces" },
    { CLO ",transfer=kernel", LACKS(move), HA_WAIVED, "the device has no operation move" },
    { CLO, LACKS(flag_wait), HA_WAIVED,
      "the device has no operation flag_wait, by which device and engine wait for each other" },
    { CLO, LACKS(flag_write), HA_WAIVED,
      "the device has no operation flag_write, by which device and engine wait for each other" },
    { CLO, LACKS(hash), HA_WAIVED, "the device has no operation hash; another retrieve= needs none" },
    { CLO, LACKS(hamming), HA_WAIVED, "the device has no operation hamming; another retrieve= needs none" },
    { CLO ",retrieve=quest", LACKS(digest), HA_WAIVED, "the device has no operation digest; another retrieve=" },
    { CLO ",retrieve=quest", LACKS(digest_score), HA_WAIVED,
      "the device has no operation digest_score; another retrieve=" },
    { CLO ",retrieve=exact", LACKS(score), HA_WAIVED, "the device has no operation score; another retrieve=" },
    { CLO ",hash=learned", NOTHING, HA_WAIVED, "hash=learned takes the matrices of a fit" },
    { CLO ",device_budget_MB=0.001", NOTHING, HA_ERROR,
      "keys and values of the first layer stay on the device: 0.008 MB, of which device_budget_MB allows 0.001: "
      "raise it" },
    { "clo:dataset=iid,ctx=40,layers=2,steps=1", NOTHING, HA_WAIVED, no_inputs },
    /* of one layer nothing is predicted, and what needs none does without */
    { "clo:dataset=iid,ctx=40,layers=1,steps=1", NOTHING, HA_OK, "" },
    { CLO ",transfer=kernel,retrieve=quest", LACKS(map_device), HA_OK, "" },
    { CLO ",transfer=kernel,retrieve=quest", LACKS(hash), HA_OK, "" },
    { CLO ",transfer=kernel,retrieve=quest", LACKS(copy_pieces), HA_OK, "" },
    { HCATTENTION ",renorm=1,values=device", NOTHING, HA_ERROR, "renorm=1 is the CPU's to do: it takes values=host" },
    { "hcattention:ctx=9,heads=1/1,head_dim=24,dims=16", NOTHING, HA_ERROR,
      "dims=16 does not divide head_dim=24: the most that does is 8" },
    { HCATTENTION ",rotary=before", NOTHING, HA_WAIVED,
      "rotary=before needs a dataset that says how its keys were turned" },
};

static const struct ha_device_api *real;
static enum ha_status none_mapped(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                  struct ha_why *why)
{
    if (kind == HA_MEM_MAPPED) return ha_why(why, HA_ERROR, "there is none");
    return real->mem_alloc(dev, kind, bytes, ptr, why);
}
static enum ha_status no_window(struct ha_device *dev, void *ptr, size_t bytes, void **host, struct ha_why *why)
{
    return ha_why(why, HA_WAIVED, "no driver maps this device's memory");
}

TEST(what_is_lacking_is_said)
{
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct ha_pass p;
        struct ha_device_api less;
        *reason.text = 0;
        enum ha_status status = try_session(rows[i].id, NULL);
        if (status == HA_OK) {
            real = session.variant_api;
            less = *real;
            if (rows[i].lacks == MAPPED) less.mem_alloc = none_mapped;
            else if (rows[i].lacks == WINDOW) less.map_device = no_window;
            else if (rows[i].lacks) memset((char *)&less + rows[i].lacks, 0, sizeof less.move);
            session.variant_api = &less;
            status = ha_pass_begin(&p, &session, session.variant, session.param, false, &reason);
            if (status == HA_OK) assert_ok(ha_pass_end(&p, HA_OK, &reason));
        }
        if (status != rows[i].status || !strstr(reason.text, rows[i].text) || strchr(reason.text, '\n'))
            fail_msg("%s, row %zu: %d, '%s' lacks '%s'", rows[i].id, i, (int)status, reason.text, rows[i].text);
        close_session();
    }
}
