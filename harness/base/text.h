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

#endif
