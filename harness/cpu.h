#ifndef HA_CPU_H
#define HA_CPU_H

/* The ha_cpu_bit set of the CPU this runs on; a bit is set only where the system saves the registers too. */
unsigned ha_cpu_bits(void);

#endif
