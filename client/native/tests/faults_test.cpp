// Servers that are missing, wrong or hostile, and a game that uses the client wrongly: each ends in a clear error or in `done`.
#include "player.h"
#include "scripted_server.h"

namespace {

const std::vector<std::uint64_t> &pictures() {
    static const auto all = [] {
        std::vector<std::uint64_t> hashes;
        for (int seq = 4; seq < 21; ++seq) {
            const std::string picture(16, static_cast<char>(seq));
            hashes.push_back(hash_of(picture.data(), picture.size()));
        }
        return hashes;
    }();
    return all;
}

/// How connecting ends.
Seen connect(Player &player) {
    ag_request request = 0;
    SAME(int(ag_connect(player.client, &request)), int(AG_OK));
    return player.until(AG_EVENT_CONNECTED, request);
}

/// How connecting to a program that sends these bytes, and then holds or closes the connection, ends.
Seen connect_to(const std::string &bytes, bool hold = true) {
    Ports ports([&](int socket, int) {
        send_all(socket, bytes);
        for (int n = 0; hold && n < 100 && !ports.stop; ++n) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
    });
    Player player(ports.address(), 0.6);
    return connect(player);
}

/// A connection on which the greeting was good; `hello` comes next.
std::string after_greeting(const std::string &bytes) { return router_greeting() + bytes; }

} // namespace

TEST(other_programs_at_the_port_are_named_at_once) {
    const Seen web = connect_to("HTTP/1.1 400 Bad Request\r\n\r\n");
    SAME(web.code, std::string("protocol"));
    CHECK(web.text.find("no game server") != std::string::npos && web.text.find("HTTP/1.1") != std::string::npos);
    std::string curve = router_greeting();
    curve.replace(12, 5, "CURVE");
    CHECK(connect_to(curve).text.find("CURVE keys") != std::string::npos);
    std::string publisher = router_greeting();
    publisher.replace(publisher.size() - 7, 7, std::string("\x03PUB", 4));
    publisher[65] = 0x19;
    CHECK(connect_to(publisher).text.find("is a PUB") != std::string::npos);
    CHECK(connect_to(after_greeting(part("hello", false) + part("you", true))).text.find("not a message of this protocol") != std::string::npos);
    const Seen newer = connect_to(after_greeting(part("AGRT\x02", false) + part("\x80", true)));
    SAME(newer.code, std::string("version"));
    SAME(connect_to("", true).code, std::string("timed_out"));
}

TEST(absurd_bytes_end_the_connection_before_memory_is_used) {
    const std::string long_part("\x02\xff\xff\xff\xff\xff\xff\xff\xff", 9), magic = part("AGRT\x01", false);
    SAME(connect_to(after_greeting(long_part)).code, std::string("too_large"));
    SAME(connect_to(after_greeting(magic + std::string("\x02\0\0\0\0\x04\0\0\0", 9))).code, std::string("too_large"));
    SAME(connect_to(after_greeting(std::string("\x06\0\0\0\0\x04\0\0\0", 9))).code, std::string("too_large"));
    SAME(connect_to(after_greeting(magic + part(std::string("\xdf\x40\0\0\0", 5), true))).code, std::string("protocol"));
    SAME(connect_to(after_greeting(magic + part(std::string(60000, '\x91'), true))).code, std::string("protocol"));
    SAME(connect_to(after_greeting(magic + part("\x80", false) + part("", false))).code, std::string("missing_field"));
    SAME(connect_to(after_greeting(std::string("\xf0", 1))).code, std::string("protocol"));
    SAME(connect_to(after_greeting(std::string("\x04\0", 2))).code, std::string("protocol"));
    SAME(connect_to(after_greeting(magic), false).code, std::string("timed_out")); // cut short, each time
    SAME(connect_to(router_greeting().substr(0, 40), false).code, std::string("timed_out"));
}

TEST(a_turn_is_whole_wherever_the_connection_is_cut) {
    const long step = 131; // of about 5400 bytes: in the greeting, in lengths, headers and pictures
    for (long cut = 1; cut < 5400; cut += step) {
        GameServer server([&] {
            Faults faults;
            faults.cut_after = cut;
            return faults;
        }());
        Player player(server.address(), 10.0, 4);
        CHECK(player.play(player.open(), "x") == pictures());
    }
}

TEST(a_turn_is_whole_from_a_slow_drip) {
    Faults faults;
    faults.drip = 3;
    GameServer server(faults);
    Player player(server.address(), 4.0);
    CHECK(player.play(player.open(), "x") == pictures());
}

