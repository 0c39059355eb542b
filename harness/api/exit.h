#ifndef HA_API_EXIT_H
#define HA_API_EXIT_H

/* What the exit code of the program says (docs/measurement.md). */
enum ha_exit {
    HA_EXIT_OK = 0,
    HA_EXIT_WRONG = 10,   /* a case failed its check */
    HA_EXIT_MISSING = 20, /* a case was not run: the time was over, or its file is damaged */
    HA_EXIT_REGRESSION = 30,
    HA_EXIT_ENVIRONMENT = 40, /* a case or a meter could not be judged here */
    HA_EXIT_USAGE = 64,
    HA_EXIT_INTERNAL = 70,
    HA_EXIT_WAIVED = 77, /* everything was waived */
};

#endif
