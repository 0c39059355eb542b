#ifndef HA_MERGE_LIST_H
#define HA_MERGE_LIST_H

/* the gallery, for `habench list defects` */
void ha_merge_list_defects(void);

#endif
