// The C interface of displays: checks arguments, and nothing else.
#include <cmath>

#include "display.h"
#include "last_error.h"

using namespace animegamer;

struct ag_display : Display {
    using Display::Display;
};

namespace {

bool is_seconds(double value) { return value >= 0.0 && std::isfinite(value); }

} // namespace

extern "C" {

ag_display *ag_display_new(double fps, ag_release_function release, void *user) {
    ag_display *display = nullptr;
    guarded([&] {
        if (release == nullptr || !is_seconds(fps) || fps <= 0.0) {
            return invalid("fps is not more than 0, or release is NULL", "give welcome.fps, and a function that gives buffers back");
        }
        display = new ag_display(fps, release, user);
        return AG_OK;
    });
    return display;
}

void ag_display_free(ag_display *display) { delete display; }

ag_result ag_display_play(ag_display *display, ag_play_mode mode, double rest_s, double fade_s, int at_once) {
    return guarded([&] {
        const int given = static_cast<int>(mode);
        if (display == nullptr || given < AG_HOLD || given > AG_PING_PONG || !is_seconds(rest_s) || !is_seconds(fade_s)) {
            return invalid("the display is NULL, or a value is out of range", "give a mode, and seconds of 0 or more");
        }
        display->mode = mode;
        display->rest_s = rest_s;
        display->fade_s = fade_s;
        display->at_once = at_once != 0;
        return AG_OK;
    });
}

void ag_display_pause(ag_display *display, int paused) {
    if (display != nullptr) {
        display->paused = paused != 0;
    }
}

ag_result ag_display_add(ag_display *display, void *picture, int64_t turn, int64_t index, int64_t count) {
    return guarded([&] {
        if (display == nullptr || picture == nullptr || turn < 1 || index < 0 || index >= count) {
            return invalid("the display or picture is NULL, or a number is out of range", "give those of an AG_EVENT_FRAME");
        }
        display->add(picture, turn, index, count);
        return AG_OK;
    });
}

void ag_display_end(ag_display *display) {
    if (display != nullptr) {
        display->end();
    }
}

void ag_display_again(ag_display *display) {
    if (display != nullptr) {
        display->again();
    }
}

void ag_display_clear(ag_display *display) {
    if (display != nullptr) {
        display->clear();
    }
}

const ag_shown *ag_display_advance(ag_display *display, double now_s) {
    return display == nullptr ? nullptr : &display->advance(now_s);
}

} // extern "C"
