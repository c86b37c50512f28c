/* The C interface of the AnimeGamer client: connect to a game server, play turns, get state and pictures.
 *
 * A request returns at once. Its answers are events, which ag_poll returns one at a time on the game's thread. A thread
 * inside the client owns the sockets, connects again when a connection is lost, and asks for what is missing.
 *
 * Threads: call a client from any thread, but ag_poll, ag_client_close and ag_client_free from one thread only. Text is UTF-8
 * and ends with a zero byte. No function throws, and none blocks for the network.
 */
#ifndef ANIMEGAMER_H
#define ANIMEGAMER_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32) && defined(ANIMEGAMER_SHARED)
#if defined(ANIMEGAMER_BUILD)
#define AG_API __declspec(dllexport)
#else
#define AG_API __declspec(dllimport)
#endif
#elif defined(__GNUC__)
#define AG_API __attribute__((visibility("default")))
#else
#define AG_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface: structs only grow at their end while it stays. A program that was compiled with an older or a newer
 * header of it works with this library: it says the size of each struct that the library fills or reads. */
#define AG_INTERFACE_VERSION 1

typedef struct ag_client ag_client;
typedef uint64_t ag_request; /* a request's number; 0: none */
typedef uint32_t ag_game;    /* a game's number in its client, from 1; 0: none */

typedef enum ag_result {
    AG_OK = 0,
    AG_INVALID = 1,         /* an argument is missing or out of range; nothing was sent */
    AG_CLOSED = 2,          /* the client is closed */
    AG_TIMED_OUT = 3,       /* the server did not answer in time; it keeps the game */
    AG_REFUSED = 4,         /* the server's error; `code` is one that PROTOCOL.md lists, or a newer one */
    AG_PROTOCOL = 5,        /* what answers at the address does not speak this protocol */
    AG_CONNECTION_LOST = 6, /* of AG_EVENT_DISCONNECTED */
    AG_BUFFER = 7,          /* a picture is larger than the buffers */
    AG_MEMORY = 8,          /* no memory, or no thread could be started */
    AG_INTERNAL = 9         /* a fault of this library */
} ag_result;

typedef struct ag_strings {
    const char *const *items;
    size_t count;
} ag_strings;

/* One thing to tell the player: a code of PROTOCOL.md's section Answers and its fields; those that it lacks are empty. */
typedef struct ag_answer {
    const char *code, *value;
    ag_strings people, words;
} ag_answer;

/* kind: for programs. code: for programs, finer: the server's code, or timed_out, closed, ..
 * text, what_to_do: for people; never NULL, what_to_do may be "". */
typedef struct ag_error {
    ag_result kind;
    const char *code;
    const char *text;
    const char *what_to_do;
    const ag_answer *answers; /* of the server's not_understood: why, in codes, to say it in the player's language */
    size_t answer_count;
} ag_error;

/* -- the client */

typedef enum ag_pixel_format { AG_RGBA32 = 0, AG_BGRA32 = 1, AG_RGB24 = 2 } ag_pixel_format;
typedef enum ag_codec { AG_RAW = 0, AG_JPEG = 1 } ag_codec;

typedef struct ag_options {
    size_t size;         /* of the caller's struct; set by ag_options_init */
    const char *address; /* tcp://HOST:PORT of the turns; control is the next port. Default tcp://127.0.0.1:5570 */
    double timeout_s;    /* seconds without an answer after which a request ends with AG_TIMED_OUT; default 30 */
    ag_pixel_format pixel_format;
    ag_codec codec;
    int flip;         /* 1: rows run bottom-up */
    int jpeg_quality; /* 1..100, default 90 */
} ag_options;

/* The defaults. size: sizeof(ag_options) of the caller, which the macro gives. */
AG_API void ag_options_init_sized(ag_options *options, size_t size);
#define ag_options_init(options) ag_options_init_sized((options), sizeof *(options))
AG_API uint32_t ag_interface_version(void);

/* A client. Its thread starts; it connects at the first request. NULL: ag_last_error says why. */
AG_API ag_client *ag_client_new(const ag_options *options);
/* Disconnect and end the thread, without waiting for the network. The games stay on the server. Afterwards every call
 * answers AG_CLOSED, and no thread writes to your buffers. Calling it twice is fine. */
