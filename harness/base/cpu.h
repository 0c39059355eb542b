#ifndef HA_BASE_CPU_H
#define HA_BASE_CPU_H

/* The ha_cpu_bit set of the CPU this runs on; a bit is set only where the system saves the registers too, and where
 * those that it builds on are set. On the first call the system is asked for AMX's registers: it gives them on request
 * only. */
unsigned ha_cpu_detected(void);

/* HABENCH_WITHOUT=avx512,amx in the environment: the CPU is as one that lacks these instruction sets and those that
 * build on them, in this process and its children. Returns the first word of it that is no instruction set, or NULL. */
const char *ha_cpu_unknown(void);

/* the same less what is masked: the instruction sets that may be used */
unsigned ha_cpu_bits(void);

/* From now on as on a CPU that lacks `bits`, and so what builds on them; 0 masks nothing. Before any thread asks. */
void ha_cpu_mask(unsigned bits);

#endif
