#!/bin/sh
# test-compare-mutants.sh O CC: mistakes in the statistics of `habench compare`, of one machine and of a fleet, and of
# `habench history`, each planted in a copy of its file, which is linked in place of the right one. What simulated nights and planted cases say has to see
# every one; and the files as they are have to pass. O: the folder of the build.
# shellcheck source=scripts/test.sh
. "$(dirname "$0")/test.sh"
o=$1 cc=$2
ulimit -c 0 # a test that fails aborts

# build FILE TEST: the program of a test, with FILE of the folder in place of the right one
build()
{
    # shellcheck disable=SC2086 # $cc and what the files hold are words
    $cc -std=c17 -D_DEFAULT_SOURCE -D_XOPEN_SOURCE=700 -O1 -ffp-contract=off -I. -c "$dir/$1" -o "$dir/mutant.o" 2> "$dir/err" &&
        $cc "$dir/mutant.o" "$o/harness/base/test_main.o" "$o/harness/compare/$2.o" "$o/harness/program/fake_version.o" \
            -o "$dir/test" @"$o/all" -lcsv -ljansson -lhwloc -linih -lcmocka @"$o/openmp" -ldl -lm -lpthread 2> "$dir/err"
}

# mutant FILE TEST SED WHAT: TEST, a file or one test of it (FILE:NAME), fails where FILE is changed so: at the first failure
mutant()
{
    sed -e "$3" "harness/compare/$1" > "$dir/$1"
    if cmp -s "$dir/$1" "harness/compare/$1"; then fail "$4: nothing was changed in $1"
    elif ! build "$1" "${2%:*}"; then fail "$4: it does not compile"
    else
        CMOCKA_TEST_ABORT=1 "$dir/test" "$2" few > "$dir/out" 2>&1
        case $? in
            0) fail "$4: nobody saw it" ;;
            64) fail "$4: there is no $2" ;;
            *) pass ;;
        esac
    fi
}

for test in test_nights test_shift test_compare test_blame test_speeds test_history test_fleet_read test_fleet_spread test_side_by_side; do
    cp harness/compare/shift.c "$dir/shift.c"
    if build shift.c $test && "$dir/test" $test few > "$dir/out" 2> "$dir/err"; then pass; else fail "$test: as it is"; fi
done

mutant sides.c test_nights 's/s->x\[s->count\] = logarithm(f, .*;/&\
        if (s->count + 1 < f->count) { s->night[s->count + 1] = s->night[s->count]; s->x[s->count + 1] = s->x[s->count]; s->count++; }/' \
    'a process counts twice, as if its samples were pooled'
