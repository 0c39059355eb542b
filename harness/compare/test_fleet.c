/* How often does a fleet in which nothing is wrong name a machine, and which faults are found, by the right name?
 * Fleets of simulated machines: "few" nights of each in `ninja check`, 100 without. "power WORLD [LEAST]" prints what
 * is found of which size in how large a fleet, "nights WORLD MACHINES NIGHTS" who is named where nothing is wrong. */

#include "harness/base/rng.h"
#include "harness/base/test.h"
#include "harness/compare/fleet_print.h"
#include "harness/compare/sides.h"

#include <math.h>

enum { CASES = 30, OWN = 3, PARTS = 7, FIGURES = CASES * (OWN + PARTS), PROCESSES = 5, MOST = 1000 };
enum part { CLOCK, READ_1, READ, DEVICE, H2D, D2H, LAUNCH };

/* A fleet, as standard deviations of logarithms: what machines differ by as a whole, in each part, in each figure; what
 * processes differ by, and of how many something takes some of the time (mean). freedom: Student's, of what machines
 * differ by; 0: normal. noisy: the share of machines whose processes differ four times as much. */
struct world {
    const char *name;
    double whole, part, figure, process, late, late_mean, freedom, figure_freedom, noisy;
    double found; /* the least fault of memory that has to be found; 0: it is not asked */
    bool hidden;  /* it does not show its tails: one night of ten may name somebody */
};
static const struct world worlds[] = {
    { "even", .whole = 0.001, .part = 0.003, .figure = 0.003, .process = 0.007, .found = 0.03 },
    { "uneven", .whole = 0.005, .part = 0.007, .figure = 0.005, .process = 0.01, .late = 0.03, .late_mean = 0.1,
      .found = 0.10 },
    { "correlated", .whole = 0.01, .part = 0.003, .figure = 0.002, .process = 0.007, .found = 0.10 },
    { "heavy tails", .whole = 0.002, .part = 0.003, .figure = 0.003, .process = 0.007, .late = 0.03, .late_mean = 0.1,
      .freedom = 4, .hidden = true },
    { "some are noisy", .whole = 0.001, .part = 0.003, .figure = 0.003, .process = 0.01, .late = 0.05, .late_mean = 0.1,
      .noisy = 0.05, .found = 0.10 },
};

/* What is wrong with some of the machines. */
struct fault {
    const char *name, *part;                         /* part: as it has to be named */
    double clock, read_1, read, device, h2d, launch; /* how much longer it takes */
    double step;                                     /* of case 0 alone */
};
static const struct fault faults[] = {
    { "memory 5%", "memory read, 1 thread", .read_1 = 0.05, .read = 0.05 },
    { "memory 10%", "memory read, 1 thread", .read_1 = 0.1, .read = 0.1 },
    { "all threads' memory 10%", "memory read, all threads", .read = 0.1 },
    { "link at half width", "link, host to device", .h2d = 1 },
    { "clock capped at 3/4", "clock of the CPU", .clock = 1.0 / 3, .read_1 = 0.1, .launch = 0.3 },
    { "device memory 5%", "device memory read", .device = 0.05 },
    { "device memory 20%, clock 4%", "device memory read", .device = 0.2, .clock = 0.04 },
    { "launch 30%", "launch", .launch = 0.3 },
    { "one kernel 15%", "", .step = 0.15 },
};

/* ---- machines ---------------------------------------------------------------------------------------------------- */

static struct ha_why why;
static uint64_t seed;
static float normals[FIGURES * (PROCESSES + 6) + 64];
static size_t drawn;

static double normal(void) { return (double)normals[drawn++]; }

/* The same with Student's tails, scaled so that half of them are as near. */
static double far(double freedom)
{
    double x = normal(), square = 0;
    if (!(freedom > 0)) return x;
    for (size_t i = 0; i < 4; i++) {
        const double z = normal();
        square += z * z;
    }
    return x / sqrt(square / 4) * 0.6745 / 0.7407;
}