AG_API void ag_client_close(ag_client *client);
/* Close, and release the memory. NULL is fine. */
AG_API void ag_client_free(ag_client *client);
/* The error of this thread's last call that did not return AG_OK; valid until this thread's next call. */
AG_API const ag_error *ag_last_error(void);

/* Memory for one picture: 16 or more bytes, yours until ag_client_close. welcome.buffer_bytes is enough for each.
 * A clip's worth of buffers (welcome.frames) is best, two are enough. The client's thread writes into it; an event with
 * `buffer` hands it to you, and it stays yours until you give it back with the same call. */
AG_API ag_result ag_give_buffer(ag_client *client, void *data, size_t bytes);

/* -- requests: AG_OK and a number, or an error and nothing was sent. `request` may be NULL. */

/* Connect now. Ends with AG_EVENT_CONNECTED. Every other request connects by itself. */
AG_API ag_result ag_connect(ag_client *client, ag_request *request);
/* A new game. seed: -1, the server draws one. history_turns: -1, the bundle's. Ends with AG_EVENT_OPENED. */
AG_API ag_result ag_open(ag_client *client, int64_t seed, int history_turns, ag_request *request);
/* A new game that starts from a picture: a PNG, JPEG or WebP file in memory, at most 8 MiB, which is copied. motion: what happens
 * in it, words ("gently wave") or a caption. Only where welcome.picture is 1. Ends with AG_EVENT_OPENED, after a place in the
 * server's queue. */
AG_API ag_result ag_open_picture(ag_client *client, const void *picture, size_t bytes, const char *motion, int64_t seed,
                                 int history_turns, ag_request *request);
/* Go on with the game of this token. Ends with AG_EVENT_OPENED. */
AG_API ag_result ag_resume(ag_client *client, const char *token, ag_request *request);
/* Play a turn. turn_id: NULL, a new one; the same id twice is one turn. deadline_s: 0, none. Ends with AG_EVENT_DONE. */
AG_API ag_result ag_turn(ag_client *client, ag_game game, const char *instruction, const char *turn_id, double deadline_s,
                         ag_request *request);
/* The events of a finished or running turn again, those after after_seq (-1: all). Ends with AG_EVENT_DONE. */
AG_API ag_result ag_replay(ag_client *client, ag_game game, int64_t turn, int64_t after_seq, ag_request *request);
/* What the next turn may be, the likeliest first, at most 16; while a turn runs, what the one after it may be. A server that plays
 * ahead makes these ready before guesses of its own, so that they start at once. Replaces the earlier wish. Ends with
 * AG_EVENT_WISHED. */
AG_API ag_result ag_wish(ag_client *client, ag_game game, const char *const *instructions, size_t count, ag_request *request);
/* Stop the running turn: it ends with the error `cancelled`. A turn that you ask for next waits for that end.
 * Ends with AG_EVENT_CANCELLING. */
AG_API ag_result ag_cancel(ag_client *client, ag_game game, ag_request *request);
/* Delete the turns after this one; 0 deletes all. Ends with AG_EVENT_REWOUND. */
AG_API ag_result ag_rewind(ag_client *client, ag_game game, int64_t turn, ag_request *request);
/* A second game that shares the turns up to this one. seed: -1, this game's. Ends with AG_EVENT_OPENED. */
AG_API ag_result ag_branch(ag_client *client, ag_game game, int64_t turn, int64_t seed, ag_request *request);
/* Up to 100 turns before `before` (0: the newest). Ends with AG_EVENT_LISTED. */
AG_API ag_result ag_list(ag_client *client, ag_game game, int64_t before, ag_request *request);
/* End the game for good. To continue it later keep its token instead. Ends with AG_EVENT_GAME_CLOSED. */
AG_API ag_result ag_close_game(ag_client *client, ag_game game, ag_request *request);

typedef struct ag_character {
    int stamina, social, entertainment; /* 0..100 */
} ag_character;

/* What the client knows of a game without asking; strings are copied. Keep the token: whoever has it has the game. */
typedef struct ag_game_info {
    char session[260];
    char token[516];
    int64_t seed;
    int history_turns;
    int64_t turns;
    ag_character character;
    int64_t running_turn; /* a turn that ran when the game was opened; ag_replay follows it. 0: none */
} ag_game_info;

AG_API ag_result ag_game_get_sized(ag_client *client, ag_game game, ag_game_info *info, size_t size);
#define ag_game_get(client, game, info) ag_game_get_sized((client), (game), (info), sizeof *(info))

