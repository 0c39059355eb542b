/* The table: what is asked, why, and how it is mended. docs/doctor.md has the thresholds. */

#include "harness/doctor/checks.h"

#include "harness/base/text.h"
#include "harness/doctor/files.h"
#include "harness/measure/ceilings.h"

#include <math.h>
#include <string.h>

static const struct ha_limit files = { "Max open files", "", 1, 256, 1024 },
                             processes = { "Max processes", "", 1, 256, 1024 },
                             stack = { "Max stack size", " KiB", 1024, 512, 8192 },
                             locked = { "Max locked memory", " MiB", 0x1p20, 0, 1 },
                             address_space = { "Max address space", " GiB", 0x1p30, 64, HUGE_VAL };

const struct ha_doctor_check ha_doctor_checks[] = {
    { "load", HA_OF_HOST, "whatever else runs on our cores takes their time, caches and memory bandwidth",
      "ps -eo pid,user,pcpu,comm --sort=-pcpu | head", ha_look_load, NULL },
    { "steal", HA_OF_HOST, "the host gave our cores to other guests: steps wait for a core that is away",
      "move this guest to a host of its own, or have its virtual CPUs pinned (virsh vcpupin)", ha_look_steal, NULL },
    { "shared core", HA_OF_HOST,
      "another guest runs on the other half of a core: no counter shows it, and arithmetic is up to twice as slow",
      "move this guest to a host without hyper-threads, or have whole cores pinned to it (virsh vcpupin)",
      ha_look_shared, NULL },
    { "SMT sibling", HA_OF_HOST, "the other thread of a core takes up to half of its instructions and its caches",
      "echo off | sudo tee /sys/devices/system/cpu/smt/control", ha_look_smt, NULL },
    { "load average", HA_OF_HOST,
      "what ran a moment ago left caches, clocks and temperature behind, and may come again",
      "ps -eo pid,user,pcpu,comm --sort=-pcpu | head; wait until uptime says less", ha_look_load_average, NULL },
    { "throttling", HA_OF_HOST, "a core that is too hot or takes too much power is slowed down while it is measured",
      "sudo turbostat -n 1; clean the fans, lower the temperature of the room, raise the power limit in the BIOS",
      ha_look_throttled, NULL },
    { "clock", HA_OF_HOST, "cores below the clock that they are sold with are held down by something", "",
      ha_look_clock, NULL },
    { "governor", HA_OF_HOST, "the clock changes with the load: a step after a pause is slower than one after another",
      "sudo cpupower frequency-set -g performance", ha_look_governor, NULL },
    { "turbo", HA_OF_HOST, "the clock depends on temperature and on how many cores are busy, from run to run", "",
      ha_look_turbo, NULL },
    { "CPU quota", HA_OF_HOST, "when the quota of a period is used up all threads stop until the next one",
      "start the container without --cpus, or: sudo systemctl set-property UNIT CPUQuota=", ha_look_cpu_quota, NULL },
    { "cores", HA_OF_HOST, "ceilings and figures are those of the cores that this process may use",
      "start without taskset and --cpuset-cpus, or: taskset -p -c 0-$(($(nproc --all) - 1)) $$", ha_look_cpuset, NULL },
    { "priority", HA_OF_HOST, "threads that give way, or that the system stops, wait at places of chance",
      "start without nice, chrt and batch: sudo renice -n 0 -p $$", ha_look_priority, NULL },
    { "clocksource", HA_OF_HOST, "every time is read from it: a slow one is a part of what it measures",
      "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource", ha_look_clocksource,
      NULL },
    { "virtual machine", HA_OF_HOST, "what its host does meanwhile is seen as steal or as a shared core, or not at all",
      "measure on the machine itself, or on a guest whose CPUs and memory are pinned", ha_look_virtual, NULL },

    { "memory", HA_OF_HOST, "what finds no memory is not run, or is swapped",
      "ps -eo pid,user,rss,comm --sort=-rss | head", ha_look_memory, NULL },
    { "memory limit", HA_OF_HOST, "the kernel ends a process that crosses the limit of its control group",
      "start the container without --memory, or: sudo systemctl set-property UNIT MemoryMax=infinity",
      ha_look_memory_limit, NULL },
    { "huge pages", HA_OF_HOST, "with small pages gathers of keys wait for translations of addresses",
      "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled", ha_look_huge_pages, NULL },
    { "swap", HA_OF_HOST, "a page that is read back costs as much as a whole step", "sudo swapoff -a && sudo swapon -a",
      ha_look_swap, NULL },
    { "swappiness", HA_OF_HOST, "the kernel swaps out a KV cache that has not been read for a while",
      "sudo sysctl vm.swappiness=1", ha_look_swappiness, NULL },
    { "NUMA cores", HA_OF_HOST, "threads of several nodes read memory of which a part is far from each of them", "",
      ha_look_numa_cores, NULL },
    { "NUMA memory", HA_OF_HOST, "memory of another node is read at half the bandwidth", "", ha_look_numa_memory,
      NULL },
    { "NUMA balancing", HA_OF_HOST, "the kernel takes pages away for a moment to learn who reads them, and moves them",
      "sudo sysctl kernel.numa_balancing=0", ha_look_numa_balancing, NULL },

    { "open files", HA_OF_HOST, "results, traces and processes need files", "ulimit -n 4096", ha_look_limit, &files },
    { "threads", HA_OF_HOST, "a pool on all cores, streams and drivers need threads", "ulimit -u 4096", ha_look_limit,
      &processes },
    { "stack", HA_OF_HOST, "drivers and OpenMP expect what they are used to", "ulimit -s 8192", ha_look_limit, &stack },
    { "locked memory", HA_OF_HOST,
      "drivers that pin memory on behalf of a user, as of network cards, may be held to it",
      "ulimit -l unlimited, or a line '* - memlock unlimited' in /etc/security/limits.conf", ha_look_limit, &locked },
    { "address space", HA_OF_HOST, "CUDA reserves addresses for all memory of host and devices", "ulimit -v unlimited",
      ha_look_limit, &address_space },

    { "device memory", HA_OF_DEVICE, "what finds no memory is not run, and others who have it compute, too",
      "nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv", ha_look_device_memory, NULL },
    { "spans", HA_OF_DEVICE, "idle times, overlap and the link's bandwidth are made of them",
      "put the folder of libcupti.so into LD_LIBRARY_PATH (docs/cuda.md)", ha_look_spans, NULL },
    { "device load", HA_OF_GPU, "kernels of others run between ours", "nvidia-smi pmon -c 1", ha_look_device_busy,
      NULL },
    { "device processes", HA_OF_GPU, "another process on the device may compute or copy at any moment", "",
      ha_look_device_processes, NULL },
    { "device throttling", HA_OF_GPU, "a device that is too hot or takes too much power lowers its clocks",
      "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER", ha_look_device_throttled, NULL },
    { "device clock", HA_OF_GPU, "clocks that someone locked low make every kernel slow", "", ha_look_device_clock,
      NULL },
    { "power limit", HA_OF_GPU, "below its default limit a device reaches its clocks in short bursts only", "",
      ha_look_power_limit, NULL },
    { "link", HA_OF_GPU, "the link is what an offloaded KV cache waits for: half of its lanes is half of its bandwidth",
      "sudo dmesg | grep -i -e aer -e pcie; put the card into its slot again, and look at the slot's setting in the "
      "BIOS",
      ha_look_link, NULL },
    { "slot", HA_OF_GPU, "the slot is slower than the device: its link is not what the device is sold with",
      "move the card to a slot of 16 lanes of the processor, or set the slot's generation in the BIOS to auto",
      ha_look_slot, NULL },
    { "device node", HA_OF_GPU, "copies from memory of another node cross the link between processors", "",
      ha_look_device_node, NULL },
    { "IOMMU", HA_OF_GPU, "each transfer has its addresses translated: small ones get slower",
      "add iommu=pt to the kernel's command line (GRUB_CMDLINE_LINUX), sudo update-grub, and reboot", ha_look_iommu,
      NULL },
    { "ACS", HA_OF_GPU, "traffic from device to device goes by way of the processor; that with the host does not mind",
      "sudo setpci -s PORT ECAP_ACS+0x6.w=0000 for each port of lspci -t", ha_look_acs, NULL },
    { "ECC", HA_OF_GPU,
      "without it a wrong bit is a wrong result that nobody sees; a change takes memory and bandwidth", "", ha_look_ecc,
      NULL },
    { "ECC errors", HA_OF_GPU, "memory that breaks gives wrong results, and repairs itself at moments of its choice",
      "nvidia-smi -q -d ECC,ROW_REMAPPER; sudo nvidia-smi --gpu-reset, and have the card replaced if they come back",
      ha_look_ecc_errors, NULL },
    { "persistence", HA_OF_GPU, "without it the driver is loaded anew for each process: seconds, and cold clocks", "",
      ha_look_persistence, NULL },
    { "MIG", HA_OF_GPU, "a part of a device shares link and power with the others' parts", "", ha_look_mig, NULL },
    { "driver", HA_OF_GPU, "versions that do not belong together fail, or take slower ways",
      "sudo apt-get install --only-upgrade the driver's packages, and reboot", ha_look_driver, NULL },
    { "profiling", HA_OF_GPU, "spans need no counters, but Nsight Compute does, to say why a kernel is slow",
      "echo options nvidia NVreg_RestrictProfilingToAdminUsers=0 | sudo tee /etc/modprobe.d/habench.conf; reboot",
      ha_look_profiling, NULL },
};
const size_t ha_doctor_checks_count = sizeof ha_doctor_checks / sizeof *ha_doctor_checks;
_Static_assert(sizeof ha_doctor_checks / sizeof *ha_doctor_checks <= HA_DOCTOR_CHECKS_MOST, "HA_DOCTOR_CHECKS_MOST");

