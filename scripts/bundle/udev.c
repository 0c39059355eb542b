/* hwloc names block devices with the help of libudev, which has no static library; it manages without one that
 * cannot be opened, and habench asks for no block devices. */

#include <stddef.h>

struct udev;
struct udev_device;
struct udev *udev_new(void) { return NULL; }
struct udev *udev_unref(struct udev *u) { return u; }
struct udev_device *udev_device_new_from_subsystem_sysname(struct udev *u, const char *subsystem, const char *name)
{
    return NULL;
}
const char *udev_device_get_property_value(struct udev_device *d, const char *key) { return NULL; }
struct udev_device *udev_device_unref(struct udev_device *d) { return d; }
