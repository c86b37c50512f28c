// The client against a real server: whole games, cancel, rewind, branch, a server that is killed, a game that is paused.
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <new>

#include "live_server.h"
#include "player.h"

namespace {

std::atomic<long> allocations{0};

const char *const texts[] = {"Mirel waves gently in the city by day.", "Bixo jumps quickly in the forest.", "Tofi walks on the beach."};

LiveServer &server() {
    static LiveServer running;
    return running;
}

/// The pictures of `texts` with seed 3, played without a fault.
const std::vector<std::vector<std::uint64_t>> &truth() {
    static const auto pictures = [] {
        Player player(server().address());
        const auto game = player.open();
        std::vector<std::vector<std::uint64_t>> all;
        for (const char *text : texts) {
            all.push_back(player.play(game, text));
        }
        return all;
    }();
    return pictures;
}

long count_files(const char *folder) {
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator{});
}

} // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTS_ALLOCATIONS
void *operator new(std::size_t size) {
    ++allocations;
    if (void *memory = std::malloc(size)) {
        return memory;
    }
    throw std::bad_alloc();
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, std::size_t) noexcept { std::free(memory); }
#endif

TEST(a_resumed_game_goes_on_with_the_same_pictures) {
    std::string token;
    for (std::size_t n = 0; n < 3; ++n) {
        Player player(server().address());
        ag_request request = 0;
        ag_game game = 0;
        if (n == 0) {
            game = player.open();
        } else {
            SAME(int(ag_resume(player.client, token.c_str(), &request)), int(AG_OK));
            game = player.answer(AG_EVENT_OPENED, request).game;
        }
        SAME(player.info(game).turns, std::int64_t(n));
        SAME(player.info(game).seed, std::int64_t{3});
        token = player.info(game).token;
        CHECK(player.play(game, texts[n]) == truth()[n]);
        SAME(player.info(game).turns, std::int64_t(n) + 1);
        SAME(int(ag_list(player.client, game, 0, &request)), int(AG_OK));
        const Seen listed = player.answer(AG_EVENT_LISTED, request);
        SAME(listed.number, std::int64_t(n) + 1);
        SAME(listed.text, std::string(texts[n]));
    }
}

TEST(rewound_branched_and_replayed_games_are_exact) {
    Player player(server().address());
    const auto game = player.open();
    player.play(game, texts[0]);
    player.play(game, "Mirel sits.");
    ag_request request = 0;
    SAME(int(ag_branch(player.client, game, 1, -1, &request)), int(AG_OK));
    const auto other = player.answer(AG_EVENT_OPENED, request).game;
    CHECK(other != game);
    CHECK(player.play(other, texts[1]) == truth()[1]);
    SAME(int(ag_rewind(player.client, game, 1, &request)), int(AG_OK));
    player.answer(AG_EVENT_REWOUND, request);
    SAME(player.info(game).turns, std::int64_t{1});
    CHECK(player.play(game, texts[1]) == truth()[1]);
    SAME(int(ag_replay(player.client, game, 1, -1, &request)), int(AG_OK));
    CHECK(player.rest(request) == truth()[0]);
    SAME(int(ag_replay(player.client, game, 9, -1, &request)), int(AG_OK));
    SAME(player.refusal(request), std::string("no_such_turn"));
}

TEST(a_cancelled_turn_leaves_the_game_as_it_was) {
    Player player(server().address());
    const auto game = player.open();
    const auto first = player.begin(game, "Dovan dances.");
    player.until(AG_EVENT_STATE, first);
    ag_request cancel = 0;
    SAME(int(ag_cancel(player.client, game, &cancel)), int(AG_OK));
    SAME(player.refusal(first), std::string("cancelled"));
    // "Say this instead": asked, cancelled and asked again in one tick.
    const auto second = player.begin(game, "Dovan sits.");
    SAME(int(ag_cancel(player.client, game, &cancel)), int(AG_OK));
    const auto third = player.begin(game, texts[0]);
    SAME(player.refusal(second), std::string("cancelled"));
    CHECK(player.rest(third) == truth()[0]);
    SAME(player.info(game).turns, std::int64_t{1});
}

TEST(a_turn_survives_a_server_that_is_killed_in_it) {
    LiveServer mine("simulated:0.5");
    Player player(mine.address());
    const auto game = player.open();
    for (const auto killed_at : {AG_EVENT_ACCEPTED, AG_EVENT_PROGRESS, AG_EVENT_FRAME}) {
        bool killed = false;
        player.during = [&](const Seen &seen) {
            if (!killed && seen.type == killed_at) {
                killed = true;
                mine.end(SIGKILL);
                mine.start();
            }
        };
        const auto turn = player.info(game).turns;
        CHECK(player.play(game, texts[turn]) == truth()[static_cast<std::size_t>(turn)]);
        CHECK(killed);
        SAME(player.info(game).turns, turn + 1);
    }
}

TEST(the_same_turn_id_is_one_turn) {
    Player player(server().address());
    const auto game = player.open();
    for (int n = 0; n < 2; ++n) {
        CHECK(player.rest(player.begin(game, texts[0], "my-own-id")) == truth()[0]);
        SAME(player.info(game).turns, std::int64_t{1});
    }
}