/* -- events */

/* A newer library may add types: leave out those that you do not know. */
typedef enum ag_event_type {
    AG_EVENT_CONNECTED = 1,    /* welcome; also each time it connected again, then with request 0 */
    AG_EVENT_DISCONNECTED = 2, /* error: why. Requests in progress go on when it has connected again */
    AG_EVENT_OPENED = 3,       /* game, understood: what is seen in a start picture; ag_game_get has the rest */
    AG_EVENT_ACCEPTED = 4,     /* accepted */
    AG_EVENT_STATE = 5,        /* state: before any picture */
    AG_EVENT_PROGRESS = 6,     /* progress */
    AG_EVENT_FRAME = 7,        /* frame, buffer */
    AG_EVENT_RESTARTING = 9,   /* restarting: the server's worker died; the turn goes on by itself */
    AG_EVENT_DONE = 10,        /* done: the turn is part of the game and on the server's disk */
    AG_EVENT_ERROR = 11,       /* error: the request has ended */
    AG_EVENT_CANCELLING = 12,  /* cancelling */
    AG_EVENT_REWOUND = 13,     /* ag_game_get has the state */
    AG_EVENT_LISTED = 14,      /* listed */
    AG_EVENT_GAME_CLOSED = 16,
    AG_EVENT_UNDERSTOOD = 19, /* understood: once a turn, before its state, if the bundle reads everyday words */
    AG_EVENT_OFFER = 20,      /* game, turn, offer: of a server that plays ahead; at any time, request is 0 */
    AG_EVENT_WISHED = 21      /* game, turn, offer: what the server will try to have ready; nothing if it plays no turns ahead */
} ag_event_type;

typedef struct ag_welcome {
    const char *server, *protocol, *state; /* state: starting, ready, degraded, draining, or a newer one */
    const char *bundle, *fingerprint, *plan;
    int width, height; /* of a frame, in pixels */
    int frames;        /* of a turn */
    double fps;        /* at which they are shown */
    int random_weights;
    int64_t text_characters, header_bytes, turns_a_minute, sessions, queue; /* limits; see PROTOCOL.md */
    size_t buffer_bytes; /* bytes of a buffer that holds any picture */
    int picture;         /* 1: a game can start from a picture */
    /* What a bundle that reads everyday words can show, to offer it to players; else empty. */
    ag_strings people, motions, places, hours, clothes, manners;
} ag_welcome;

typedef struct ag_person {
    const char *name, *clothes;
} ag_person;

/* How an instruction was understood, or what is seen in a start picture. text is "" where there is nothing of it. */
typedef struct ag_understood {
    const ag_person *people; /* the first named first */
    size_t count;
    const char *motion, *place, *hour, *position;
    int level;           /* of motion, 1..5 */
    const char *caption; /* the same as the model is given it */
    ag_strings unknown;  /* words that ask for what cannot be drawn; the nearest is shown */
    const char *text;    /* what changes, in one line for a player */
    const char *notice;  /* what was not understood, for a player; "" if all was */
    const ag_answer *answers; /* both in codes, to say them in the player's language */
    size_t answer_count;
} ag_understood;

/* Instructions that are answered at once, letter by letter. It replaces the game's earlier offer, also when it is empty, and holds
 * while the event's `turn` is ag_game_info.turns + 1, until AG_EVENT_DISCONNECTED. */
typedef ag_strings ag_offer;

typedef struct ag_accepted {
    const char *turn_id, *instruction; /* instruction: as it is played */
    int64_t place;                     /* turns before it in the queue */
    double estimate_s;
    int replayed;
} ag_accepted;

typedef struct ag_state {
    int motion_level, social, entertainment, stamina; /* strengths, -5..5 */
    ag_character character, shown;                     /* after this turn; shown: what to display */
    double motion_scope;                               /* mean optical flow, pixels a frame */
} ag_state;

typedef struct ag_progress {
    int64_t step, steps;
    double seconds_left;
} ag_progress;

typedef struct ag_frame {
    int64_t index, count;
    int width, height, stride; /* stride: bytes from one row to the next; 0 for jpeg */
    ag_pixel_format pixel_format;
    ag_codec codec;
} ag_frame;

typedef struct ag_restarting {
    int64_t attempt;
    double retry_in_s;
} ag_restarting;

typedef struct ag_done {
    double queue_s, predictor_s, denoiser_s, vae_s, total_s;
    int64_t turns; /* finished turns of the game */
} ag_done;

