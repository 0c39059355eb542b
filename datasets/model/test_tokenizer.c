#include "datasets/model/fake_gguf.h"
#include "datasets/model/tokenizer.h"
#include "harness/base/test_folder.h"

static struct ha_why why;
static struct fake_gguf bytes;
static struct ha_gguf *file;
static struct ha_tokenizer *tokenizer;

static int begin(void **state)
{
    fake_model(&bytes, &(struct fake_model){ .first = *state != NULL });
    assert_int_equal(ha_gguf_parse(&file, "x.gguf", bytes.bytes, bytes.count, &why), HA_OK);
    if (ha_tokenizer_open(&tokenizer, file, &why) != HA_OK) fail_msg("%s", why.text);
    return 0;
}

static int end(void **state)
{
    ha_tokenizer_close(tokenizer);
    ha_gguf_close(file);
    free(bytes.bytes);
    return 0;
}

static size_t encode(const char *text, uint32_t *out, size_t most)
{
    size_t count;
    if (ha_tokenizer_encode(tokenizer, text, strlen(text), out, most, &count, &why) != HA_OK) fail_msg("%s", why.text);
    return count;
}

/* The tokens of a text as it is cut: "th|e". */
static void cuts(const char *text, const char *want)
{
    uint32_t token[64];
    char got[256] = "";
    size_t at = 0, length;
    const size_t count = encode(text, token, COUNT(token));
    for (size_t i = 0; i < count; i++) {
        const char *piece = ha_tokenizer_bytes(tokenizer, token[i], &length);
        at += (size_t)snprintf(got + at, sizeof got - at, "%s%.*s", i ? "|" : "", (int)length, piece);
    }
    assert_string_equal(got, want);
}

TEST_WITH(pairs_merge_by_rank_and_within_words, begin, end)
{
    cuts("", "");
    cuts("the", "the");
    cuts("then in the", "the|n| |in| the"); /* "t h", "th e", then " the": a word that begins with a blank is one */
    cuts("ther", "the|r");                  /* "e r" is of a higher rank than "th e" */
    cuts("hethe", "h|e|the");
    cuts(" athe", " a|the");        /* " a" is of rank 4, "th" of rank 0: both are made */
    cuts("in12the", "in|1|2|the");  /* digits stand alone, before words are cut */
    cuts("the  the", "the| | the"); /* of two blanks the second belongs to the word */
    cuts("12  3", "1|2| | |3");     /* and to no digit */
    cuts("a\n\n", "a|\n\n");
    cuts("a\n\nb", "a|\n|\n|b");
    cuts("it's er", "i|t|'|s| |er");
    cuts("\303\251the", "\303|\251|the"); /* a letter of two bytes begins the word */
}

TEST_WITH(a_text_is_cut_off_at_the_tokens_that_are_asked_for, begin, end)
{
    uint32_t token[3] = { 0, 0, 77 };
    assert_int_equal(encode("the the the", token, 2), 2);
    assert_int_equal(token[2], 77);
    assert_int_equal(encode("the", token, 0), 0);
}

TEST_WITH(every_text_is_its_tokens_bytes, begin, end)
{
    static char text[4000], back[4000];
    static uint32_t token[4000];
    size_t at = 0, length, bytes_back = 0;
    /* every character of one or two bytes, between words */
    for (unsigned c = 1; c < 0x400; c++) {
        if (c < 0x80) text[at++] = (char)c;
        else {
            text[at++] = (char)(0xc0 | c >> 6);
            text[at++] = (char)(0x80 | (c & 63));
        }
        if (c % 7 == 0) at += (size_t)snprintf(text + at, sizeof text - at, " the ");
    }
    const size_t count = encode(text, token, COUNT(token));
    for (size_t i = 0; i < count; i++) {
        const char *piece = ha_tokenizer_bytes(tokenizer, token[i], &length);
        memcpy(back + bytes_back, piece, length);
        bytes_back += length;
    }
    assert_int_equal(bytes_back, at);
    assert_memory_equal(back, text, at);
}

TEST_WITH(what_is_no_text_is_refused, begin, end)
{
    uint32_t token[8];
    size_t count;
    assert_int_equal(ha_tokenizer_encode(tokenizer, "the \xff", 5, token, 8, &count, &why), HA_ERROR);
    assert_contains(why.text, "no UTF-8");
    static char endless[20000];
    memset(endless, 'a', sizeof endless);
    assert_int_equal(ha_tokenizer_encode(tokenizer, endless, sizeof endless, token, 8, &count, &why), HA_ERROR);
    assert_contains(why.text, "20000 bytes without a break");
}

TEST(a_models_own_first_token_comes_first)
{
    void *with_first = &bytes;
    uint32_t token[4];
    begin(&with_first);
    assert_int_equal(encode("the", token, 4), 2);
    assert_int_equal(token[0], ha_tokenizer_vocabulary(tokenizer) - 1);
    end(NULL);
}

/* ---- files that it cannot be read from --------------------------------------------------------------------------- */

static void refused(const char *model, const char *pre, const char *token, const char *merge, const char *reason)
{
    struct fake_gguf g;
    struct ha_gguf *of;
    struct ha_tokenizer *none;
    fake_gguf_begin(&g, 0, 4);
    fake_gguf_text(&g, "tokenizer.ggml.model", model);
    fake_gguf_text(&g, "tokenizer.ggml.pre", pre);
    fake_gguf_texts(&g, "tokenizer.ggml.tokens", &token, 1);
    fake_gguf_texts(&g, "tokenizer.ggml.merges", &merge, 1);
    fake_gguf_end(&g);
    assert_int_equal(ha_gguf_parse(&of, "x.gguf", g.bytes, g.count, &why), HA_OK);
    assert_int_equal(ha_tokenizer_open(&none, of, &why), HA_ERROR);
    assert_null(none);
    assert_contains(why.text, reason);
    ha_gguf_close(of);
    free(g.bytes);
}

TEST(a_tokenizer_that_is_not_known_is_refused_with_its_name)
{
    refused("llama", "default", "a", "a a", "its tokenizer is 'llama'; 'gpt2'");
    refused("gpt2", "tekken", "aa", "a a", "merge 0 is of what is no token");
    refused("gpt2", "tekken", "a", "aa", "merge 0 is no pair");
}

TEST(how_words_are_cut_has_to_be_known)
{
    struct fake_gguf g;
    struct ha_gguf *of;
    struct ha_tokenizer *none;
    fake_model(&g, &(struct fake_model){ .first = false });
    for (size_t i = 0; i + 6 < g.count; i++)
        if (!memcmp(g.bytes + i, "smollm", 6)) memcpy(g.bytes + i, "tekken", 6);
    assert_int_equal(ha_gguf_parse(&of, "x.gguf", g.bytes, g.count, &why), HA_OK);
    assert_int_equal(ha_tokenizer_open(&none, of, &why), HA_ERROR);
    assert_contains(why.text, "how 'tekken' cuts words is not known here");
    ha_gguf_close(of);
    free(g.bytes);
}