bool ha_doctor_asks(const struct ha_doctor_check *check, const struct ha_doctor_device *device)
{
    if (check->of == HA_OF_HOST) return true;
    if (!device) return false;
    return check->of == HA_OF_DEVICE || ha_has_link(device->kind) || *device->bus_id;
}

void ha_doctor_look(const struct ha_doctor_seen *seen, bool host, struct ha_finding *findings)
{
    for (size_t i = 0; i < ha_doctor_checks_count; i++) {
        const struct ha_doctor_check *c = &ha_doctor_checks[i];
        if ((c->of == HA_OF_HOST) != host || !ha_doctor_asks(c, seen->device)) continue;
        struct ha_finding f = { HA_NOT_LOOKED, "", "" };
        ha_mend(&f, "%s", c->mend);
        c->look(c, seen, &f);
        if (f.verdict != HA_UNFIT && f.verdict != HA_WARNING) *f.mend = 0;
        ha_text_clean(f.found);
        findings[i] = f;
    }
}

void ha_doctor_load(const char *root, void (*run)(void *arg, struct ha_doctor_load *load), void *arg,
                    struct ha_doctor_load *out)
{
    bool mine[HA_CORES_MOST], siblings[HA_CORES_MOST] = { false };
    *out = (struct ha_doctor_load){ .slow = 0 };
    if (ha_cores_mine(mine)) ha_siblings(root, mine, siblings);
    out->swapped_before = ha_swapped_pages(root);
    ha_core_counts_of(root, siblings, &out->siblings_before);
    ha_core_counts_read(root, &out->before);
    run(arg, out);
    ha_core_counts_read(root, &out->after);
    ha_core_counts_of(root, siblings, &out->siblings_after);
    out->swapped_after = ha_swapped_pages(root);
}