TEST(a_game_that_does_not_poll_loses_no_picture) {
    for (const auto pause_ms : {300, 2500}) { // within the wait for a buffer, and beyond it
        Player player(server().address(), 120.0, 2);
        const auto game = player.open();
        const auto request = player.begin(game, texts[0]);
        std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
        CHECK(player.rest(request) == truth()[0]);
    }
}

TEST(pictures_come_as_jpeg_and_mp4) {
    Player jpeg(server().address(), 120.0, 17, 1 << 20, [](ag_options &options) { options.codec = AG_JPEG; });
    jpeg.during = [](const Seen &seen) { CHECK(seen.type != AG_EVENT_FRAME || seen.text.substr(0, 2) == "\xff\xd8"); };
    jpeg.play(jpeg.open(), texts[0]);
    Player mp4(server().address(), 120.0, 17, 1 << 20, [](ag_options &options) { options.codec = AG_MP4; });
    const auto request = mp4.begin(mp4.open(), texts[0]);
    SAME(mp4.until(AG_EVENT_CLIP, request).text.substr(4, 4), std::string("ftyp"));
    mp4.answer(AG_EVENT_DONE, request);
}

TEST(exports_status_and_ping_are_answered) {
    Player player(server().address());
    const auto game = player.open();
    player.play(game, texts[0]);
    ag_request request = 0;
    SAME(int(ag_connect(player.client, &request)), int(AG_OK));
    const Seen welcome = player.answer(AG_EVENT_CONNECTED, request);
    SAME(welcome.number, std::int64_t{17});
    SAME(welcome.text, std::string("pocket"));
    SAME(int(ag_export(player.client, game, &request)), int(AG_OK));
    const Seen exported = player.answer(AG_EVENT_EXPORTED, request);
    CHECK(exported.number > 1);
    CHECK(std::filesystem::is_regular_file(std::filesystem::path(exported.text) / "game.json"));
    SAME(int(ag_status(player.client, &request)), int(AG_OK));
    const Seen status = player.answer(AG_EVENT_STATUS, request);
    SAME(status.text, std::string("ready"));
    CHECK(status.number > 0);
    SAME(int(ag_ping(player.client, &request)), int(AG_OK));
    player.answer(AG_EVENT_PONG, request);
    for (int n = 0; n < 2; ++n) { // closing a closed game is no error
        SAME(int(ag_close_game(player.client, game, &request)), int(AG_OK));
        player.answer(AG_EVENT_GAME_CLOSED, request);
    }
    SAME(player.refusal(player.begin(game, texts[0])), std::string("session_closed"));
}

TEST(the_server_s_refusals_have_code_text_and_what_to_do) {
    Player player(server().address());
    const auto game = player.open();
    const auto first = player.begin(game, texts[0]);
    SAME(player.refusal(player.begin(game, texts[1])), std::string("turn_running"));
    player.answer(AG_EVENT_DONE, first);
    const Seen error = player.until(AG_EVENT_ERROR, player.begin(game, std::string(2000, 'a')));
    SAME(error.code, std::string("instruction"));
    CHECK(error.text.find("; ") != std::string::npos && error.text.back() != ' ');
    ag_request request = 0;
    SAME(int(ag_turn(player.client, game, std::string(70000, 'a').c_str(), nullptr, 0.0, &request)), int(AG_REFUSED));
    SAME(std::string(ag_last_error()->code), std::string("too_large"));
    SAME(request, ag_request{0});
    SAME(int(ag_resume(player.client, "no such token", &request)), int(AG_OK));
    SAME(player.refusal(request), std::string("unknown_session"));
    CHECK(player.play(game, texts[1]) == truth()[1]); // none of these has harmed the game
}

TEST(twenty_plays_leave_no_thread_and_no_descriptor) {
    truth();
    const auto threads = count_files("/proc/self/task"), files = count_files("/proc/self/fd");
    for (int n = 0; n < 20; ++n) {
        Player player(server().address());
        if (n % 4 == 0) {
            continue; // while connecting
        }
        const auto game = player.open();
        if (n % 4 == 1) {
            continue; // idle
        }
        const auto request = player.begin(game, texts[0]);
        player.until(n % 4 == 2 ? AG_EVENT_ACCEPTED : AG_EVENT_FRAME, request);
    }
    SAME(count_files("/proc/self/task"), threads);
    SAME(count_files("/proc/self/fd"), files);
}

#ifdef COUNTS_ALLOCATIONS
TEST(a_frame_allocates_nothing_also_when_the_game_is_late) {
    Player player(server().address());
    const auto game = player.open();
    player.play(game, texts[0]);
    player.play(game, texts[1]);
    const auto request = player.begin(game, texts[2]);
    int frames = 0;
    long before = 0;
    while (frames < 17) {
        const ag_event *event = ag_poll(player.client);
        if (event == nullptr || event->request != request) {
            continue;
        }
        if (event->type == AG_EVENT_FRAME) {
            if (frames++ == 0) {
                before = allocations.load();
                std::this_thread::sleep_for(std::chrono::milliseconds(500)); // the others wait in the queue meanwhile
            }
            ag_give_buffer(player.client, event->buffer, 1 << 20);
        }
    }
    SAME(allocations.load() - before, 0L);
    player.until(AG_EVENT_DONE, request);
}
#endif

int main(int count, char **names) { return run_tests(count, names); }
