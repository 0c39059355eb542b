#include "harness/program/day.h"

#include "harness/base/why.h"
#include "harness/engine/suite_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ha_day_command commands[] = {
    { "run", true, true }, { "check", true, true }, { "probe", true, false }, { "doctor", false, false }
};

const struct ha_day_command *ha_day_command_named(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(commands[i].name, name)) return &commands[i];
    return NULL;
}

struct reading {
    struct ha_day_steps *steps;
    const char *path;
};

static enum ha_status keep(char **out, const char *text, struct ha_why *why)
{
    *out = strdup(text);
    return *out ? HA_OK : ha_why(why, HA_ERROR, "out of memory");
}

static enum ha_status take_key(struct ha_day_steps *all, struct ha_day_step *s, const struct ha_assignment *a,
                               struct ha_why *why)
{
    static const char *const keys[] = { "habench", "shell", "env", "device", NULL };
    char **const texts[] = { &s->habench, &s->shell, &s->env };
    size_t key;
    HA_TRY(ha_word_find("key", a->name, keys, &key, why));
    if (key < sizeof texts / sizeof *texts) return keep(texts[key], a->values, why);
    if (a->own) return ha_why(why, HA_ERROR, "device: all steps have one, which [default] names");
    snprintf(all->device, sizeof all->device, "%s", a->values);
    return HA_OK;
}

static enum ha_status check_command(const struct ha_day_step *s, struct ha_why *why)
{
    char name[16];
    const char *names[sizeof commands / sizeof *commands + 1] = { NULL };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) names[i] = commands[i].name;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(s->habench, ha_blanks), s->habench);
    return ha_day_command_named(name) ? HA_OK : ha_unknown(why, "command", name, names);
}

static enum ha_status take_section(struct ha_day_steps *all, const struct ha_file_section *section, struct ha_why *why)
{
    const char *name = section->keys.section;
    const size_t n = strlen(name);
    if (all->count == HA_DAY_STEPS) return ha_why(why, HA_ERROR, "more than %d steps", HA_DAY_STEPS);
    if (!n || n >= HA_DAY_NAME || name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")])
        return ha_why(why, HA_ERROR, "a step is called by up to %d small letters, digits and _", HA_DAY_NAME - 1);
    struct ha_day_step *s = &all->of[all->count++];
    snprintf(s->name, sizeof s->name, "%s", name);
    s->limit_ns = section->time_ns;
    for (size_t i = 0; i < section->keys.count; i++) HA_TRY(take_key(all, s, &section->keys.of[i], why));
    if (!s->limit_ns) return ha_why(why, HA_ERROR, "time: a step has a limit");
    if (!s->habench == !s->shell) return ha_why(why, HA_ERROR, "a step has habench or shell, and not both");
    return s->habench ? check_command(s, why) : HA_OK;
}

static enum ha_status read_section(void *arg, const struct ha_file_section *section, struct ha_why *why)
{
    const struct reading *r = arg;
    const enum ha_status status = take_section(r->steps, section, why);
    return status == HA_OK
               ? HA_OK
               : ha_why_prefix(why, status, "%s:%zu: [%s]", r->path, section->keys.line, section->keys.section);
}

enum ha_status ha_day_read(struct ha_day_steps *steps, const char *path, struct ha_why *why)
{
    struct reading r = { steps, path };
    char *text;
    *steps = (struct ha_day_steps){ 0 };
    HA_TRY(ha_suite_file_load(path, &text, why));
    const enum ha_status status = ha_suite_file_parse(path, text, read_section, &r, why);
    free(text);
    return status;
}

void ha_day_free(struct ha_day_steps *steps)
{
    for (size_t i = 0; i < steps->count; i++) {
        free(steps->of[i].habench);
        free(steps->of[i].shell);
        free(steps->of[i].env);
    }
    steps->count = 0;
}