typedef struct ag_logged_turn {
    int64_t turn;
    const char *turn_id, *instruction;
    int motion_level, social, entertainment, stamina;
} ag_logged_turn;

typedef struct ag_listed {
    const ag_logged_turn *turns; /* the newest last */
    size_t count;
    int more; /* 1: there are turns before these */
} ag_listed;

/* Valid until the next ag_poll of its client, with all that it points to; only `buffer` is yours for longer. */
typedef struct ag_event {
    ag_event_type type;
    ag_game game;       /* 0: about no game */
    ag_request request; /* that it answers; 0: none */
    int64_t turn, seq;  /* of the event of a turn, from 1 and from 0; else 0 and -1 */
    void *buffer;       /* of FRAME: one that you gave; NULL else */
    size_t buffer_bytes; /* bytes used in it */
    union {
        ag_welcome welcome;
        ag_error error;
        ag_accepted accepted;
        ag_state state;
        ag_progress progress;
        ag_frame frame;
        ag_restarting restarting;
        ag_done done;
        int cancelling; /* 1: a turn was running */
        ag_listed listed;
        ag_understood understood;
        ag_offer offer;
    } of;
} ag_event;

/* The next event, or NULL. It never blocks, and allocates no memory. Call it in each tick until it returns NULL. */
AG_API const ag_event *ag_poll(ag_client *client);

/* -- what to show: clips at their own rate, held, looped or played back and forth, faded into each other.
 *
 * Pure logic for one thread: it knows neither clients nor memory. A picture is a pointer of yours that is not NULL, such as the
 * `buffer` of an AG_EVENT_FRAME. Once warm, nothing is allocated. */

typedef struct ag_display ag_display;

/* What a clip does when it was played once. AG_HOLD gives up each picture as it passes; the others keep the clip: then give the
 * client buffers for two clips a game, or the next one cannot arrive. */
typedef enum ag_play_mode { AG_HOLD = 0, AG_LOOP = 1, AG_PING_PONG = 2 } ag_play_mode;

/* Gets each picture that will not be shown again: give its buffer back. Called inside the functions below. */
typedef void (*ag_release_function)(void *user, void *picture);

typedef struct ag_shown {
    void *picture;       /* draw this; NULL before the first */
    void *next;          /* and this over it; NULL: nothing */
    double blend;        /* with this weight, 0..1 */
    int64_t turn, index; /* of the newer picture; 0 and -1 before the first */
    int64_t ended;       /* a turn whose clip was played once, or was cut short, since the last call; 0: none */
    int playing;         /* 1: a clip has not been played once */
    int changed;         /* 1: what to draw is not the same as before */
} ag_shown;

/* fps: of AG_EVENT_CONNECTED. NULL: ag_last_error says why. */
AG_API ag_display *ag_display_new(double fps, ag_release_function release, void *user);
/* Release all pictures and the memory. NULL is fine. */
AG_API void ag_display_free(ag_display *display);
/* mode: of the clips that begin from now on; default AG_HOLD. rest_s: how long the last picture stays before the clip comes again;
 * default 0. fade_s: seconds in which a clip is faded into the next; default 0, a cut. at_once: 1, a clip begins with its first
 * picture; default 0, when the one before was played once. */
AG_API ag_result ag_display_play(ag_display *display, ag_play_mode mode, double rest_s, double fade_s, int at_once);
/* 1: time stands still. */
AG_API void ag_display_pause(ag_display *display, int paused);
/* Take the picture `index` of `count` of a turn; another turn, or another order, begins another clip. When a third clip begins, the
 * first is cut short. While the next picture of a clip has not arrived, its time stands still. */
AG_API ag_result ag_display_add(ag_display *display, void *picture, int64_t turn, int64_t index, int64_t count);
/* No more pictures come for the newest clip: its turn is done or was cancelled. */
AG_API void ag_display_end(ag_display *display);
/* Play the clip from its beginning, if it keeps its pictures. */
AG_API void ag_display_again(ag_display *display);
/* Release all pictures. */
AG_API void ag_display_clear(ag_display *display);
/* What to draw at this time, in seconds of any clock that does not jump. Valid until the next call; NULL only for a NULL display. */
AG_API const ag_shown *ag_display_advance(ag_display *display, double now_s);

#ifdef __cplusplus
}
#endif
#endif
