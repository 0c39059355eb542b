#include "harness/program/manual.h"

#include "harness/base/version.h"
#include "harness/program/options.h"

#include <string.h>

/* What is offered for the value of an option, and how each shell is told: bash by what fills COMPREPLY, zsh by the end
 * of a specification, fish by further options of `complete`. */
enum value { NONE, WORD, FILES, FOLDERS, DEVICES, KERNELS };
static const struct {
    const char *bash, *zsh, *fish;
} offers[] = {
    [NONE] = { "", "", "" },
    [FILES] = { "$(compgen -f -- \"$word\")", ":file:_files", " -r -F" },
    [FOLDERS] = { "$(compgen -d -- \"$word\")", ":folder:_files -/", " -x -a '(__fish_complete_directories)'" },
    [DEVICES] = { "$(compgen -W \"$(_habench_listed devices)\" -- \"$word\") $(compgen -f -X '!*.so' -- \"$word\")",
                  ":device:_habench_devices", " -r -F -a '(__habench_listed devices)'" },
    [KERNELS] = { "$(compgen -W \"$(_habench_listed kernels)\" -- \"$word\")", ":instruction set:_habench_kernels",
                  " -x -a '(__habench_listed kernels)'" },
};

static enum value value_of(const struct ha_option *o)
{
    static const struct {
        const char *name; /* of the option, or what its value is called */
        enum value value;
    } known[] = {
        { "DIR", FOLDERS }, { "FILE", FILES }, { "device", DEVICES }, { "isa", KERNELS }, { "without", KERNELS }
    };
    if (!o->arg) return NONE;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(o->arg, known[i].name) || !strcmp(o->name, known[i].name)) return known[i].value;
    return WORD;
}

