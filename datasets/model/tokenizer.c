#include "datasets/model/tokenizer.h"

#include "harness/base/array.h"
#include "harness/base/why.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* ---- words ------------------------------------------------------------------------------------------------------- */

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LATER(digits)                                                          \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

enum { PASSES = 2, WORD_MAX = 16384 };
/* A pass cuts each piece that the pass before has made: what fits the expression is a piece, and what lies between. */
static const struct split {
    const char *name, *pass[PASSES]; /* as tokenizer.ggml.pre has it */
} splits[] = {
    { "gpt-2", { GPT2 } },
    { "default", { GPT2 } },
    { "smollm", { "\\p{N}", GPT2 } }, /* each digit alone */
    { "llama-bpe", { LATER("{1,3}") } },
    { "qwen2", { LATER("") } },
};
enum { SPLITS = sizeof splits / sizeof *splits };

/* PCRE2 (pcre2.h, 8-bit): what of it is used. Its offsets are size_t, its objects are opaque. */
enum { UTF = 0x00080000, UCP = 0x00020000, NO_UTF_CHECK = 0x40000000, NO_MATCH = -1 };
static struct pcre2 {
    void *(*compile)(const char *pattern, size_t length, uint32_t options, int *error, size_t *offset, void *context);
    void *(*create)(const void *code, void *context);
    int (*match)(const void *code, const char *text, size_t length, size_t start, uint32_t options, void *data,
                 void *context);
    size_t *(*ends)(void *data);
    void (*free_data)(void *data), (*free_code)(void *code);
} pcre2;

