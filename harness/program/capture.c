#include "harness/program/commands.h"

#include "datasets/model/capture.h"
#include "harness/base/why.h"

#include <string.h>
#include <unistd.h>

enum { TOKENS = 2048, QUERIES = 256 };

static enum ha_dtype dtype_of(const char *word)
{
    size_t dtype = HA_F16;
    for (size_t i = 0; word && ha_dtype_word(i); i++)
        if (!strcmp(word, ha_dtype_word(i))) dtype = i;
    return (enum ha_dtype)dtype;
}

enum ha_exit ha_command_capture(const struct ha_options *o, struct ha_why *why)
{
    struct ha_captured captured;
    const size_t tokens = o->tokens ? o->tokens : TOKENS;
    const struct ha_capture capture = { .model = o->model,
                                        .text = o->text,
                                        .out = o->out_dir,
                                        .tokens = tokens,
                                        .queries = o->queries         ? o->queries
                                                   : tokens < QUERIES ? tokens
                                                                      : QUERIES,
                                        .first_layer = o->layers.first,
                                        .layers = o->layers.count,
                                        .dtype = dtype_of(o->dtype),
                                        .progress = !o->quiet && isatty(STDERR_FILENO) ? stderr : NULL };
    if (ha_capture(&capture, &captured, why) != HA_OK) return HA_EXIT_ENVIRONMENT;
    printf("%s: %zu tokens; loss %.4f nats a token, %.4f over the last quarter\n", o->out_dir, tokens, captured.loss,
           captured.last_loss);
    return HA_EXIT_OK;
}
