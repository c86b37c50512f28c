// The driver's `display`: the commands of client/vectors/display.json.
#pragma once

#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <animegamer.h>

class ShownClips {
public:
    std::string answer(std::istringstream &words) {
        std::string verb, text;
        words >> verb;
        if (verb == "new") {
            double fps = 0.0, rest_s = 0.0, fade_s = 0.0;
            words >> fps >> text >> rest_s >> fade_s;
            const auto mode = text == "hold" ? AG_HOLD : text == "loop" ? AG_LOOP : AG_PING_PONG;
            const auto release = [](void *user, void *picture) {
                static_cast<ShownClips *>(user)->released_ += "," + *static_cast<std::string *>(picture);
            };
            display_.reset(ag_display_new(fps, release, this));
            ag_display_play(display_.get(), mode, rest_s, fade_s, words >> text ? 1 : 0);
            released_.clear();
        } else if (verb == "add") {
            std::int64_t turn = 0, index = 0, count = 0;
            words >> turn >> index >> count;
            std::string &name = names_[std::to_string(turn) + "." + std::to_string(index)];
            name = std::to_string(turn) + "." + std::to_string(index);
            ag_display_add(display_.get(), &name, turn, index, count);
        } else if (verb == "at") {
            double now = 0.0;
            words >> now;
            const ag_shown &shown = *ag_display_advance(display_.get(), now);
            std::ostringstream line;
            line << name_of(shown.picture) << " " << name_of(shown.next) << " " << shown.blend << " " << shown.turn << " " << shown.index
                 << " " << shown.ended << " " << (released_.empty() ? "-" : released_.substr(1));
            released_.clear();
            return line.str();
        } else if (verb == "pause" || verb == "go") {
            ag_display_pause(display_.get(), verb == "pause" ? 1 : 0);
        } else {
            (verb == "end" ? ag_display_end : verb == "again" ? ag_display_again : ag_display_clear)(display_.get());
        }
        return "ok";
    }

private:
    static std::string name_of(const void *picture) { return picture == nullptr ? "-" : *static_cast<const std::string *>(picture); }

    struct Free {
        void operator()(ag_display *display) const { ag_display_free(display); }
    };
    std::string released_;
    std::map<std::string, std::string> names_; // pictures: their addresses stay
    std::unique_ptr<ag_display, Free> display_;
};
