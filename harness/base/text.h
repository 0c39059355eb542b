#ifndef HA_BASE_TEXT_H
#define HA_BASE_TEXT_H

/* Text that comes from outside (names of devices, reasons of plugins, ids) and goes to a terminal or a file. */

#include <stdio.h>

/* In place: every byte of a control character (also DEL and U+0080 to U+009F, which terminals obey), of what is not
 * UTF-8, and of U+FFFE and U+FFFF becomes '?'. Returns text. */
char *ha_text_clean(char *text);
/* the same where it is printed; text stays as it is */
void ha_text_print(FILE *out, const char *text);
/* the same as one word of a shell: within '...', a ' of it as '\'' */
void ha_text_quote(FILE *out, const char *text);
/* Of a file of the system: what follows the key and ": " in the first line that begins so; of "" the first line. Empty:
 * there is none. */
void ha_text_line(const char *path, const char *key, char *out, size_t size);
/* a string of JSON, of a text that is UTF-8 */
void ha_text_json(FILE *out, const char *text);
/* text or an attribute of XML, of a text that is clean; apostrophe: what stands for a ' */
void ha_text_xml(FILE *out, const char *text, const char *apostrophe);

#endif