mutant shift.c test_nights 's/sqrt(all)/e/' 'the spread between nights is left out'
mutant shift.c test_shift 's/if (!squares_of(&s, base)/if (1 || !squares_of(\&s, base)/' 'a figure whose nights differ more than those of others has the spread of these'
mutant shift.c test_shift 's/sqrt(s.nights - s.within), freedom/sqrt(s.nights - s.within), (double)INFINITY/' 'the spread of five nights is as good as known'
mutant shift.c test_nights 's/const double e = few \*/& 0.2 */' 'the interval is too narrow'
mutant shift.c test_nights 's/return fmax(of_processes, .*;/return of_processes;/' 'processes of a night count as if they had nothing in common'
mutant shift.c test_nights 's/alpha \* (double)(i + 1) \/ (double)count/alpha/' 'false alarms are held down in each figure, and not over the night'
mutant compare.c test_compare 's/if (!now || !now->processes) return HA_CHANGE_GONE;/if (!now || !now->processes) return HA_CHANGE_SAME;/' 'a missing case is ignored'
mutant compare.c test_compare 's/if (lost.lost) kind = HA_CHANGE_GONE;//' 'a figure without a value is ignored'
mutant lost.c test_compare 's/ && 10 \* values >= 9 \* rows//' 'a figure of some processes is missed'
mutant machine.c test_compare 's/level \/ scale\[i\]/1/' 'the machine is another where other cases read it'
mutant compare.c test_compare 's/s->size > 0 ? HA_CHANGE_SUSPICIOUS : HA_CHANGE_PERHAPS_BETTER/HA_CHANGE_SUSPICIOUS/' 'perhaps faster is not all that ran'
mutant lost.c test_compare 's/ && nights == with_row//' 'a figure of some nights is missed'
mutant sides.c test_compare 's/f->better == HA_MORE ? -x : x/f->better == HA_LESS ? -x : x/' 'the sign of "better" is turned'
mutant sides.c test_compare 's/return f->better == HA_MORE ? -x : x;/return x;/' 'more is worse, also of rates'
mutant blame.c test_compare 's/ha_record_figure(c->base, p->figure)/ha_record_figure(c->base, ha_parts_of_machine[0].figure)/' 'the reading of another part'
mutant blame.c test_compare 's/|| (p->link \&\& !link)//' 'the link is blamed by who does not use it'
mutant blame.c test_compare 's/if (rest->hi < size \/ 2) return HA_CAUSE_MACHINE;//' 'the machine is never to blame alone'
mutant blame.c test_blame 's/beyond_doubt(part) \&\& beyond_doubt(rest)/rest->lo > HA_SHIFT_LEAST/' 'a part that moved by chance is half of the cause'
mutant blame.c test_blame 's/beyond_doubt(part) \&\& beyond_doubt(rest)/beyond_doubt(part)/' 'what is left by chance is the code'
mutant compare.c test_compare 's/k->processes >= HA_SHIFT_PROCESSES/k->processes >= 1/' 'few processes are called'
mutant results.c test_compare 's/HA_LESS, 3, 1e-3/HA_LESS, 1e9, 1e-3/' 'an error may grow'
mutant record.c test_compare 's/if (disturbed(c, f, at.process)) return HA_OK;//' 'processes beside another load count'
mutant compare.c test_compare 's/return 2 \* disturbed > processes;/return false;/' 'what is left of processes beside another load is enough'
mutant compare.c test_compare 's/if (c->disturbed > c->processes ||.*;//' 'the few that are left raise a suspicion'
mutant shift.c test_nights 's/    relative(x, n, &speeds);//' 'two speeds are a spread between nights'
mutant shift.c test_nights 's/out->slow\[1\] = relative(s.now, n, &moved);//' 'what is at the slow speed is slower'
mutant shift.c test_speeds 's/ + common_shift(.*);/;/' 'the speeds of a change are those of the base'
mutant shift.c test_speeds 's/return of_slow > 0 ? of_slow : of_fast;/return of_slow;/' 'what is between the speeds is faster than the slow one'
mutant shift.c test_speeds 's/if (best_fit < still_fit + few .*return best_still;//' 'a night at the slow speed is a change'
mutant shift.c test_speeds 's/best_fit < still_fit + few/best_fit <= still_fit/' 'one late process moves the speeds'
mutant bits.c test_compare 's/ || strcmp(o->plan, as->plan) != 0//' 'other kernels must have the same bits'
mutant bits.c test_compare 's/ \&\& strcmp(digest, o->digest) != 0) return NULL/ \&\& false) return NULL/' 'a base that does not agree is one that does'
mutant bits.c test_compare 's/        if (!ha_night_same_bits(.*//' 'another build must have the same bits'
mutant facts.c test_compare 's/ \&\& !strstr(a->build, "-dirty")//' 'changes that were not committed are the same build'

# of two speeds, facts, results, and what is folded
mutant compare.c test_speeds 's/fmin(1, 2 \* fmin(of_shift, .*;/of_shift;/' 'how many are at which speed is not asked'
mutant compare.c test_speeds 's/k->processes >= SHARE_PROCESSES ? p_share : 1/0/' 'two speeds are always a change'
mutant shift.c test_speeds 's/ha_shares_tail(n, out->slow\[1\], out->slow\[0\], m/ha_shares_tail(n, out->slow[1], m - out->slow[0], m/' 'the shares of the two speeds are exchanged'
mutant shares.c test_nights 's/return fmin(0.95, excess.*/return 0;/; s/(1 - correlation) \/ of/1e-9/' 'each night has the share of all'
mutant shares.c test_speeds 's/return HA_SHARES_ASSUMED;/return 0.9;/' 'of one night nothing can be called'
mutant shares.c test_speeds 's/lgamma(x + 1) - //' 'chances of shares are too large'
mutant facts.c test_compare 's/return is < was ? HA_FACT_LOST : HA_FACT_CHANGED;/return HA_FACT_CHANGED;/' 'lost hardware is another fact'
mutant facts.c test_compare 's/return is < was ? HA_FACT_LOST : HA_FACT_CHANGED;/return HA_FACT_LOST;/' 'more hardware is lost hardware'
mutant facts.c test_compare 's/if (board >= 0) return board;//' 'the board does not say which machine it is'
mutant facts.c test_compare 's/return host > 0 || id > 0;/return host > 0 \&\& id > 0;/' 'a new name is a new machine'
mutant facts.c test_compare 's/!same_fact(a, b, "cpu", fact) ||//' 'one image on two CPUs is one machine'
mutant facts.c test_compare 's/<= f->within \* fmax(is, was)/<= 0.02 * fmax(is, was)/' 'one core of 64 is none'
mutant results.c test_compare 's/slack = r.exact ? 0 :/slack =/' 'rounding excuses one build'
mutant results.c test_compare 's/slack = r.exact ? 0 : .*/slack = 0;/' 'rounding does not excuse another build'
mutant results.c test_compare 's/is->better == HA_LESS ? below : is->better == HA_MORE ? above : 0/below/' 'less is better, also of recall'
mutant blame.c test_compare 's/c->cause = possible(all, c->cause);//' 'the code is to blame that is the same'
mutant compare.c test_compare 's/if (c->no_figures) exit.*//' 'figures that no case has any more are nothing'
mutant compare.c test_compare 's/if (is \&\& ha_figure_steady(now, is, NULL, c->now->nights)) continue;/if (ha_figure_there(now, f->name)) continue;/' 'one value of a case is enough'
mutant fold.c test_compare 's/    k->folded = true;//' 'what follows counts on its own'
mutant fold.c test_compare 's/ \&\& ha_is_result(a->figure->name) == ha_is_result(b->figure->name)//' 'a result follows from a time'

