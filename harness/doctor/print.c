#include "harness/base/json_line.h"
#include "harness/base/text.h"
#include "harness/doctor/doctor.h"

#include <string.h>

const char *ha_fitness_name(enum ha_fitness verdict)
{
    static const char *const names[] = { [HA_NOT_LOOKED] = "unknown",
                                         [HA_UNFIT] = "unfit",
                                         [HA_WARNING] = "warning",
                                         [HA_UNKNOWN] = "unknown",
                                         [HA_FIT] = "fit" };
    return names[verdict];
}

static enum ha_fitness rank(const struct ha_doctor_row *row)
{
    return row->finding.verdict == HA_NOT_LOOKED ? HA_UNKNOWN : row->finding.verdict;
}

/* few rows, and equal ones keep their order */
void ha_doctor_sort(struct ha_doctor_row *rows, size_t count)
{
    for (size_t i = 1; i < count; i++)
        for (size_t k = i; k > 0 && rank(&rows[k]) < rank(&rows[k - 1]); k--) {
            const struct ha_doctor_row row = rows[k];
            rows[k] = rows[k - 1];
            rows[k - 1] = row;
        }
}

static size_t count_of(const struct ha_doctor_row *rows, size_t count, enum ha_fitness verdict)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) n += rank(&rows[i]) == verdict;
    return n;
}

enum ha_fitness ha_doctor_verdict(const struct ha_doctor_row *rows, size_t count)
{
    return count_of(rows, count, HA_UNFIT) ? HA_UNFIT : HA_FIT;
}

static void print_text(FILE *out, const char *before, const char *text, const char *behind)
{
    fputs(before, out);
    ha_text_print(out, text);
    fputs(behind, out);
}

static void print_end(FILE *out, const char *of, const struct ha_doctor_row *rows, size_t count)
{
    print_text(out, "", of, ": ");
    fprintf(out, "%s to be measured: %zu unfit, %zu warnings, %zu unknown, %zu fit\n",
            ha_fitness_name(ha_doctor_verdict(rows, count)), count_of(rows, count, HA_UNFIT),
            count_of(rows, count, HA_WARNING), count_of(rows, count, HA_UNKNOWN), count_of(rows, count, HA_FIT));
}

void ha_doctor_print(FILE *out, const char *of, const struct ha_doctor_row *rows, size_t count)
{
    static const char indent[] = "                             ";
    print_end(out, of, rows, count);
    fputc('\n', out);
    for (size_t i = 0; i < count; i++) {
        const struct ha_finding *f = &rows[i].finding;
        fprintf(out, "%-8s %-18s  ", ha_fitness_name(f->verdict), rows[i].check);
        print_text(out, "", f->found, "\n");
        if (f->verdict != HA_UNFIT && f->verdict != HA_WARNING) continue;
        fprintf(out, "%s%s\n", indent, rows[i].why);
        if (*f->mend) print_text(out, indent, f->mend, "\n");
    }
}

void ha_doctor_print_json(FILE *out, const struct ha_doctor_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        json_t *row = json_object();
        ha_json_set_text(row, "row", "doctor");
        ha_json_set_text(row, "check", rows[i].check);
        ha_json_set_text(row, "verdict", ha_fitness_name(rows[i].finding.verdict));
        ha_json_set_text(row, "found", rows[i].finding.found);
        ha_json_set_text(row, "why", rows[i].why);
        ha_json_set_text(row, "mend", rows[i].finding.mend);
        ha_json_put_line(out, row);
    }
    json_t *row = json_object();
    ha_json_set_text(row, "row", "doctor");
    ha_json_set_text(row, "verdict", ha_fitness_name(ha_doctor_verdict(rows, count)));
    ha_json_set_count(row, "unfit", count_of(rows, count, HA_UNFIT));
    ha_json_set_count(row, "warnings", count_of(rows, count, HA_WARNING));
    ha_json_set_count(row, "unknown", count_of(rows, count, HA_UNKNOWN));
    ha_json_set_count(row, "fit", count_of(rows, count, HA_FIT));
    ha_json_put_line(out, row);
}