static size_t part_of_case(size_t i) { return i % PARTS; }

static size_t figure[FIGURES];

static void list_figures(struct ha_fleet *f)
{
    static const char *const own[OWN] = { "step_ns", "GBps", "floor_ratio" }, *const unit[OWN] = { "ns", "GB/s", "" };
    for (size_t i = 0; i < FIGURES; i++) {
        char id[64];
        const size_t of = i / (OWN + PARTS), k = i % (OWN + PARTS);
        snprintf(id, sizeof id, "case:i=%zu", of);
        const bool launch = k == OWN + LAUNCH;
        const struct ha_fleet_figure like = { .case_id = id,
                                              .mode = "run",
                                              .suite = of % 2 ? "odd" : "even",
                                              .name = k < OWN ? own[k] : ha_parts_of_machine[k - OWN].figure,
                                              .unit = k < OWN  ? unit[k]
                                                      : launch ? "ns"
                                                               : "GB/s",
                                              .better = !k || launch ? HA_LESS : HA_MORE };
        figure[i] = ha_fleet_figure(f, &like);
        assert_int_equal(figure[i], i);
    }
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A value whose processes differ by `process`, and are late. */
static struct ha_fleet_value processes_of(const struct world *w, size_t i, double x, double process, uint64_t machine)
{
    double each[PROCESSES];
    for (size_t p = 0; p < PROCESSES; p++) {
        each[p] = x + process * normal();
        if (!(w->late > 0)) continue;
        const uint64_t bits = ha_rng_bits(seed, 1000 + machine, i * PROCESSES + p);
        if ((double)(bits >> 40) * 0x1p-24 < w->late)
            each[p] -= w->late_mean * log(((double)(bits & 0xffffff) + 1) * 0x1p-24);
    }
    qsort(each, PROCESSES, sizeof *each, by_size);
    return (struct ha_fleet_value){
        .figure = (uint32_t)i, .processes = PROCESSES, .x = each[PROCESSES / 2], .best = each[0]
    };
}

static void draw_machine(struct ha_fleet *f, const struct world *w, size_t number, const char *name,
                         const struct fault *fault)
{
    static const struct fault none = { 0 };
    const struct fault *wrong = fault ? fault : &none;
    const double longer[PARTS] = { [CLOCK] = wrong->clock,   [READ_1] = wrong->read_1, [READ] = wrong->read,
                                   [DEVICE] = wrong->device, [H2D] = wrong->h2d,       [D2H] = 0,
                                   [LAUNCH] = wrong->launch };
    double part[PARTS];
    struct ha_fleet_machine *m = ha_fleet_machine(f, name);
    assert_non_null(m);
    ha_rng_normals(seed, number, 0, COUNT(normals), normals);
    drawn = 0;
    const double whole = w->whole * far(w->freedom);
    const bool noisy = (double)(ha_rng_bits(seed, 1000 + number, 1 << 20) >> 40) * 0x1p-24 < w->noisy;
    const double process = w->process * (noisy ? 4 : 1);
    for (size_t p = 0; p < PARTS; p++) part[p] = whole + w->part * far(w->freedom) + log1p(longer[p]);
    m->value = malloc(FIGURES * sizeof *m->value);
    assert_non_null(m->value);
    m->values = FIGURES;
    m->record = true;
    for (size_t i = 0; i < FIGURES; i++) {
        const size_t of = i / (OWN + PARTS), k = i % (OWN + PARTS);
        double x = part[k < OWN ? part_of_case(of) : k - OWN];
        if (k == 2) x = whole - 0.3; /* a share of its own ceiling: what is slow is both */
        if (k < OWN) x += w->figure * far(w->figure_freedom);
        if (k == 0 && of == 0) x += log1p(wrong->step);
        m->value[i] = processes_of(w, i, x, process, number);
    }
}

static void begin(struct ha_fleet *f)
{
    assert_int_equal(ha_fleet_begin(f, "fleet", &why), HA_OK);
    list_figures(f);
}

/* The first `wrong` machines have the fault. */
static void draw(struct ha_fleet *f, const struct world *w, uint64_t night, size_t machines, const struct fault *fault,
                 size_t wrong)
{
    begin(f);
    seed = night;
    for (size_t i = 0; i < machines; i++) {
        char name[32];
        snprintf(name, sizeof name, "node%04zu", i);
        draw_machine(f, w, i, name, i < wrong ? fault : NULL);
    }
    assert_int_equal(ha_fleet_judge(f, &why), HA_OK);
}

static size_t named(const struct ha_fleet *f, size_t from)
{
    size_t n = 0;
    for (size_t i = from; i < f->count; i++) n += f->machine[i].state == HA_FLEET_STANDS_OUT;
    return n;
}

static const char *part_named(const struct ha_fleet_machine *m)
{
    return m->track && m->track->part ? m->track->part->name : "";
}

/* ---- nothing is wrong -------------------------------------------------------------------------------------------- */

static bool few;

static void say_if_named(const struct ha_fleet *f, const struct ha_fleet_machine *m)
{
    char *line = m->state == HA_FLEET_STANDS_OUT ? ha_fleet_line(f, m, NULL) : NULL;
    if (line) printf("  named: %s\n", line);
    free(line);
}

TEST(a_fleet_in_which_nothing_is_wrong_names_nobody)
{
    const size_t sizes[] = { 5, 10, 30, 100, 1000 };
    for (const struct world *w = worlds; w < worlds + COUNT(worlds); w++)
        for (size_t s = 0; s < COUNT(sizes); s++) {
            const size_t nights = HA_SANITIZED ? 1 : few ? (sizes[s] > 100 ? 1 : 10) : 100;
            /* fleets of fewer tell less of their tails */
            const size_t allowed = w->hidden ? nights / 10 + 1 : sizes[s] < MOST ? nights / 25 : nights / 100;
            size_t names = 0, bad = 0;
            for (uint64_t night = 1; night <= nights; night++) {
                struct ha_fleet f;
                draw(&f, w, night, sizes[s], NULL, 0);
                names += named(&f, 0);
                bad += named(&f, 0) > 0;
                for (size_t i = 0; i < f.count; i++) say_if_named(&f, &f.machine[i]);
                assert_int_equal(f.groups, 1);
                ha_fleet_free(&f);
                assert_true(bad <= allowed);
            }
            printf("%-16s %5zu machines, nothing is wrong: %zu named in %zu of %zu nights\n", w->name, sizes[s], names,
                   bad, nights);
        }
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

TEST(a_fault_of_five_percent_is_found_by_its_part)
{
    const struct world *w = &worlds[0];
    const size_t machines = HA_SANITIZED ? 50 : few ? 300 : 1000;
    for (size_t i = 0; i < COUNT(faults); i++) {
        const size_t nights = HA_SANITIZED || few ? 1 : 10;
        size_t found = 0, right = 0, others = 0;
        for (uint64_t night = 1; night <= nights; night++) {
            struct ha_fleet f;
            draw(&f, w, 100 + night, machines, &faults[i], 1);
            found += f.machine[0].state == HA_FLEET_STANDS_OUT;
            right += f.machine[0].state == HA_FLEET_STANDS_OUT && !strcmp(part_named(&f.machine[0]), faults[i].part);
            others += named(&f, 1);
            if (night == 1) {
                char *line = ha_fleet_line(&f, &f.machine[0], NULL);
                printf("%s: %s\n", faults[i].name, line);
                if (faults[i].step > 0) assert_non_null(strstr(line, "step_ns of case:i=0 "));
                free(line);
                assert_int_equal(ha_fleet_exit(&f), HA_EXIT_REGRESSION);
                assert_true(f.machine[0].figures > (faults[i].step > 0 ? 0 : 10));
                assert_true(f.machine[0].suspicion > 2);
            }
            ha_fleet_free(&f);
        }
        printf("%-26s of %zu nights found in %zu, by its part in %zu; others named: %zu\n", faults[i].name, nights,
               found, right, others);
        assert_int_equal(found, nights);
        assert_int_equal(right, nights);
        assert_int_equal(others, 0);
    }
}

TEST(what_each_world_has_to_find_it_finds)
{
    const size_t machines = few ? 300 : 1000, nights = few ? 2 : 20;
    if (HA_SANITIZED) skip();
    for (const struct world *w = worlds; w < worlds + COUNT(worlds); w++) {
        size_t found = 0;
        const struct fault fault = { .read_1 = w->found, .read = w->found };
        if (!(w->found > 0) || (few && w->noisy > 0)) continue; /* one night of twenty it is a noisy one */
        for (uint64_t night = 1; night <= nights; night++) {
            struct ha_fleet f;
            draw(&f, w, 200 + night, machines, &fault, 1);
            found += f.machine[0].state == HA_FLEET_STANDS_OUT;
            ha_fleet_free(&f);
        }
        printf("%s: memory slower by %.0f%% is found in %zu of %zu nights\n", w->name, 100 * w->found, found, nights);
        assert_true(10 * found >= 9 * nights);
    }
}

TEST(many_faulty_machines_are_all_named)
{
    struct ha_fleet f;
    const size_t machines = HA_SANITIZED ? 100 : few ? 300 : 1000, wrong = machines / 20;
    draw(&f, &worlds[0], 7, machines, &faults[1], wrong);
    assert_int_equal(named(&f, 0) - named(&f, wrong), wrong);
    assert_int_equal(named(&f, wrong), 0);
    ha_fleet_free(&f);
}

TEST(what_is_said_to_be_noticed_is_noticed)
{
    const size_t machines = 200, nights = HA_SANITIZED ? 1 : few ? 20 : 100;
    struct ha_fleet f;
    size_t found = 0;
    double sum = 0;
    for (uint64_t night = 1; night <= nights; night++) {
        draw(&f, &worlds[0], 300 + night, machines, NULL, 0);
        assert_int_equal(f.group[0].track[READ].part - ha_parts_of_machine, READ);
        const double least = f.group[0].track[READ].least;
        const struct fault fault = { .read = expm1(least) };
        assert_true(least > 0.015 && least < 0.1);
        sum += least;
        ha_fleet_free(&f);
        draw(&f, &worlds[0], 300 + night, machines, &fault, 1);
        found += f.machine[0].state == HA_FLEET_STANDS_OUT;
        ha_fleet_free(&f);
    }
    printf("of %zu machines whose memory is slower by %.1f%%, as much as is noticed, %zu are\n", nights,
           100 * expm1(sum / (double)nights), found);
    if (!HA_SANITIZED) assert_true(found * 100 >= 80 * nights);
}

/* ---- two kinds --------------------------------------------------------------------------------------------------- */

TEST(two_kinds_that_agree_in_their_facts_are_said_and_judged_each)
{
    const struct fault slow = { .clock = 0.2, .read_1 = 0.2, .read = 0.2, .device = 0.2, .h2d = 0.2, .launch = 0.2 };
    const size_t machines = HA_SANITIZED ? 60 : 400;
    struct ha_fleet f;
    draw(&f, &worlds[0], 9, machines, &slow, machines / 2);
    char *line = ha_fleet_line(&f, NULL, NULL);
    printf("%s\n", line);
    assert_int_equal(f.groups, 2);
    assert_int_equal(named(&f, 0), 0);
    assert_int_equal(ha_fleet_exit(&f), HA_EXIT_OK);
    assert_non_null(strstr(line, "two kinds"));
    for (size_t i = 0; i < machines; i++) assert_int_equal(f.machine[i].group == f.machine[0].group, i < machines / 2);
    free(line);
    ha_fleet_free(&f);
}

/* ---- small fleets ------------------------------------------------------------------------------------------------ */

TEST(three_machines_are_too_few_to_stand_out)
{
    for (size_t n = 1; n < HA_SPREAD_LEAST; n++) {
        struct ha_fleet f;
        draw(&f, &worlds[0], 11, n, &faults[1], 1);
        char *line = ha_fleet_line(&f, &f.machine[0], NULL);
        assert_int_equal(ha_fleet_exit(&f), HA_EXIT_ENVIRONMENT);
        assert_int_equal(f.machine[0].state, HA_FLEET_TOO_FEW);
        assert_non_null(strstr(line, "too few to stand out"));
        assert_true(isinf(f.group[0].column[0].least));
        free(line);
        ha_fleet_free(&f);
    }
}

/* One figure of a machine names it by five processes or more, all of which are so slow. */
TEST(a_figure_of_few_processes_or_with_one_good_one_names_nobody)
{
    for (int good = 0; good < 2; good++) {
        struct ha_fleet f;
        begin(&f);
        seed = 5;
        for (size_t i = 0; i < 100; i++) {
            char name[32];
            snprintf(name, sizeof name, "node%04zu", i);
            draw_machine(&f, &worlds[0], i, name, NULL);
        }
        f.machine[3].value[0].x += 0.2;
        if (good == 0) {
            f.machine[3].value[0].best += 0.2;
            f.machine[3].value[0].processes = HA_FLEET_PROCESSES - 1;
            for (size_t i = 0; i < f.count; i++) f.machine[i].value[1].processes = HA_FLEET_PROCESSES - 1;
        }
        assert_int_equal(ha_fleet_judge(&f, &why), HA_OK);
        assert_int_equal(named(&f, 0), 0);
        /* nor is it said what would have been seen, where no machine has as many */
        for (size_t k = 0; k < 2; k++) {
            const size_t column = f.group[0].column_of[f.machine[0].value[k].figure];
            assert_int_equal(!isinf(f.group[0].column[column].least), good || k == 0);
        }
        ha_fleet_free(&f);
    }
}

/* ---- devices of a host ------------------------------------------------------------------------------------------- */

TEST(one_device_of_eight_is_named_beside_its_neighbours)
{
    struct ha_fleet f;
    begin(&f);
    seed = 13;
    for (size_t i = 0; i < 96; i++) {
        char name[64], host[32];
        snprintf(host, sizeof host, "node%02zu", i / 8);
        snprintf(name, sizeof name, "%s.%zu", host, i % 8);
        draw_machine(&f, &worlds[0], i, name, i == 19 ? &faults[5] : NULL);
        f.machine[i].host = ha_fleet_keep(&f, host);
    }
    assert_int_equal(ha_fleet_judge(&f, &why), HA_OK);
    char *line = ha_fleet_line(&f, &f.machine[19], NULL);
    printf("%s: %s\n", f.machine[19].name, line);
    assert_int_equal(named(&f, 0), 1);
    assert_string_equal(part_named(&f.machine[19]), "device memory read");
    assert_non_null(strstr(line, "of the 7 others of node02 7 fit"));
    free(line);
    ha_fleet_free(&f);
}

/* ---- two nights of a fleet --------------------------------------------------------------------------------------- */

/* The same machines on another night: only their processes are drawn anew. */
static void another_night(struct ha_fleet *f, const struct world *w, size_t machines, double all, double one)
{
    begin(f);
    seed = 21;
    for (size_t i = 0; i < machines; i++) {
        char name[32];
        snprintf(name, sizeof name, "node%04zu", i);
        draw_machine(f, w, i, name, NULL);
        for (size_t k = 0; k < FIGURES; k++)
            f->machine[i].value[k].x += 0.002 * (double)ha_rng_normal(77, i, k) + all + (i == 4 ? one : 0);
    }
    assert_int_equal(ha_fleet_judge(f, &why), HA_OK);
}

TEST(a_fleet_beside_itself_says_what_moved)
{
    const struct {
        double all, one;
        enum ha_exit exit;
    } each[] = { { 0, 0, HA_EXIT_OK }, { 0, 0.06, HA_EXIT_REGRESSION }, { 0.03, 0, HA_EXIT_REGRESSION } };
    for (size_t k = 0; k < COUNT(each); k++) {
        struct ha_fleet before, now;
        struct ha_fleet_shift s;
        draw(&before, &worlds[0], 21, 60, NULL, 0);
        another_night(&now, &worlds[0], 60, each[k].all, each[k].one);
        assert_int_equal(ha_fleet_shift(&s, &before, &now, &why), HA_OK);
        assert_int_equal(ha_fleet_shift_exit(&s), each[k].exit);
        assert_int_equal(s.machines, 60);
        assert_int_equal(s.figures, FIGURES);
        assert_near(s.by, each[k].all, 0.003);
        assert_true(s.lo <= each[k].all + 0.003 && s.hi >= each[k].all - 0.003);
        assert_int_equal(s.machine[0].called, each[k].one > 0);
        if (each[k].one > 0) assert_string_equal(s.machine[0].machine->name, "node0004");
        assert_int_equal(s.figure[0].called, each[k].all > 0);
        ha_fleet_shift_free(&s);
        ha_fleet_free(&before);
        ha_fleet_free(&now);
    }
}

/* ---- a table for docs -------------------------------------------------------------------------------------------- */

static void print_power(const char *name, size_t least)
{
    static const double sizes[] = { 0.01, 0.02, 0.03, 0.05, 0.10, 0.20 };
    static const size_t fleets[] = { 3, 5, 10, 30, 100, 1000 };
    for (const struct world *w = worlds; w < worlds + COUNT(worlds); w++)
        for (size_t k = 0; !strcmp(w->name, name) && k < COUNT(fleets); k++) {
            if (fleets[k] < least) continue;
            printf("| %s | %zu |", w->name, fleets[k]);
            for (size_t s = 0; s < COUNT(sizes); s++) {
                const struct fault fault = { .read_1 = sizes[s], .read = sizes[s] };
                const size_t nights = fleets[k] > 100 ? 10 : 50;
                size_t found = 0;
                for (uint64_t night = 1; night <= nights; night++) {
                    struct ha_fleet f;
                    draw(&f, w, 1000 + night, fleets[k], &fault, 1);
                    found += f.machine[0].state == HA_FLEET_STANDS_OUT;
                    ha_fleet_free(&f);
                }
                printf(" %zu |", found * 100 / nights);
                fflush(stdout);
            }
            putchar('\n');
        }
}

/* Of one world and size: how many nights name somebody, and from where on a fault of memory would be. */
static void print_nights(const char *name, size_t machines, size_t nights)
{
    for (const struct world *w = worlds; w < worlds + COUNT(worlds); w++) {
        size_t bad = 0;
        double least = 0, heavy = 0;
        for (uint64_t night = 1; !strcmp(w->name, name) && night <= nights; night++) {
            struct ha_fleet f;
            draw(&f, w, night, machines, NULL, 0);
            bad += named(&f, 0) > 0;
            for (size_t i = 0; i < f.count; i++) say_if_named(&f, &f.machine[i]);
            least += f.group[0].track[READ].least / (double)nights;
            heavy += f.group[0].track[READ].at.heavy / (double)nights;
            ha_fleet_free(&f);
        }
        if (!strcmp(w->name, name))
            printf("%s, %zu machines: somebody is named in %zu of %zu nights; noticed from %.1f%% on, tail %.2f\n",
                   name, machines, bad, nights, 100 * expm1(least), heavy);
    }
}

TEST_MAIN
{
    if (argc > 4 && !strcmp(argv[1], "nights")) {
        print_nights(argv[2], strtoul(argv[3], NULL, 10), strtoul(argv[4], NULL, 10));
        return 0;
    }
    few = argc > 1 && !strcmp(argv[1], "few");
    if (argc > 2 && !strcmp(argv[1], "power")) {
        print_power(argv[2], argc > 3 ? strtoul(argv[3], NULL, 10) : 0);
        return 0;
    }
    return test_all("tests", NULL, NULL);
}