# of machines side by side
mutant side_by_side.c test_side_by_side 's/ratio_of(&side\[0\], &side\[1\]/ratio_of(\&side[1], \&side[0]/' 'the slower machine is faster'
mutant side_by_side.c test_side_by_side 's/const double x = row\[b\].ratio.size - row\[a\].ratio.size/const double x = expm1(row[b].ratio.size) - expm1(row[a].ratio.size)/' 'the mean is of ratios, not of their logarithms'
mutant side_by_side.c test_side_by_side 's/ha_side_over(&side\[i\], f\[i\], over\[i\], /ha_side_make(\&side[i], f[i], /' 'nothing is accounted for'
mutant side_by_side.c test_side_by_side 's/rest.lo > -half && rest.hi < half && //' 'whatever is left, a part accounts for it'
mutant side_by_side.c test_side_by_side 's/hypot(of_cases, .*);/of_cases;/; s/hypot(r.size - difference(a, b, out + 1), .*)/r.size - difference(a, b, out + 1)/; s/hypot(difference(a, b, pairs - out) - r.size, .*)/difference(a, b, pairs - out) - r.size/' 'the spread between nights is left out'
mutant side_by_side.c test_side_by_side 's/of_cases = .*/of_cases = 0;/' 'the mean is as sure as if all cases were alike'
mutant side_by_side.c test_side_by_side 's/if (out < 0) return r;//' 'few processes have an interval'
mutant side_by_side.c test_side_by_side 's/one_side = 0.025/one_side = 0.2/' 'the interval is too narrow'
mutant side_by_side.c test_side_by_side 's/ || !has_row(other, of_other)//; s/    return (c->verdict == HA_VERDICT_WAIVED)/    return !of_other || (c->verdict == HA_VERDICT_WAIVED)/' 'a case that one machine has is enough'
mutant side_by_side.c test_side_by_side 's/if (!ha_side_case_right(a->of) || .*//' 'a wrong result has a time'
mutant side_by_side.c test_side_by_side 's/return 2 \* disturbed > processes;/return false;/' 'what is left of processes beside another load is enough'
mutant side_by_side.c test_side_by_side 's/NULL).ratio.hi < 0) first = i;/NULL).ratio.size < 0) first = i;/' 'nobody shares a place'
mutant side_by_side.c test_side_by_side 's/        if (!other) continue;//' 'nights of B are nights of A'
mutant side_by_side_print.c test_side_by_side 's/price \/ 3600/price/' 'an hour is a second'
mutant side_by_side_print.c test_side_by_side 's/step_ns >= (double)limit_ns || //' 'the limit is none'