TEST(a_drip_that_never_ends_times_out) {
    Ports ports([&](int socket, int) {
        while (!ports.stop && send_all(socket, "\xff")) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
    });
    Player player(ports.address(), 0.8);
    const Seen seen = connect(player);
    CHECK(seen.code == "timed_out" || seen.code == "protocol");
}

TEST(changed_bytes_end_in_done_or_in_an_error) {
    std::uint32_t random = 1;
    int done = 0, failed = 0;
    for (int n = 0; n < 40; ++n) {
        const auto next = [&random] { return random = random * 1664525 + 1013904223; };
        const long at = static_cast<long>(next() >> 8) % 5400;
        const char to = static_cast<char>(next() >> 24);
        Faults faults;
        faults.change = [=](std::string &bytes, long offset) {
            if (at >= offset && at < offset + static_cast<long>(bytes.size())) {
                bytes[static_cast<std::size_t>(at - offset)] = to;
            }
        };
        GameServer server(faults);
        Player player(server.address(), 0.6);
        ag_request request = 0;
        SAME(int(ag_open(player.client, 3, -1, &request)), int(AG_OK));
        const Seen opened = player.until(AG_EVENT_OPENED, request);
        const bool good = opened.type == AG_EVENT_OPENED && player.refusal(player.begin(opened.game, "x")) == "done";
        ++(good ? done : failed);
    }
    CHECK(done > 0 && failed > 0);
}

TEST(pings_are_answered_while_the_game_is_paused) {
    Faults faults;
    faults.ping = true;
    GameServer server(faults);
    Player player(server.address(), 5.0, 1); // one buffer: the turn cannot end without a poll
    const auto game = player.open();
    const int before = server.pongs;
    const auto request = player.begin(game, "x");
    for (int n = 0; n < 500 && server.pongs == before; ++n) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    CHECK(server.pongs > before);
    CHECK(player.rest(request) == pictures());
}

TEST(missing_and_small_buffers_are_said) {
    Faults faults;
    faults.picture_bytes = 4096;
    GameServer server(faults);
    Player none(server.address(), 5.0, 0);
    const Seen without = none.until(AG_EVENT_DONE, none.begin(none.open(), "x"));
    SAME(without.code, std::string("buffer"));
    CHECK(without.text.find("no buffer was given") != std::string::npos);
    Player small(server.address(), 5.0, 4, 1024);
    const Seen seen = small.until(AG_EVENT_DONE, small.begin(small.open(), "x"));
    CHECK(seen.text.find("4096 bytes") != std::string::npos && seen.text.find("1024") != std::string::npos);
}

TEST(calls_after_close_are_refused_and_keep_the_token) {
    GameServer server({});
    Player player(server.address(), 5.0);
    const auto game = player.open();
    player.begin(game, "x");
    ag_client_close(player.client);
    ag_client_close(player.client);
    ag_request request = 0;
    SAME(int(ag_turn(player.client, game, "x", nullptr, 0.0, &request)), int(AG_CLOSED));
    SAME(int(ag_open(player.client, -1, -1, &request)), int(AG_CLOSED));
    std::uint8_t memory[16];
    SAME(int(ag_give_buffer(player.client, memory, sizeof memory)), int(AG_CLOSED));
    CHECK(std::string(ag_last_error()->what_to_do).find("ag_resume") != std::string::npos);
    CHECK(ag_poll(player.client) == nullptr);
    SAME(std::string(player.info(game).token), std::string("t1"));
}

TEST(a_client_is_closed_and_freed_within_its_callback) {
    GameServer server({});
    for (const bool freed : {false, true}) {
        Player player(server.address(), 5.0);
        bool called = false;
        player.logged = [&](const char *) {
            called = true;
            (freed ? ag_client_free : ag_client_close)(player.client);
        };
        SAME(int(ag_connect(player.client, nullptr)), int(AG_OK));
        while (!called) {
            ag_poll(player.client);
        }
        player.client = freed ? nullptr : player.client;
    }
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
    for (const char *server_key : {"no key", "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"}) {
        CHECK(ag_client_new_with_keys(&options, server_key, nullptr) == nullptr);
        const std::string to_do = ag_last_error()->what_to_do;
        CHECK(to_do.find("animegamer-rt keys new") != std::string::npos || to_do.find("ANIMEGAMER_CURVE") != std::string::npos);
    }
    options.timeout_s = 0.0;
    CHECK(ag_client_new(&options) == nullptr);
    GameServer server({});
    Player player(server.address(), 5.0);
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
    CHECK(player.play(game, "x") == pictures());
}

int main(int count, char **names) { return run_tests(count, names); }
