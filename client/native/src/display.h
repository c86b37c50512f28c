// Which picture to show now; the same as client/python's display.py, held to client/vectors/display.json.
//
// Knows neither messages nor memory: a picture is a pointer of the caller's. Once warm, it allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "animegamer.h"

namespace animegamer {

class Display {
public:
    Display(double fps_, ag_release_function release, void *user) : fps(fps_), release_(release), user_(user) {}
    ~Display() { clear(); }
    Display(const Display &) = delete;
    Display &operator=(const Display &) = delete;

    void add(void *picture, std::int64_t turn, std::int64_t index, std::int64_t count);
    void end();
    void again();
    void clear();
    const ag_shown &advance(double now_s);

    double fps, rest_s = 0.0, fade_s = 0.0;
    ag_play_mode mode = AG_HOLD;
    bool at_once = false, paused = false;

private:
    struct Clip {
        std::int64_t turn = 0, first = 0, count = 0, shown = 0; // first: index of the first picture that came
        std::vector<void *> pictures;
        std::size_t passed = 0; // pictures that were given up
        double time_s = 0.0;
        bool begun = false, keeps = false, ended = false;

        std::int64_t arrived() const { return first + static_cast<std::int64_t>(pictures.size()); }
        std::size_t place() const { return static_cast<std::size_t>(shown - first); }
    };

    void play(Clip &clip, double passed_s);
    std::int64_t position(const Clip &clip) const;
    void leave();
    void give_up(Clip &clip, std::size_t before);
    void give_up_under();

    const ag_release_function release_;
    void *const user_;
    std::array<Clip, 2> clips_; // the one that is shown, and the one after it
    std::size_t count_ = 0;
    void *under_ = nullptr; // the picture that the next clip is faded over
    double fading_s_ = 0.0, now_s_ = 0.0;
    bool has_clock_ = false;
    std::int64_t ended_ = 0;
    ag_shown shown_{nullptr, nullptr, 0.0, 0, -1, 0, 0, 0};
};

} // namespace animegamer