# of `habench history`
mutant history.c test_history:few_nights_show_no_change_and_say_so 's/n < fewest/n < 1/' 'a few nights are a test'
mutant history.c test_history:where_nothing_changes_at_most_one_figure_in_a_hundred_shows_a_change 's/h->level = HA_HISTORY_ALPHA .*;/h->level = 1;/; s/ha_shift_threshold(p, h->tested, HA_HISTORY_ALPHA)/1/' 'every figure has a change somewhere'
mutant history.c test_history:another_machine_has_a_curve_of_its_own 's/if (h->machine\[f->at\[i\].night\] == machine)/if (!machine)/' 'two machines are one curve'
mutant history.c test_history:values_without_a_logarithm_and_equal_ones_are_shown_and_are_no_change 's/n += isfinite(x\[n\]) ? 1 : 0;/n++;/' 'what has no logarithm is a level'
mutant history.c test_history 's/\.night = night,/.night = c->count,/' 'nights are counted by those that have the case'
mutant history.c test_history:changes_stand_on_top_the_newest_first_and_the_nights_below 's/k ? at\[point\[k - 1\].at\] : 0/0/' 'a change is measured from the first night on'
mutant history.c test_history:the_first_time_or_rate_of_each_case_is_shown_or_the_figure_that_is_named 's/ == negated/ != negated/' 'the filter is turned around'
mutant history.c test_history:the_first_time_or_rate_of_each_case_is_shown_or_the_figure_that_is_named 's/if (length == n \&\& /if (length >= n \&\& /' 'a value fits where it begins alike'
mutant change_points.c test_history:the_chance_of_a_series_is_no_smaller_than_it_is 's/return part ? .*;/return p;/' 'the best of many stretches counts as one'
mutant change_points.c test_history:the_chance_of_a_series_is_no_smaller_than_it_is 's/return 2 \* tail(/return 0.02 * tail(/' 'chances are too small'
mutant change_points.c test_history:the_chance_of_a_series_is_no_smaller_than_it_is 's/fmax(above, below) - inside/fmax(above, below)/' 'nights are set against themselves'
mutant change_points.c test_history:a_step_is_found_within_two_nights_of_its_place 's/^    while (drop_weakest.*//' 'an end of a stretch is not looked at'
mutant change_points.c test_history:a_step_is_found_within_two_nights_of_its_place 's/        r->begin\[k\] = from + best.j;/        r->begin[k] = from + best.j + 3;/' 'the change is found too late'
mutant change_points.c test_history:two_steps_are_two_also_where_the_second_takes_the_first_back 's/inner \&\& i >= LEAST/false/' 'levels that come back are not seen'
mutant change_points.c test_history:two_steps_are_two_also_where_the_second_takes_the_first_back 's/ - HA_SHIFT_LEAST;/;/; s/a - b > HA_SHIFT_LEAST/a - b > 0/' 'a change of nothing is one'
mutant change_points.c test_history:a_drift_is_said_to_be_one 's/(size < 0 ? -near : near) + error < fabs(size) \/ 2/false/' 'a drift is a step'
mutant change_points.c test_history:a_step_is_found_within_two_nights_of_its_place 's/ + error < fabs(size) \/ 2/ + error < 2 * fabs(size)/' 'a step is a drift'
mutant change_points.c test_history:the_chance_of_a_few_nights_at_the_end_is_counted 's/fmin(normal, tail_bound(small, n + m - small, pairs - u))/normal/' 'few nights of many are as a normal distribution has them'
mutant change_points.c test_history:the_chance_of_a_series_is_no_smaller_than_it_is 's/exp(log(all) + lgamma/exp(lgamma/' 'what is missing from a U changes nothing'
mutant change_points.c test_history:few_nights_show_no_change_and_say_so 's/<= p \* (1 + 1e-9)/<= p * (1 - 1e-9)/' 'a stretch that is as unlikely does not count'
mutant history_sight.c test_history:as_much_is_seen_as_is_said 's| / M_SQRT2;|;|' 'two nights differ by no more than one is off'
mutant history_sight.c test_history:as_much_is_seen_as_is_said 's|DRAWS \* 8 / 10|DRAWS * 4 / 10|' 'what is said to be seen is seen less often'
mutant history_print.c test_history:changes_stand_on_top_the_newest_first_and_the_nights_below 's/return i > k ? -1 : 1;/return i > k ? 1 : -1;/' 'the oldest change first'
mutant history_print.c test_history:where_the_machine_changed_too_the_line_says_so 's/n->night + NEAR < night || n->night > night + NEAR/false/' 'any change of the machine is beside it'
mutant history_print.c test_history:changes_stand_on_top_the_newest_first_and_the_nights_below 's/more == (c->figure->better == HA_LESS)/more/' 'more is worse, also of rates'

