#include "harness/base/why.h"
#include "harness/compare/history_print.h"
#include "harness/program/commands.h"

static enum ha_status print(const struct ha_history *h, const struct ha_options *o, struct ha_why *why)
{
    return o->json ? ha_history_print_json(stdout, h, why) : ha_history_print_table(stdout, h, why);
}

enum ha_exit ha_command_history(const struct ha_options *o, struct ha_why *why)
{
    struct ha_record record;
    struct ha_history history = { 0 };
    enum ha_status status = ha_record_read(&record, o->words[0], why);
    if (status == HA_OK) status = ha_history_make(&history, &record, o->filter, o->figure, why);
    if (status == HA_OK) status = print(&history, o, why);
    ha_history_free(&history);
    ha_record_free(&record);
    return status == HA_OK ? HA_EXIT_OK : HA_EXIT_USAGE;
}
