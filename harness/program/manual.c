#include "harness/program/manual.h"

#include "harness/base/version.h"
#include "harness/program/options.h"

#include <argp.h>
#include <string.h>

/* What is offered for the value of an option, by what the option table calls it. */
enum value { NONE, WORD, FILES, FOLDERS, DEVICES, KERNELS };

static enum value value_of(const struct argp_option *o)
{
    if (!o->arg) return NONE;
    if (!strcmp(o->arg, "DIR")) return FOLDERS;
    if (!strcmp(o->arg, "FILE")) return FILES;
    if (!strcmp(o->name, "device")) return DEVICES;
    if (!strcmp(o->name, "isa") || !strcmp(o->name, "without")) return KERNELS;
    return WORD;
}

/* a of "a|b|c", the words to choose from, or false where the value is free: words in capitals */
static bool choices(const struct argp_option *o, char out[128])
{
    if (!o->arg || !strchr(o->arg, '|') || strpbrk(o->arg, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")) return false;
    snprintf(out, 128, "%s", o->arg);
    for (char *c = out; *c; c++)
        if (*c == '|') *c = ' ';
    return true;
}

/* The first word of each line of a command's ARGS that is in small letters: what `habench list` takes. */
static void put_keywords(FILE *out, const struct ha_options_command *c)
{
    for (const char *line = c->args; line && *line;) {
        const size_t n = strcspn(line, " \n");
        if (*line >= 'a' && *line <= 'z') fprintf(out, " %.*s", (int)n, line);
        line = strchr(line, '\n');
        if (line) line++;
    }
}

static bool takes_cases(const struct ha_options_command *c) { return c->args && strstr(c->args, "SUITE"); }

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

static void man_option(FILE *out, const struct argp_option *o)
{
    fputs(".TP\n.B ", out);
    if (o->key < 128) fprintf(out, "\\-%c, ", o->key);
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

static void man_command(FILE *out, size_t command, const struct ha_options_command *c)
{
    unsigned commands;
    fprintf(out, ".SS habench %s\n", c->name);
    for (const char *line = c->args; line && *line;) {
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
    const struct argp_option *o;
    for (size_t i = 0; (o = ha_options_option(i, &commands)) != NULL; i++)
        if (commands >> command & 1u) man_option(out, o);
    if (c->doc[before]) {
        fputs(".PP\n", out);
        put_roff(out, c->doc + before + 1, strlen(c->doc + before + 1));
        fputc('\n', out);
    }
}

static void print_man(FILE *out)
{
    struct ha_options_command c;
    fprintf(out, ".TH HABENCH 1 \"\" \"habench %s\" \"User commands\"\n.SH NAME\n", ha_version());
    fputs(
        "habench \\- benchmark and correctness suite for attention over KV caches that are split between a device and "
        "host memory\n.SH SYNOPSIS\n",
        out);
    for (size_t i = 0; ha_options_command(i, &c); i++)
        fprintf(out, "%s.B habench %s\n[OPTION...]%s\n", i ? ".br\n" : "", c.name, *c.args ? " ..." : "");
    fputs(".SH COMMANDS\n", out);
    for (size_t i = 0; ha_options_command(i, &c); i++) man_command(out, i, &c);
}

/* ---- completions ---------------------------------------------------------------------------- */

/* What the program says of itself: the first word of each line of `habench list WHAT`. */
#define LISTED(what) "habench list " what " 2>/dev/null | while read -r word rest; do echo \"$word\"; done"

static void print_bash(FILE *out)
{
    struct ha_options_command c;
    const struct argp_option *o;
    unsigned commands;
    char words[128];
    fputs(
        "# bash completion of habench; printed by habench --print-completion=bash\n"
        "_habench_listed() { " LISTED(
            "\"$1\"") "; }\n"
                      "_habench()\n{\n"
                      "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= offer= i\n"
                      "    for ((i = 1; i < COMP_CWORD; i++)); do\n        case ${COMP_WORDS[i]} in\n            ",
        out);
    for (size_t i = 0; ha_options_command(i, &c); i++) fprintf(out, "%s%s", i ? "|" : "", c.name);
    fputs(") command=${COMP_WORDS[i]}; break ;;\n        esac\n    done\n"
          "    [ \"$before\" = = ] && before=${COMP_WORDS[COMP_CWORD-2]}\n"
          "    [ \"$word\" = = ] && word=\n    COMPREPLY=()\n    case $before in\n",
          out);
    for (size_t i = 0; (o = ha_options_option(i, &commands)) != NULL; i++) {
        const enum value v = value_of(o);
        if (v == NONE) continue;
        fprintf(out, "        --%s", o->name);
        if (o->key < 128) fprintf(out, "|-%c", o->key);
        if (v == FOLDERS) fputs(") COMPREPLY=($(compgen -d -- \"$word\")); return ;;\n", out);
        else if (v == FILES) fputs(") COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n", out);
        else if (v == DEVICES)
            fputs(") COMPREPLY=($(compgen -W \"$(_habench_listed devices)\" -- \"$word\") $(compgen -f -X '!*.so' -- "
                  "\"$word\")); return ;;\n",
                  out);
        else if (v == KERNELS)
            fputs(") COMPREPLY=($(compgen -W \"$(_habench_listed kernels)\" -- \"$word\")); return ;;\n", out);
        else if (choices(o, words)) fprintf(out, ") COMPREPLY=($(compgen -W \"%s\" -- \"$word\")); return ;;\n", words);
        else fputs(") return ;;\n", out);
    }
    fputs("    esac\n    case $command in\n", out);
    for (size_t k = 0; ha_options_command(k, &c); k++) {
        fprintf(out, "        %s)\n            if [[ $word == -* ]]; then offer=\"--help", c.name);
        for (size_t i = 0; (o = ha_options_option(i, &commands)) != NULL; i++) {
            if (!(commands >> k & 1u)) continue;
            fprintf(out, " --%s", o->name);
            if (o->key < 128) fprintf(out, " -%c", o->key);
        }
        fputs("\"\n            else offer=\"", out);
        put_keywords(out, &c);
        if (takes_cases(&c)) fputs(" $(_habench_listed suites)", out);
        fputs("\"\n            fi ;;\n", out);
    }
    fputs("        *) offer=\"", out);
    for (size_t i = 0; ha_options_command(i, &c); i++) fprintf(out, "%s ", c.name);
    fputs("--help --version\" ;;\n    esac\n    COMPREPLY=($(compgen -W \"$offer\" -- \"$word\"))\n}\n"
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

static void zsh_value(FILE *out, const struct argp_option *o)
{
    char words[128];
    switch (value_of(o)) {
    case NONE: break;
    case FOLDERS: fputs(":folder:_files -/", out); break;
    case FILES: fputs(":file:_files", out); break;
    case DEVICES: fputs(":device:_habench_devices", out); break;
    case KERNELS: fputs(":instruction set:_habench_kernels", out); break;
    case WORD:
        fputc(':', out);
        put_quoted(out, o->arg, ":[]\\");
        if (choices(o, words)) fprintf(out, ":(%s)", words);
        else fputs(": ", out);
        break;
    }
}

static void print_zsh(FILE *out)
{
    struct ha_options_command c;
    const struct argp_option *o;
    unsigned commands;
    fputs(
        "#compdef habench\n# zsh completion of habench; printed by habench --print-completion=zsh\n"
        "_habench_listed() { local -a words; words=(${(f)\"$(" LISTED(
            "$1") ")\"}); compadd -a words }\n"
                  "_habench_devices() { _habench_listed devices; _files -g '*.so' }\n"
                  "_habench_kernels() { _habench_listed kernels }\n"
                  "_habench_cases() { _habench_listed suites; _files -g '*.suite' }\n"
                  "_habench()\n{\n    local command=${words[2]}\n    if (( CURRENT == 2 )); then\n        compadd -- ",
        out);
    for (size_t i = 0; ha_options_command(i, &c); i++) fprintf(out, "%s ", c.name);
    fputs("--help --version\n        return\n    fi\n    shift words; (( CURRENT-- ))\n    case $command in\n", out);
    for (size_t k = 0; ha_options_command(k, &c); k++) {
        fprintf(out, "        %s) _arguments '--help[help of this command]'", c.name);
        for (size_t i = 0; (o = ha_options_option(i, &commands)) != NULL; i++) {
            if (!(commands >> k & 1u)) continue;
            for (int letter = 0; letter < (o->key < 128 ? 2 : 1); letter++) {
                if (letter) fprintf(out, " \\\n            '-%c", o->key);
                else fprintf(out, " \\\n            '--%s%s", o->name, o->arg ? "=" : "");
                fputc('[', out);
                put_quoted(out, o->doc, "[]\\:");
                fputc(']', out);
                zsh_value(out, o);
                fputc('\'', out);
            }
        }
        if (takes_cases(&c) && c.args[0] >= 'a' && c.args[0] <= 'z') {
            fputs(" \\\n            '1:what:(", out);
            put_keywords(out, &c);
            fputs(")' '*:suite:_habench_cases'", out);
        } else if (takes_cases(&c)) fputs(" \\\n            '*:suite:_habench_cases'", out);
        fputs(" ;;\n", out);
    }
    fputs("    esac\n}\n_habench \"$@\"\n", out);
}

static void print_fish(FILE *out)
{
    struct ha_options_command c;
    const struct argp_option *o;
    unsigned commands;
    char words[128];
    fputs("# fish completion of habench; printed by habench --print-completion=fish\n"
          "function __habench_listed; habench list $argv[1] 2>/dev/null | string replace -r ' .*' ''; end\n"
          "complete -c habench -f\n",
          out);
    for (size_t k = 0; ha_options_command(k, &c); k++) {
        fprintf(out, "complete -c habench -n __fish_use_subcommand -a %s -d '", c.name);
        char doc[512];
        snprintf(doc, sizeof doc, "%.*s", (int)strcspn(c.doc, ".\v"), c.doc);
        put_quoted(out, doc, "\\");
        fputs("'\n", out);
        fprintf(out, "complete -c habench -n '__fish_seen_subcommand_from %s' -a '", c.name);
        put_keywords(out, &c);
        fputs(takes_cases(&c) ? " (__habench_listed suites)'\n" : "'\n", out);
    }
    for (size_t i = 0; (o = ha_options_option(i, &commands)) != NULL; i++) {
        fputs("complete -c habench -n '__fish_seen_subcommand_from", out);
        for (size_t k = 0; ha_options_command(k, &c); k++)
            if (commands >> k & 1u) fprintf(out, " %s", c.name);
        fprintf(out, "' -l %s", o->name);
        if (o->key < 128) fprintf(out, " -s %c", o->key);
        switch (value_of(o)) {
        case NONE: break;
        case FOLDERS: fputs(" -x -a '(__fish_complete_directories)'", out); break;
        case FILES: fputs(" -r -F", out); break;
        case DEVICES: fputs(" -r -F -a '(__habench_listed devices)'", out); break;
        case KERNELS: fputs(" -x -a '(__habench_listed kernels)'", out); break;
        case WORD:
            if (choices(o, words)) fprintf(out, " -x -a '%s'", words);
            else fputs(" -x", out);
            break;
        }
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
