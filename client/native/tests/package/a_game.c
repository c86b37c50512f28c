/* The header is C: a program without C++ makes a client and is told why nothing answers. Returns 0 if it was. */
#include <animegamer.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    ag_options options;
    ag_client *client;
    const ag_event *event;
    int result = 1;
    ag_options_init(&options);
    options.address = "tcp://127.0.0.1:1";
    options.timeout_s = 0.3;
    client = ag_client_new(&options);
    if (client == NULL || ag_connect(client, NULL) != AG_OK) {
        printf("%s\n", ag_last_error()->text);
        return 2;
    }
    while ((event = ag_poll(client)) == NULL || event->type != AG_EVENT_ERROR) {
    }
    printf("%s\n", event->of.error.text);
    result = strcmp(event->of.error.code, "timed_out") != 0;
    ag_client_free(client);
    return result;
}
