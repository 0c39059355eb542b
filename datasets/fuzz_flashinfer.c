#include "harness/api/dataset.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A libFuzzer target: a definition, a workload and a file of tensors, with the byte 0xff, which no JSON has, between
 * them; they are written as some.json, w.jsonl and x.safetensors, and what passes is read back. A corpus begins with
 *   (cat some.json; printf '\377'; cat w.jsonl; printf '\377'; cat x.safetensors) > CORPUS_FOLDER/first */

extern const struct ha_dataset ha_dataset_flashinfer;
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { TOKENS_MAX = 64 };
static char folder[64];

static void remove_folder(void)
{
    static const char *const names[] = { "/some.json", "/w.jsonl", "/x.safetensors", "" };
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s%s", folder, names[i]);
        remove(path);
    }
}

/* up to the next 0xff, if `more` follow; returns what is behind it */
static const uint8_t *put(const char *name, const uint8_t *data, const uint8_t *end, bool more)
{
    char path[128];
    const uint8_t *stop = more && data < end ? memchr(data, 0xff, (size_t)(end - data)) : NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *out = fopen(path, "w");
    if (!out) abort();
    fwrite(data, 1, (size_t)((stop ? stop : end) - data), out);
    fclose(out);
    return stop ? stop + 1 : end;
}

static void read_all(struct ha_source *src, const struct ha_shape *s)
{
    static float k[TOKENS_MAX * 1024], v[TOKENS_MAX * 1024], q[1024];
    for (size_t b = 0; b < s->batch; b++) {
        const size_t tokens = s->ctx[b] + s->q_len, count = tokens < TOKENS_MAX ? tokens : TOKENS_MAX;
        ha_dataset_flashinfer.kv(src, b, 0, 0, 0, count, k, v);
        ha_dataset_flashinfer.kv(src, b, 0, s->kv_heads - 1, tokens - count, count, k, v);
        ha_dataset_flashinfer.query(src, b, 0, 0, s->ctx[b], q);
        ha_dataset_flashinfer.query(src, b, 0, s->q_heads - 1, tokens - 1, q);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const uint8_t *end = data + bytes;
    struct ha_shape shape = { .dtype = (enum ha_dtype)(bytes % HA_DTYPE_COUNT) };
    struct ha_source *src;
    struct ha_why why;
    char path[128];
    if (!*folder) {
        snprintf(folder, sizeof folder, "%s/ha-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        if (!mkdtemp(folder)) abort();
        atexit(remove_folder);
    }
    data = put("some.json", data, end, true);
    data = put("w.jsonl", data, end, true);
    put("x.safetensors", data, end, false);
    snprintf(path, sizeof path, "%s/w.jsonl", folder);
    if (ha_dataset_flashinfer.open(&ha_dataset_flashinfer, &src, &shape, 0, 1, path, &why) != HA_OK) return 0;
    read_all(src, &shape);
    ha_dataset_flashinfer.close(src);
    return 0;
}
