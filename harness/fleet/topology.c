#include "harness/fleet/topology.h"

#include "harness/base/file.h"
#include "harness/base/why.h"

#include <hwloc.h>
#include <jansson.h>
#include <string.h>

/* Of a rank, as objects of the topology; NULL: there is none, or several. */
struct place {
    hwloc_obj_t device, numa, package;
};

/* By what the kernel says: the others open GPUs, which somebody may be measuring, or keep memory for ever. */
static bool load(hwloc_topology_t *t)
{
    static const char *const without[] = { "pci", "opencl", "cuda", "nvml", "rsmi", "levelzero", "gl" };
    if (hwloc_topology_init(t) != 0) return false;
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        hwloc_topology_set_components(*t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, without[i]);
    hwloc_topology_set_io_types_filter(*t, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (hwloc_topology_load(*t) == 0) return true;
    hwloc_topology_destroy(*t);
    return false;
}

/* The one object of this type that has all of these cores. */
static hwloc_obj_t holder(hwloc_topology_t t, hwloc_obj_type_t type, hwloc_const_bitmap_t cores)
{
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(t, type, o));)
        if (o->cpuset && !hwloc_bitmap_iszero(cores) && hwloc_bitmap_isincluded(cores, o->cpuset)) return o;
    return NULL;
}

void ha_topology_tell(struct ha_meet *meet)
{
    hwloc_topology_t t;
    hwloc_bitmap_t cores = hwloc_bitmap_alloc();
    if (cores && load(&t)) {
        if (hwloc_get_cpubind(t, cores, HWLOC_CPUBIND_PROCESS) != 0)
            hwloc_bitmap_copy(cores, hwloc_topology_get_allowed_cpuset(t));
        hwloc_bitmap_and(cores, cores, hwloc_topology_get_allowed_cpuset(t));
        const hwloc_obj_t numa = holder(t, HWLOC_OBJ_NUMANODE, cores), package = holder(t, HWLOC_OBJ_PACKAGE, cores);
        ha_meet_tell_cores(meet, numa ? (int)numa->os_index : -1, package ? (int)package->os_index : -1);
        hwloc_topology_destroy(t);
    }
    hwloc_bitmap_free(cores);
}

static hwloc_obj_t by_index(hwloc_topology_t t, hwloc_obj_type_t type, int os_index)
{
    for (hwloc_obj_t o = NULL; os_index >= 0 && (o = hwloc_get_next_obj_by_type(t, type, o));)
        if (o->os_index == (unsigned)os_index) return o;
    return NULL;
}

/* By its device, if it has one on the bus, else by its cores. */
static struct place place_of(hwloc_topology_t t, const struct ha_meet *meet, size_t rank)
{
    char bus_id[32];
    int numa, package;
    struct place p = { NULL, NULL, NULL };
    if (ha_meet_device(meet, rank, bus_id)) p.device = hwloc_get_pcidev_by_busidstring(t, bus_id);
    const hwloc_obj_t near = p.device ? hwloc_get_non_io_ancestor_obj(t, p.device) : NULL;
    if (near && near->cpuset) {
        p.numa = holder(t, HWLOC_OBJ_NUMANODE, near->cpuset);
        p.package = holder(t, HWLOC_OBJ_PACKAGE, near->cpuset);
        return p;
    }
    ha_meet_cores(meet, rank, &numa, &package);
    p.numa = by_index(t, HWLOC_OBJ_NUMANODE, numa);
    p.package = by_index(t, HWLOC_OBJ_PACKAGE, package);
    return p;
}

/* A bridge from one PCI bus to another; the host's own to its first bus is none. */
static bool is_bridge(hwloc_obj_t o)
{
    return o->type == HWLOC_OBJ_BRIDGE && o->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI;
}
static bool is_root_port(hwloc_obj_t o) { return is_bridge(o) && !(o->parent && is_bridge(o->parent)); }

static bool is_above(hwloc_obj_t o, hwloc_obj_t below)
{
    while (below && below != o) below = below->parent;
    return below != NULL;
}

/* The nearest bridge above both devices; NULL: they have none in common. */
static hwloc_obj_t shared_bridge(hwloc_obj_t a, hwloc_obj_t b)
{
    for (hwloc_obj_t o = a && b ? a->parent : NULL; o; o = o->parent)
        if (is_bridge(o) && is_above(o, b)) return o;
    return NULL;
}

static json_t *bus_of(hwloc_obj_t o)
{
    if (!o) return json_null();
    const struct hwloc_pcidev_attr_s *at = o->type == HWLOC_OBJ_BRIDGE ? &o->attr->bridge.upstream.pci
                                                                       : &o->attr->pcidev;
    return json_sprintf("%04x:%02x:%02x.%01x", at->domain, at->bus, at->dev, at->func);
}
static json_t *index_of(hwloc_obj_t o) { return o ? json_integer((json_int_t)o->os_index) : json_null(); }

/* From the device up to its root port. */
static json_t *bridges_of(hwloc_obj_t device)
{
    json_t *list = json_array();
    for (hwloc_obj_t o = device ? device->parent : NULL; o; o = o->parent)
        if (is_bridge(o)) json_array_append_new(list, bus_of(o));
    return list;
}

static json_t *rank_json(const struct place *own, const struct place *p, size_t rank, bool is_own)
{
    const hwloc_obj_t bridge = is_own ? NULL : shared_bridge(own->device, p->device);
    json_t *o = json_object();
    json_object_set_new(o, "local_rank", json_integer((json_int_t)rank));
    json_object_set_new(o, "device", bus_of(p->device));
    json_object_set_new(o, "bridges", bridges_of(p->device));
    json_object_set_new(o, "numa_node", index_of(p->numa));
    json_object_set_new(o, "socket", index_of(p->package));
    if (is_own) return o;
    json_object_set_new(o, "same_numa_node", json_boolean(p->numa && p->numa == own->numa));
    json_object_set_new(o, "same_socket", json_boolean(p->package && p->package == own->package));
    json_object_set_new(o, "shared_bridge", bus_of(bridge));
    json_object_set_new(o, "shares", json_string(!bridge ? "no link" : is_root_port(bridge) ? "root port" : "switch"));
    return o;
}

enum ha_status ha_topology_write(const struct ha_meet *meet, const char *folder, struct ha_why *why)
{
    struct ha_whole_file out;
    hwloc_topology_t t;
    if (!load(&t)) return ha_why(why, HA_ERROR, "hwloc cannot read the topology of this host");
    const struct place own = place_of(t, meet, ha_meet_rank(meet));
    json_t *all = json_object(), *others = json_array();
    for (size_t r = 0; r < ha_meet_ranks(meet); r++) {
        const struct place p = place_of(t, meet, r);
        if (r != ha_meet_rank(meet)) json_array_append_new(others, rank_json(&own, &p, r, false));
    }
    json_object_set_new(all, "schema_version", json_integer(1));
    json_object_set_new(all, "own", rank_json(&own, &own, ha_meet_rank(meet), true));
    json_object_set_new(all, "others", others);
    hwloc_topology_destroy(t);
    enum ha_status status = ha_whole_file_open(&out, folder, "topology.json", why);
    if (status == HA_OK) {
        if (json_dumpf(all, out.file, JSON_INDENT(1)) == 0) putc('\n', out.file);
        status = ha_whole_file_close(&out, why);
    }
    json_decref(all);
    return status;
}
