/* A program that was compiled with another header of the same interface: its structs are larger or smaller than the library's, which
 * must not write behind them. Compiled with a header that tests/archives_play.py writes, against the library as it is. argv[1]: a server. */
#include <animegamer.h>
#include <stdio.h>
#include <string.h>

struct guarded_options {
    ag_options options;
    unsigned char guard[64];
};
struct guarded_info {
    ag_game_info info;
    unsigned char guard[64];
};

static int whole(const unsigned char *guard) {
    int n;
    for (n = 0; n < 64; ++n) {
        if (guard[n] != 0xa5) {
            printf("byte %d behind the caller's struct was written\n", n);
            return 0;
        }
    }
    return 1;
}

int main(int argc, char **argv) {
    struct guarded_options given;
    struct guarded_info got;
    const ag_event *event;
    ag_client *client;
    memset(&given, 0xa5, sizeof given);
    memset(&got, 0xa5, sizeof got);
    ag_options_init(&given.options);
    if (!whole(given.guard) || given.options.jpeg_quality != 90) {
        return 1;
    }
#ifdef NEWER
    if (given.options.of_tomorrow[0] != 0) {
        printf("a field that the library does not know is not 0\n");
        return 1;
    }
    given.options.of_tomorrow[0] = 7;
    if (ag_client_new(&given.options) != NULL || strcmp(ag_last_error()->text, "an option is set that this library does not know") != 0) {
        printf("an option that the library does not know was taken\n");
        return 1;
    }
    given.options.of_tomorrow[0] = 0;
#endif
    given.options.address = argc > 1 ? argv[1] : NULL;
    client = ag_client_new(&given.options);
    if (client == NULL || ag_open(client, 3, -1, NULL) != AG_OK) {
        printf("%s\n", ag_last_error()->text);
        return 1;
    }
    while ((event = ag_poll(client)) == NULL || event->type == AG_EVENT_CONNECTED) {
    }
    if (event->type != AG_EVENT_OPENED || ag_game_get(client, event->game, &got.info) != AG_OK || got.info.seed != 3) {
        printf("the game was not opened\n");
        return 1;
    }
    ag_client_free(client);
    return whole(got.guard) ? 0 : 1;
}
