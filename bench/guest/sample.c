/* What the suite `apps` has gcc compile: a small program, with the headers that most have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct word {
    char text[32];
    int count;
    struct word *next;
};

static struct word *buckets[64];

static void add(const char *text)
{
    unsigned hash = 0;
    for (const char *at = text; *at; at++)
        hash = hash * 31 + (unsigned char)*at;
    struct word **place = &buckets[hash % 64];
    while (*place && strcmp((*place)->text, text) != 0)
        place = &(*place)->next;
    if (!*place) {
        *place = calloc(1, sizeof **place);
        if (!*place)
            exit(1);
        snprintf((*place)->text, sizeof (*place)->text, "%s", text);
    }
    (*place)->count++;
}

int main(void)
{
    char text[32];
    while (scanf("%31s", text) == 1)
        add(text);
    for (int i = 0; i < 64; i++)
        for (struct word *word = buckets[i]; word; word = word->next)
            printf("%6d %s\n", word->count, word->text);
    return 0;
}