/* a of "a|b|c", the words to choose from, or false where the value is free: words in capitals */
static bool choices(const struct ha_option *o, char out[128])
{
    if (!o->arg || !strchr(o->arg, '|') || strpbrk(o->arg, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")) return false;
    snprintf(out, 128, "%s", o->arg);
    for (char *c = out; *c; c++)
        if (*c == '|') *c = ' ';
    return true;
}

/* The first word of each line of a command's ARGS that is in small letters: what `habench list` takes. */
static void put_keywords(FILE *out, const struct ha_command_text *c)
{
    for (const char *line = ha_command_args(c); line && *line;) {
        const size_t n = strcspn(line, " \n");
        if (*line >= 'a' && *line <= 'z') fprintf(out, " %.*s", (int)n, line);
        line = strchr(line, '\n');
        if (line) line++;
    }
}

static bool takes(const struct ha_command_text *c, const struct ha_option *o)
{
    return o->commands >> (c - ha_command_table) & 1u;
}

static void put_commands(FILE *out, const char *between)
{
    for (const struct ha_command_text *c = ha_command_table; c->name; c++)
        fprintf(out, "%s%s", c > ha_command_table ? between : "", c->name);
}

static bool takes_cases(const struct ha_command_text *c) { return strstr(ha_command_args(c), "SUITE"); }

/* ---- the man page -------------------------------------------------------------------------- */

/* roff: a dash is \-, a backslash is \e, and no line begins with a control character */
static void put_roff(FILE *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\\') fputs("\\e", out);
        else if (text[i] == '-') fputs("\\-", out);
        else if ((text[i] == '.' || text[i] == '\'') && (i == 0 || text[i - 1] == '\n')) fprintf(out, "\\&%c", text[i]);
        else fputc(text[i], out);
    }
}

static void man_option(FILE *out, const struct ha_option *o)
{
    fputs(".TP\n.B ", out);
    if (o->letter) fprintf(out, "\\-%c, ", o->letter);
    fputs("\\-\\-", out);
    put_roff(out, o->name, strlen(o->name));
    if (o->arg) {
        fputs("=", out);
        put_roff(out, o->arg, strlen(o->arg));
    }
    fputc('\n', out);
    put_roff(out, o->doc, strlen(o->doc));
    fputs(".\n", out);
}

static void man_command(FILE *out, const struct ha_command_text *c)
{
    fprintf(out, ".SS habench %s\n", c->name);
    for (const char *line = ha_command_args(c); line && *line;) {
        const size_t n = strcspn(line, "\n");
        fprintf(out, ".B habench %s\n", c->name);
        put_roff(out, line, n);
        fputs("\n.br\n", out);
        line += n + (line[n] == '\n');
    }
    const size_t before = strcspn(c->doc, "\v"); /* argp prints what follows behind the options */
    fputs(".PP\n", out);
    put_roff(out, c->doc, before);
    fputc('\n', out);
    for (const struct ha_option *o = ha_option_table; o->name; o++)
        if (takes(c, o)) man_option(out, o);
    if (c->doc[before]) {
        fputs(".PP\n", out);
        put_roff(out, c->doc + before + 1, strlen(c->doc + before + 1));
        fputc('\n', out);
    }
}

static void print_man(FILE *out)
{
    fprintf(out, ".TH HABENCH 1 \"\" \"habench %s\" \"User commands\"\n.SH NAME\n", ha_version());
    fputs(
        "habench \\- benchmark and correctness suite for attention over KV caches that are split between a device and "
        "host memory\n.SH SYNOPSIS\n",
        out);
    for (const struct ha_command_text *c = ha_command_table; c->name; c++)
        fprintf(out, "%s.B habench %s\n[OPTION...]%s\n", c > ha_command_table ? ".br\n" : "", c->name,
                *ha_command_args(c) ? " ..." : "");
    fputs(".SH COMMANDS\n", out);
    for (const struct ha_command_text *c = ha_command_table; c->name; c++) man_command(out, c);
}

/* ---- completions ---------------------------------------------------------------------------- */

/* One of this name stands before it: bash offers what the first one takes, whatever the command. */
static bool is_again(const struct ha_option *o)
{
    for (const struct ha_option *first = ha_option_table; first < o; first++)
        if (!strcmp(first->name, o->name)) return true;
    return false;
}

/* What the program says of itself: the first word of each line of `habench list WHAT`. */
#define LISTED(what) "habench list " what " 2>/dev/null | while read -r word rest; do echo \"$word\"; done"

static void print_bash(FILE *out)
{
    char words[128];
    fputs(
        "# bash completion of habench; printed by habench --print-completion=bash\n"
        "_habench_listed() { " LISTED(
            "\"$1\"") "; }\n"
                      "_habench()\n{\n"
                      "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= offer= i\n"
                      "    for ((i = 1; i < COMP_CWORD; i++)); do\n        case ${COMP_WORDS[i]} in\n            ",
        out);
    put_commands(out, "|");
    fputs(") command=${COMP_WORDS[i]}; break ;;\n        esac\n    done\n"
          "    [ \"$before\" = = ] && before=${COMP_WORDS[COMP_CWORD-2]}\n"
          "    [ \"$word\" = = ] && word=\n    COMPREPLY=()\n    case $before in\n",
          out);
    for (const struct ha_option *o = ha_option_table; o->name; o++) {
        const enum value v = value_of(o);
        if (v == NONE || is_again(o)) continue;
        fprintf(out, "        --%s", o->name);
        if (o->letter) fprintf(out, "|-%c", o->letter);
        if (v != WORD) fprintf(out, ") COMPREPLY=(%s); return ;;\n", offers[v].bash);
        else if (choices(o, words)) fprintf(out, ") COMPREPLY=($(compgen -W \"%s\" -- \"$word\")); return ;;\n", words);
        else fputs(") return ;;\n", out);
    }
    fputs("    esac\n    case $command in\n", out);
    for (const struct ha_command_text *c = ha_command_table; c->name; c++) {
        fprintf(out, "        %s)\n            if [[ $word == -* ]]; then offer=\"--help", c->name);
        for (const struct ha_option *o = ha_option_table; o->name; o++) {
            if (!takes(c, o)) continue;
            fprintf(out, " --%s", o->name);
            if (o->letter) fprintf(out, " -%c", o->letter);
        }
        fputs("\"\n            else offer=\"", out);
        put_keywords(out, c);
        if (takes_cases(c)) fputs(" $(_habench_listed suites)", out);
        fputs("\"\n            fi ;;\n", out);
    }
    fputs("        *) offer=\"", out);
    put_commands(out, " ");
    fputs(" --help --version\" ;;\n    esac\n    COMPREPLY=($(compgen -W \"$offer\" -- \"$word\"))\n}\n"
          "complete -o default -F _habench habench\n",
          out);
}

/* within '...' of a shell: ' is '\'' ; where colons and brackets mean something to zsh they are escaped */
static void put_quoted(FILE *out, const char *text, const char *escape)
{
    for (; *text; text++) {
        if (*text == '\'') fputs("'\\''", out);
        else if (strchr(escape, *text)) fprintf(out, "\\%c", *text);
        else fputc(*text == '\n' ? ' ' : *text, out);
    }
}

static void zsh_value(FILE *out, const struct ha_option *o)
{
    char words[128];
    const enum value v = value_of(o);
    fputs(v == WORD ? ":" : offers[v].zsh, out);
    if (v != WORD) return;
    put_quoted(out, o->arg, ":[]\\");
    if (choices(o, words)) fprintf(out, ":(%s)", words);
    else fputs(": ", out);
}

static void print_zsh(FILE *out)
{
    fputs(
        "#compdef habench\n# zsh completion of habench; printed by habench --print-completion=zsh\n"
        "_habench_listed() { local -a words; words=(${(f)\"$(" LISTED(
            "$1") ")\"}); compadd -a words }\n"
                  "_habench_devices() { _habench_listed devices; _files -g '*.so' }\n"
                  "_habench_kernels() { _habench_listed kernels }\n"
                  "_habench_cases() { _habench_listed suites; _files -g '*.suite' }\n"
                  "_habench()\n{\n    local command=${words[2]}\n    if (( CURRENT == 2 )); then\n        compadd -- ",
        out);
    put_commands(out, " ");
    fputs(" --help --version\n        return\n    fi\n    shift words; (( CURRENT-- ))\n    case $command in\n", out);
    for (const struct ha_command_text *c = ha_command_table; c->name; c++) {
        fprintf(out, "        %s) _arguments '--help[help of this command]'", c->name);
        for (const struct ha_option *o = ha_option_table; o->name; o++) {
            if (!takes(c, o)) continue;
            for (int letter = 0; letter < (o->letter ? 2 : 1); letter++) {
                if (letter) fprintf(out, " \\\n            '-%c", o->letter);
                else fprintf(out, " \\\n            '--%s%s", o->name, o->arg ? "=" : "");
                fputc('[', out);
                put_quoted(out, o->doc, "[]\\:");
                fputc(']', out);
                zsh_value(out, o);
                fputc('\'', out);
            }
        }
        if (takes_cases(c) && !c->args) {
            fputs(" \\\n            '1:what:(", out);
            put_keywords(out, c);
            fputs(")' '*:suite:_habench_cases'", out);
        } else if (takes_cases(c)) fputs(" \\\n            '*:suite:_habench_cases'", out);
        fputs(" ;;\n", out);
    }
    fputs("    esac\n}\n_habench \"$@\"\n", out);
}

static void print_fish(FILE *out)
{
    char words[128];
    fputs("# fish completion of habench; printed by habench --print-completion=fish\n"
          "function __habench_listed; habench list $argv[1] 2>/dev/null | string replace -r ' .*' ''; end\n"
          "complete -c habench -f\n",
          out);
    for (const struct ha_command_text *c = ha_command_table; c->name; c++) {
        fprintf(out, "complete -c habench -n __fish_use_subcommand -a %s -d '", c->name);
        char doc[512];
        snprintf(doc, sizeof doc, "%.*s", (int)strcspn(c->doc, ".\v"), c->doc);
        put_quoted(out, doc, "\\");
        fputs("'\n", out);
        if (takes_cases(c))
            fprintf(out,
                    "complete -c habench -n '__fish_seen_subcommand_from %s' -a '(__habench_listed suites) "
                    "(__fish_complete_suffix .suite)'\n",
                    c->args ? c->name : "cases");
        if (c->args) continue;
        fputs("complete -c habench -n '__fish_seen_subcommand_from list; and not __fish_seen_subcommand_from", out);
        put_keywords(out, c);
        fputs("' -a '", out);
        put_keywords(out, c);
        fputs("'\n", out);
    }
    for (const struct ha_option *o = ha_option_table; o->name; o++) {
        fputs("complete -c habench -n '__fish_seen_subcommand_from", out);
        for (const struct ha_command_text *c = ha_command_table; c->name; c++)
            if (takes(c, o)) fprintf(out, " %s", c->name);
        fprintf(out, "' -l %s", o->name);
        if (o->letter) fprintf(out, " -s %c", o->letter);
        const enum value v = value_of(o);
        if (v != WORD) fputs(offers[v].fish, out);
        else if (choices(o, words)) fprintf(out, " -x -a '%s'", words);
        else fputs(" -x", out);
        fputs(" -d '", out);
        put_quoted(out, o->doc, "\\");
        fputs("'\n", out);
    }
}

bool ha_manual_print(FILE *out, const char *word)
{
    static const struct {
        const char *word;
        void (*print)(FILE *out);
    } pages[] = {
        { "--print-man", print_man },
        { "--print-completion=bash", print_bash },
        { "--print-completion=zsh", print_zsh },
        { "--print-completion=fish", print_fish },
    };
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        if (!strcmp(word, pages[i].word)) {
            pages[i].print(out);
            return true;
        }
    return false;
}