static bool load_pcre2(void)
{
    static const struct {
        const char *name;
        void *to;
    } symbols[] = {
        { "pcre2_compile_8", &pcre2.compile },
        { "pcre2_match_data_create_from_pattern_8", &pcre2.create },
        { "pcre2_match_8", &pcre2.match },
        { "pcre2_get_ovector_pointer_8", &pcre2.ends },
        { "pcre2_match_data_free_8", &pcre2.free_data },
        { "pcre2_code_free_8", &pcre2.free_code },
    };
    void *library = dlopen("libpcre2-8.so.0", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; library && i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (!symbol) return false;
        memcpy(symbols[i].to, &symbol, sizeof symbol);
    }
    return library != NULL;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

static const uint32_t none = UINT32_MAX;

struct token {
    const char *bytes;
    size_t length;
    uint32_t id;
};

/* Two tokens beside each other become `made`; the pair of the lowest rank first. */
struct merge {
    uint32_t left, right, made, rank;
};

struct ha_tokenizer {
    char *bytes;         /* of all tokens */
    struct token *token; /* by id */
    size_t tokens;
    struct merge *merge; /* hashed by left and right; [merges + 1], a power of two; rank `none`: empty */
    size_t merges;
    uint32_t of_byte[256], first; /* none: there is none */
    void *expression[PASSES];
};

void ha_tokenizer_close(struct ha_tokenizer *t)
{
    if (!t) return;
    for (size_t i = 0; i < PASSES; i++)
        if (t->expression[i]) pcre2.free_code(t->expression[i]);
    free(t->bytes);
    free(t->token);
    free(t->merge);
    free(t);
}

size_t ha_tokenizer_vocabulary(const struct ha_tokenizer *t) { return t->tokens; }

const char *ha_tokenizer_bytes(const struct ha_tokenizer *t, uint32_t token, size_t *length)
{
    *length = t->token[token].length;
    return t->token[token].bytes;
}

/* Vocabularies are UTF-8: a byte that prints stands for itself, the others for the characters from U+0100 on, in order.
 */
static bool prints(unsigned byte) { return (byte > ' ' && byte < 0x7f) || (byte > 0xa0 && byte != 0xad); }

static void make_alphabet(short byte_of[0x180])
{
    short next = 0x100;
    memset(byte_of, 0xff, 0x180 * sizeof *byte_of);
    for (short b = 0; b < 256; b++) byte_of[prints((unsigned)b) ? b : next++] = b;
}

/* The bytes that a text of the vocabulary stands for; a character that is none of the alphabet stands for its own
 * bytes, as in
 * "<|im_start|>" of models with blanks. Returns what follows in out. */
static char *to_bytes(const short byte_of[0x180], const struct ha_gguf_text *text, char *out)
{
    for (size_t i = 0; i < text->length; i++) {
        const unsigned char c = (unsigned char)text->text[i],
                            d = i + 1 < text->length ? (unsigned char)text->text[i + 1] : 0;
        const unsigned pair = (c & 31u) << 6 | (d & 63u);
        if (c >= 0xc0 && c < 0xe0 && (d & 0xc0) == 0x80 && pair < 0x180 && byte_of[pair] >= 0) {
            *out++ = (char)byte_of[pair];
            i++;
        } else *out++ = (char)c;
    }
    return out;
}

static int by_bytes(const void *a, const void *b)
{
    const struct token *s = a, *t = b;
    const int order = memcmp(s->bytes, t->bytes, s->length < t->length ? s->length : t->length);
    return order ? order : (s->length > t->length) - (s->length < t->length);
}

/* sorted: the tokens by their bytes */
static uint32_t find_token(const struct ha_tokenizer *t, const struct token *sorted, const char *bytes, size_t length)
{
    const struct token of = { bytes, length, 0 }, *found = bsearch(&of, sorted, t->tokens, sizeof of, by_bytes);
    return found ? found->id : none;
}

static struct merge *slot_of(const struct ha_tokenizer *t, uint32_t left, uint32_t right)
{
    size_t i = (size_t)(((uint64_t)left << 32 | right) * UINT64_C(0x9e3779b97f4a7c15) >> 32) & t->merges;
    while (t->merge[i].rank != none && (t->merge[i].left != left || t->merge[i].right != right))
        i = (i + 1) & t->merges;
    return &t->merge[i];
}

static enum ha_status make_tokens(struct ha_tokenizer *t, const struct ha_gguf_text *text, const short byte_of[0x180],
                                  struct ha_why *why)
{
    size_t bytes = 1;
    for (size_t i = 0; i < t->tokens; i++) bytes += text[i].length;
    t->bytes = malloc(bytes);
    t->token = calloc(t->tokens + 1, sizeof *t->token);
    if (!t->bytes || !t->token) return ha_why(why, HA_ERROR, "out of memory");
    char *at = t->bytes;
    for (size_t i = 0; i < t->tokens; i++) {
        char *const end = to_bytes(byte_of, &text[i], at);
        t->token[i] = (struct token){ at, (size_t)(end - at), (uint32_t)i };
        at = end;
    }
    return HA_OK;
}

/* Adds one line of the list of merges, "LEFT RIGHT". Both, and the two joined, must be tokens. */
static enum ha_status add_merge(struct ha_tokenizer *t, const struct token *sorted, const short byte_of[0x180],
                                const struct ha_gguf_text *line, uint32_t rank, struct ha_why *why)
{
    char bytes[512], *middle;
    const char *blank = line->length ? memchr(line->text + 1, ' ', line->length - 1) : NULL;
    if (!blank || line->length > sizeof bytes) return ha_why(why, HA_ERROR, "merge %u is no pair", rank);
    const struct ha_gguf_text left = { line->text, (size_t)(blank - line->text) };
    const struct ha_gguf_text right = { blank + 1, line->length - left.length - 1 };
    middle = to_bytes(byte_of, &left, bytes);
    const size_t length = (size_t)(to_bytes(byte_of, &right, middle) - bytes), of_left = (size_t)(middle - bytes);
    const struct merge merge = { find_token(t, sorted, bytes, of_left), find_token(t, sorted, middle, length - of_left),
                                 find_token(t, sorted, bytes, length), rank };
    if (merge.left == none || merge.right == none || merge.made == none)
        return ha_why(why, HA_ERROR, "merge %u is of what is no token", rank);
    struct merge *slot = slot_of(t, merge.left, merge.right);
    if (slot->rank == none) *slot = merge;
    return HA_OK;
}

static enum ha_status make_merges(struct ha_tokenizer *t, const struct ha_gguf_text *line, size_t count,
                                  const short byte_of[0x180], struct ha_why *why)
{
    struct token *sorted = malloc((t->tokens + 1) * sizeof *sorted);
    enum ha_status status = HA_OK;
    for (t->merges = 1; t->merges < 2 * count; t->merges = 2 * t->merges + 1) {
    }
    t->merge = malloc((t->merges + 1) * sizeof *t->merge);
    if (!t->merge || !sorted) status = ha_why(why, HA_ERROR, "out of memory");
    if (status == HA_OK) {
        memset(t->merge, 0xff, (t->merges + 1) * sizeof *t->merge);
        memcpy(sorted, t->token, t->tokens * sizeof *sorted);
        qsort(sorted, t->tokens, sizeof *sorted, by_bytes);
        for (unsigned b = 0; b < 256; b++) t->of_byte[b] = find_token(t, sorted, &(const char){ (char)b }, 1);
    }
    for (size_t i = 0; status == HA_OK && i < count; i++)
        status = add_merge(t, sorted, byte_of, &line[i], (uint32_t)i, why);
    free(sorted);
    return status;
}

/* ---- a model's own ----------------------------------------------------------------------------------------------- */

static bool is(const struct ha_gguf_text *text, const char *word)
{
    return text->length == strlen(word) && !memcmp(text->text, word, text->length);
}

static enum ha_status take_split(struct ha_tokenizer *t, const struct ha_gguf *file, struct ha_why *why)
{
    struct ha_gguf_text name = { "default", 7 };
    const struct split *split = splits;
    int error;
    size_t offset;
    ha_gguf_text(file, "tokenizer.ggml.pre", &name);
    while (split < splits + SPLITS && !is(&name, split->name)) split++;
    if (split == splits + SPLITS)
        return ha_why(why, HA_ERROR, "how '%.*s' cuts words is not known here; smollm, llama-bpe, qwen2 and gpt-2 are",
                      (int)(name.length & 63), name.text);
    if (!load_pcre2())
        return ha_why(why, HA_ERROR, "no PCRE2 (libpcre2-8.so.0), which cuts words: install libpcre2-8-0");
    for (size_t i = 0; i < PASSES && split->pass[i]; i++) {
        t->expression[i] = pcre2.compile(split->pass[i], strlen(split->pass[i]), UTF | UCP, &error, &offset, NULL);
        if (!t->expression[i]) return ha_why(why, HA_ERROR, "PCRE2 refuses an expression: error %d", error);
    }
    return HA_OK;
}

static void take_first(struct ha_tokenizer *t, const struct ha_gguf *file)
{
    double add = 0, id = 0;
    const bool has = ha_gguf_number(file, "tokenizer.ggml.add_bos_token", &add) && add != 0
                     && ha_gguf_number(file, "tokenizer.ggml.bos_token_id", &id) && id >= 0 && id < (double)t->tokens;
    t->first = has ? (uint32_t)id : none;
}

static enum ha_status take_vocabulary(struct ha_tokenizer *t, const struct ha_gguf *file, struct ha_why *why)
{
    struct ha_gguf_text model = { "none", 4 };
    short byte_of[0x180];
    size_t merges = 0;
    ha_gguf_text(file, "tokenizer.ggml.model", &model);
    if (!is(&model, "gpt2"))
        return ha_why(why, HA_ERROR, "its tokenizer is '%.*s'; 'gpt2', byte pairs, is read here",
                      (int)(model.length & 63), model.text);
    struct ha_gguf_text *token = ha_gguf_texts(file, "tokenizer.ggml.tokens", &t->tokens);
    struct ha_gguf_text *line = ha_gguf_texts(file, "tokenizer.ggml.merges", &merges);
    enum ha_status status = token && line ? HA_OK
                                          : ha_why(why, HA_ERROR, "it has no list of tokens, or none of merges");
    if (status == HA_OK && (t->tokens >= none || merges >= none))
        status = ha_why(why, HA_ERROR, "it has too many tokens");
    make_alphabet(byte_of);
    if (status == HA_OK) status = make_tokens(t, token, byte_of, why);
    if (status == HA_OK) status = make_merges(t, line, merges, byte_of, why);
    free(token);
    free(line);
    return status;
}

enum ha_status ha_tokenizer_open(struct ha_tokenizer **tokenizer, const struct ha_gguf *file, struct ha_why *why)
{
    struct ha_tokenizer *t = *tokenizer = calloc(1, sizeof *t);
    enum ha_status status = t ? take_vocabulary(t, file, why) : ha_why(why, HA_ERROR, "out of memory");
    if (status == HA_OK) status = take_split(t, file, why);
    if (status == HA_OK) take_first(t, file);
    if (status == HA_OK) return HA_OK;
    ha_tokenizer_close(t);
    *tokenizer = NULL;
    return status;
}

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

struct encoder {
    const struct ha_tokenizer *t;
    const char *text;
    void *found[PASSES];
    uint32_t *word; /* tokens of the word at hand */
    size_t room, most, count;
    uint32_t *out;
    struct ha_why *why;
};

/* The pair of the lowest rank becomes one, until there is none; returns how many tokens are left. */
static size_t merge_all(const struct ha_tokenizer *t, uint32_t *word, size_t n)
{
    for (;;) {
        const struct merge *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const struct merge *m = slot_of(t, word[i], word[i + 1]);
            if (m->rank == none || (best && m->rank >= best->rank)) continue;
            best = m;
            at = i;
        }
        if (!best) return n;
        word[at] = best->made;
        memmove(word + at + 1, word + at + 2, (n - at - 2) * sizeof *word);
        n--;
    }
}

