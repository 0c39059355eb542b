#ifndef HA_DATASETS_MODEL_TOKENIZER_H
#define HA_DATASETS_MODEL_TOKENIZER_H

/* Byte-pair tokens of a model: a text is cut into words by regular expressions (PCRE2, which is loaded when it is first
 * asked for), a word is a list of bytes, and of its neighbours the pair of the lowest rank becomes one token, until no
 * pair has a rank. Source: Sennrich, Haddow & Birch, ACL 2016; the expressions are those that each model was trained
 * with. */

#include "datasets/model/gguf.h"

struct ha_tokenizer;

/* Of a model whose tokenizer is "gpt2", with one of the expressions that are known. It keeps nothing of the file. */
enum ha_status ha_tokenizer_open(struct ha_tokenizer **tokenizer, const struct ha_gguf *file, struct ha_why *why);
void ha_tokenizer_close(struct ha_tokenizer *tokenizer);

/* The first `most` tokens of a text, or all it has, *count of them; begins with the model's own first token where it
 * has one. HA_ERROR: the text is no UTF-8, or has a byte without a token. */
enum ha_status ha_tokenizer_encode(const struct ha_tokenizer *tokenizer, const char *text, size_t bytes, uint32_t *out,
                                   size_t most, size_t *count, struct ha_why *why);
/* The bytes of a token, *length of them. */
const char *ha_tokenizer_bytes(const struct ha_tokenizer *tokenizer, uint32_t token, size_t *length);
size_t ha_tokenizer_vocabulary(const struct ha_tokenizer *tokenizer);

#endif
