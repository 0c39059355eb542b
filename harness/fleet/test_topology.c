/* What ranks share, of a host that is written down: two sockets; behind the first a root port with a switch, which has
 * two devices and a third one at the port's side, and another port. */

#include "harness/fleet/topology.h"

#include "harness/base/test_folder.h"

#include <jansson.h>

enum { RANKS = 6, LONG_S = 100 };

#define BRIDGE(index, bus, to)                                                                                      \
    "<object type=\"Bridge\" gp_index=\"" #index "\" bridge_type=\"1-1\" depth=\"1\" bridge_pci=\"0000:[" to "]\" " \
    "pci_busid=\"0000:" bus "\" pci_type=\"0604 [10b5:8747] [0000:0000] ca\" pci_link_speed=\"0.000000\">"
#define DEVICE(index, bus)                                                        \
    "<object type=\"PCIDev\" gp_index=\"" #index "\" pci_busid=\"0000:" bus "\" " \
    "pci_type=\"0302 [10de:2330] [0000:0000] a1\" pci_link_speed=\"0.000000\"/>"
#define SOCKET(index, set, inner)                                                                                     \
    "<object type=\"Package\" os_index=\"" #index "\" cpuset=\"" set "\" complete_cpuset=\"" set "\" nodeset=\"" set  \
    "\" complete_nodeset=\"" set "\" gp_index=\"1" #index "\">"                                                       \
    "<object type=\"NUMANode\" os_index=\"" #index "\" cpuset=\"" set "\" complete_cpuset=\"" set "\" nodeset=\"" set \
    "\" complete_nodeset=\"" set "\" gp_index=\"2" #index "\" local_memory=\"1073741824\"/>"                          \
    "<object type=\"PU\" os_index=\"" #index "\" cpuset=\"" set "\" complete_cpuset=\"" set "\" nodeset=\"" set       \
    "\" complete_nodeset=\"" set "\" gp_index=\"3" #index "\"/>" inner "</object>"
#define HOST(index, inner)                       \
    "<object type=\"Bridge\" gp_index=\"" #index \
    "\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[00-ff]\">" inner "</object>"

static const char machine[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology "
    "version=\"2.0\">\n"
    "<object type=\"Machine\" os_index=\"0\" cpuset=\"0x00000003\" complete_cpuset=\"0x00000003\" "
    "allowed_cpuset=\"0x00000003\" nodeset=\"0x00000003\" complete_nodeset=\"0x00000003\" "
    "allowed_nodeset=\"0x00000003\" gp_index=\"1\">" SOCKET(
        0, "0x00000001",
        HOST(40, BRIDGE(41, "00:01.0", "01-04") /* a root port */
             BRIDGE(42, "01:00.0", "02-04")     /* a switch */
             BRIDGE(43, "02:00.0", "03-03") DEVICE(44, "03:00.0") "</object>" BRIDGE(45, "02:01.0", "04-04") DEVICE(
                 46, "04:00.0") "</object></object>" DEVICE(47, "01:01.0") "</object>" BRIDGE(48, "00:02.0", "05-05")
                 DEVICE(49, "05:00.0") "</object>")) SOCKET(1, "0x00000002", "") "</object></topology>";

static json_t *other(const json_t *j, size_t rank)
{
    for (size_t i = 0; i < RANKS - 1; i++) {
        json_t *o = json_array_get(json_object_get(j, "others"), i);
        if (json_integer_value(json_object_get(o, "local_rank")) == (json_int_t)rank) return o;
    }
    fail();
    return NULL;
}

static void assert_shares(const json_t *j, size_t rank, const char *shares, const char *bridge, bool socket)
{
    const json_t *o = other(j, rank), *shared = json_object_get(o, "shared_bridge");
    assert_string_equal(json_string_value(json_object_get(o, "shares")), shares);
    if (bridge) assert_string_equal(json_string_value(shared), bridge);
    else assert_true(json_is_null(shared));
    assert_int_equal(json_is_true(json_object_get(o, "same_socket")), socket);
    assert_int_equal(json_is_true(json_object_get(o, "same_numa_node")), socket);
}

TEST_WITH(ranks_know_what_they_share, test_folder_make, test_folder_remove)
{
    static const char *const device[RANKS] = { "0000:03:00.0", "0000:04:00.0", "0000:01:01.0", "0000:05:00.0" };
    struct ha_meet *meet[RANKS];
    char held[TEST_PATH_MAX];
    struct ha_why why = { "" };
    json_error_t error;
    test_write("machine.xml", machine, strlen(machine));
    setenv("HWLOC_XMLFILE", test_path("machine.xml"), 1);
    for (size_t r = 0; r < RANKS; r++) {
        const enum ha_status status = ha_meet_open(&meet[r], &ha_meet_node, test_folder, "job", r, RANKS, 0, &why);
        if (status != HA_OK) fail_msg("%s", why.text);
        if (device[r]) ha_meet_tell_device(meet[r], device[r]);
        else ha_meet_tell_cores(meet[r], (int)r - 4, (int)r - 4);
    }
    test_write("topology.json", "old", 3);
    snprintf(held, sizeof held, "%s", test_path("held"));
    assert_int_equal(link(test_path("topology.json"), held), 0);
    if (ha_topology_write(meet[0], test_folder, &why) != HA_OK) fail_msg("%s", why.text);
    assert_string_equal(test_text("held"), "old"); /* it is whole at any time, as it was or as it is */
    json_t *j = json_load_file(test_path("topology.json"), 0, &error);
    assert_non_null(j);
    const json_t *own = json_object_get(j, "own");
    assert_string_equal(json_string_value(json_object_get(own, "device")), "0000:03:00.0");
    assert_int_equal(json_array_size(json_object_get(own, "bridges")), 3);
    assert_shares(j, 1, "switch", "0000:01:00.0", true);
    assert_shares(j, 2, "root port", "0000:00:01.0", true);
    assert_shares(j, 3, "no link", NULL, true);
    assert_shares(j, 4, "no link", NULL, true); /* by its cores */
    assert_shares(j, 5, "no link", NULL, false);
    json_decref(j);
    for (size_t r = 0; r < RANKS; r++) ha_meet_close(meet[r]);
    unsetenv("HWLOC_XMLFILE");
}

/* Whatever this host is. */
TEST_WITH(this_host_has_a_topology, test_folder_make, test_folder_remove)
{
    struct ha_meet *meet;
    struct ha_why why = { "" };
    json_error_t error;
    assert_int_equal(ha_meet_open(&meet, &ha_meet_node, test_folder, "job", 0, 1, 0, &why), HA_OK);
    ha_topology_tell(meet);
    if (ha_topology_write(meet, test_folder, &why) != HA_OK) fail_msg("%s", why.text);
    json_t *j = json_load_file(test_path("topology.json"), 0, &error);
    assert_non_null(json_object_get(j, "own"));
    assert_true(json_is_null(json_object_get(json_object_get(j, "own"), "device")));
    json_decref(j);
    assert_int_equal(ha_topology_write(meet, "/nowhere/at/all", &why), HA_ERROR);
    ha_meet_close(meet);
}