# of a fleet
mutant fleet_spread.c test_fleet_spread 's/a \* log(x) + b/a * log(x) - b/' 'chances are not Student'"'"'s'
mutant fleet_spread.c test_fleet_spread 's/return n < FEW ? few\[n\].freedom : .*;/return 1e9;/' 'the spread of few machines is as sure as that of many'
mutant fleet_spread.c test_fleet_spread 's/(x\[(n - 1) \/ 2\] + x\[n \/ 2\]) \/ 2/x[n - 1]/' 'the farthest machine is the middle'
mutant fleet_spread.c test_fleet_spread 's/if (isfinite(x\[i\])) //; s/if (!isnan(x\[i\])) //' 'a machine without a value has one'
mutant fleet_spread.c test_fleet_spread 's/alpha \* (double)(i + 1) \/ of/alpha * (double)(i + 1)/' 'false names are held down in each figure, and not over the fleet'
mutant fleet_spread.c test_fleet_spread 's/ratio_of(middle, part) < ratio/ratio_of(middle, part) > ratio/' 'a long tail is a normal one'
mutant fleet.c test_fleet_read 's/if (2 \* c->disturbances > c->processes) continue;//; s/m->disturbed += .*/m->disturbed = 0;/' 'what is disturbed is judged'
mutant fleet.c test_fleet_read 's/m->digest\[k\].digest != d.digest/false/' 'a machine agrees with itself, whatever it says'
mutant fleet_outputs.c test_fleet_read 's/steady >= 3 \&\& 2 \* d.agree > steady/steady >= 2/' 'one of two is the majority'
mutant fleet_outputs.c test_fleet_read 's/if (d.agree == count) return HA_OK;/return HA_OK;/' 'outputs that disagree are not looked at'
mutant fleet_outputs.c test_fleet_read 's/if (x->digest.mixed != .*//' 'who disagrees with itself has a say'
mutant fleet_read.c test_fleet_read 's/if (i > 0 \&\& !strcmp(expected->at.*//' 'a name that is expected twice is two machines'
mutant fleet_judge.c test_fleet:a_figure_of_few_processes_or_with_one_good_one_names_nobody 's/m->value\[v\].processes < HA_FLEET_PROCESSES || //' 'what can name nobody would have been seen'
mutant facts.c test_fleet_read 's/fabs(is - was) <= .*) return/is == was) return/' 'a little memory is another kind'
mutant fleet_group.c test_fleet_read 's/ \&\& f->fact_of_kind\[i\]//' 'firmware is another kind'
mutant fleet_read.c test_fleet_read 's/f->never_began = .*/f->never_began = 0;/' 'ranks that never began are forgotten'
mutant fleet_read.c test_fleet_read 's/m.state = ranks ? .*/m.state = HA_FLEET_FITS;/' 'who is expected and not there fits'
mutant fleet_judge.c test_fleet_read 's/if (m->lacks || m->errors) become.*//' 'cases that are not there are not missed'
mutant fleet_judge.c test_fleet_read 's/const double best = v->best - c->best.middle;/const double best = -1;/; s/x\[place\] - t->at.middle/x[0] - t->at.middle/' 'another machine is named'
mutant fleet_judge.c test_fleet 's/if (!g->judged || .*) return cell;/if (!g->judged) return cell;/; s/cell.p = fmax(\(.*\), ha_spread_chance(\&c->best, best));/cell.p = \1;/' 'one good process of five says nothing'
mutant fleet_judge.c test_fleet:a_figure_of_few_processes_or_with_one_good_one_names_nobody 's/m->value\[v\].processes < HA_FLEET_PROCESSES ? 1 : //; s/if (m->value\[v\].processes >= HA_FLEET_PROCESSES) //' 'few processes name a machine'
mutant fleet_judge.c test_fleet:a_fault_of_five_percent_is_found_by_its_part 's/t->part \&\& by < as_far \* most/false/' 'the first part that is slow is named, whatever little'
mutant fleet_group.c test_fleet:two_kinds_that_agree_in_their_facts_are_said_and_judged_each 's/gap > kinds_apart .* : (double)INFINITY/(double)INFINITY/' 'two kinds are one'
mutant fleet_group.c test_fleet 's/work\[n++\] = m->value\[i\].x - c->at.middle/work[n++] = m->value[i].x/' 'figures of several sizes are summed as they are'
mutant fleet_shift.c test_fleet_read 's/w->x\[to\] = -before->value\[i\].x/w->x[to] = 0/' 'a fleet beside itself is as it is now'
finish