static enum ha_status encode_word(struct encoder *e, size_t begin, size_t end)
{
    size_t n = end - begin;
    if (n > WORD_MAX) /* merging takes time by its square */
        return ha_why(e->why, HA_ERROR, "%zu bytes without a break from byte %zu on: is it a text?", n, begin);
    if (!ha_array_room(&e->word, &e->room, n, sizeof *e->word)) return ha_why(e->why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const unsigned char byte = (unsigned char)e->text[begin + i];
        e->word[i] = e->t->of_byte[byte];
        if (e->word[i] == none)
            return ha_why(e->why, HA_ERROR, "byte %zu of the text is 0x%02x, for which the model has no token",
                          begin + i, byte);
    }
    n = merge_all(e->t, e->word, n);
    for (size_t i = 0; i < n && e->count < e->most; i++) e->out[e->count++] = e->word[i];
    return HA_OK;
}

static enum ha_status encode_piece(struct encoder *e, size_t pass, size_t begin, size_t end)
{
    const void *expression = pass < PASSES ? e->t->expression[pass] : NULL;
    if (!expression) return encode_word(e, begin, end);
    for (size_t at = begin; at < end && e->count < e->most;) {
        const uint32_t checked = pass || at ? NO_UTF_CHECK : 0; /* the first call has looked at all of the text */
        const int found = pcre2.match(expression, e->text + begin, end - begin, at - begin, checked, e->found[pass],
                                      NULL);
        if (found < 0 && found != NO_MATCH)
            return ha_why(e->why, HA_ERROR, "the text is no UTF-8, or PCRE2 cannot cut it: error %d behind byte %zu",
                          found, at);
        const size_t *ends = pcre2.ends(e->found[pass]);
        const size_t from = found < 0 ? end : begin + ends[0],
                     to = found < 0 || ends[1] == ends[0] ? end : begin + ends[1];
        if (from > at) HA_TRY(encode_piece(e, pass + 1, at, from));
        if (to > from) HA_TRY(encode_piece(e, pass + 1, from, to));
        at = to;
    }
    return HA_OK;
}

enum ha_status ha_tokenizer_encode(const struct ha_tokenizer *t, const char *text, size_t bytes, uint32_t *out,
                                   size_t most, size_t *count, struct ha_why *why)
{
    struct encoder e = { .t = t, .text = text, .most = most, .out = out, .why = why };
    enum ha_status status = HA_OK;
    if (t->first != none && most) out[e.count++] = t->first;
    for (size_t i = 0; i < PASSES && t->expression[i]; i++)
        if (!(e.found[i] = pcre2.create(t->expression[i], NULL))) status = ha_why(why, HA_ERROR, "out of memory");
    if (status == HA_OK) status = encode_piece(&e, 0, 0, bytes);
    for (size_t i = 0; i < PASSES && e.found[i]; i++) pcre2.free_data(e.found[i]);
    free(e.word);
    *count = e.count;
    return status;
}
