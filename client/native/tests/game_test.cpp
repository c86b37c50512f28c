// What only this interface has, against the live server at ANIMEGAMER_ADDRESS: buffers, polling, codecs, closing, allocations.
// Whole games, faults and errors are played with every client's driver (tests/client/driver_stories.py).
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <new>

#include "player.h"

namespace {

std::atomic<long> allocations{0};

constexpr const char *text = "Mirel waves gently in the city by day.";

const char *address() {
    const char *given = std::getenv("ANIMEGAMER_ADDRESS");
    if (given == nullptr) {
        throw std::runtime_error("set ANIMEGAMER_ADDRESS to the address of a server: animegamer-rt serve --device simulated:0.2");
    }
    return given;
}

/// The pictures of `text` as a first turn with seed 3, played without a fault.
const std::vector<std::uint64_t> &truth() {
    static const auto pictures = [] {
        Player player(address());
        return player.play(player.open(), text);
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

TEST(a_game_that_does_not_poll_loses_no_picture) {
    for (const auto pause_ms : {300, 2500}) { // within the wait for a buffer, and beyond it
        Player player(address(), 120.0, 2);
        const auto game = player.open();
        const auto request = player.begin(game, text);
        std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
        CHECK(player.rest(request) == truth());
    }
}

TEST(pictures_come_as_jpeg) {
    Player jpeg(address(), 120.0, 17, 1 << 20, [](ag_options &options) { options.codec = AG_JPEG; });
    jpeg.during = [](const Seen &seen) { CHECK(seen.type != AG_EVENT_FRAME || seen.text.substr(0, 2) == "\xff\xd8"); };
    jpeg.play(jpeg.open(), text);
}

TEST(say_instead_asks_cancels_and_asks_again_in_one_tick) {
    Player player(address());
    const auto game = player.open();
    const auto first = player.begin(game, "Dovan sits.");
    SAME(int(ag_cancel(player.client, game, nullptr)), int(AG_OK));
    const auto second = player.begin(game, text);
    SAME(player.refusal(first), std::string("cancelled"));
    CHECK(player.rest(second) == truth());
    SAME(player.info(game).turns, std::int64_t{1});
}

TEST(twenty_plays_leave_no_thread_and_no_descriptor) {
    truth();
    const auto threads = count_files("/proc/self/task"), files = count_files("/proc/self/fd");
    for (int n = 0; n < 20; ++n) {
        Player player(address());
        if (n % 4 == 0) {
            continue; // while connecting
        }
        const auto game = player.open();
        if (n % 4 == 1) {
            continue; // idle
        }
        const auto request = player.begin(game, text);
        player.until(n % 4 == 2 ? AG_EVENT_ACCEPTED : AG_EVENT_FRAME, request);
    }
    SAME(count_files("/proc/self/task"), threads);
    SAME(count_files("/proc/self/fd"), files);
}

TEST(missing_and_small_buffers_are_said) {
    Player none(address(), 5.0, 0);
    const Seen without = none.until(AG_EVENT_DONE, none.begin(none.open(), text));
    SAME(without.code, std::string("buffer"));
    CHECK(without.text.find("no buffer was given") != std::string::npos);
    Player small(address(), 5.0, 4, 1024);
    const Seen seen = small.until(AG_EVENT_DONE, small.begin(small.open(), text));
    CHECK(seen.text.find("a picture has") != std::string::npos && seen.text.find("1024") != std::string::npos);
}

TEST(wrong_arguments_are_refused_without_a_client_and_with_one) {
    ag_request request = 0;
    SAME(int(ag_open(nullptr, 1, 1, &request)), int(AG_INVALID));
    CHECK(ag_poll(nullptr) == nullptr);
    ag_client_free(nullptr);
    ag_options options;
    ag_options_init(&options);
    for (const char *address : {"", "nowhere", "tcp://:5570", "tcp://host:0", "tcp://host:65535", "http://host:80", "tcp://host:12x"}) {
        options.address = address;
        CHECK(ag_client_new(&options) == nullptr);
        CHECK(std::string(ag_last_error()->what_to_do).find("tcp://HOST:PORT") != std::string::npos);
    }
    ag_options_init(&options);
    options.timeout_s = 0.0;
    CHECK(ag_client_new(&options) == nullptr);
    Player player(address(), 5.0);
    const auto game = player.open();
    SAME(int(ag_turn(player.client, game, "\xff", nullptr, 0.0, &request)), int(AG_INVALID));
    SAME(int(ag_turn(player.client, game, "", nullptr, 0.0, &request)), int(AG_INVALID));
    SAME(int(ag_turn(player.client, game, "x", nullptr, -1.0, &request)), int(AG_INVALID));
    SAME(int(ag_turn(player.client, game + 1, "x", nullptr, 0.0, &request)), int(AG_INVALID));
    SAME(int(ag_replay(player.client, game, 0, -1, &request)), int(AG_INVALID));
    SAME(int(ag_open(player.client, -2, -1, &request)), int(AG_INVALID));
    const std::string picture((8 << 20) + 1, 'x');
    SAME(int(ag_open_picture(player.client, picture.data(), picture.size(), "wave", -1, -1, &request)), int(AG_INVALID));
    SAME(int(ag_open_picture(player.client, picture.data(), 100, "", -1, -1, &request)), int(AG_INVALID));
    CHECK(player.play(game, text) == truth());
}

#ifdef COUNTS_ALLOCATIONS
TEST(a_frame_allocates_nothing_also_when_the_game_is_late) {
    Player player(address());
    const auto game = player.open();
    player.play(game, text);
    player.play(game, text);
    const auto request = player.begin(game, text);
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

int main() { return run_tests(); }
