#include "display.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace animegamer {

void Display::add(void *picture, std::int64_t turn, std::int64_t index, std::int64_t count) {
    const Clip *const newest = count_ == 0 ? nullptr : &clips_[count_ - 1];
    if (newest == nullptr || newest->turn != turn || index != newest->arrived() || index >= newest->count) {
        end();
        if (count_ == clips_.size()) {
            leave();
        }
        Clip &clip = clips_[count_];
        clip.turn = turn;
        clip.first = clip.shown = index;
        clip.count = count;
        clip.pictures.clear();
        clip.pictures.reserve(static_cast<std::size_t>(std::clamp(count - index, std::int64_t{1}, std::int64_t{1024})));
        clip.passed = 0;
        clip.begun = clip.keeps = clip.ended = false;
        ++count_; // with its memory: a clip is never without a picture
    }
    clips_[count_ - 1].pictures.push_back(picture);
}

void Display::end() {
    if (count_ > 0) {
        clips_[count_ - 1].count = clips_[count_ - 1].arrived();
    }
}

void Display::again() {
    if (count_ > 0 && clips_[0].keeps) {
        clips_[0].time_s = static_cast<double>(clips_[0].first) / fps;
        clips_[0].ended = false;
    }
}

void Display::clear() {
    while (count_ > 0) {
        leave();
    }
    give_up_under();
    ended_ = 0;
}

const ag_shown &Display::advance(double now_s) {
    const double passed_s = !has_clock_ || paused ? 0.0 : std::max(0.0, now_s - now_s_);
    now_s_ = now_s;
    has_clock_ = true;
    fading_s_ += passed_s;
    if (count_ > 0 && clips_[0].begun && !paused) {
        play(clips_[0], passed_s);
    }
    ag_shown shown{nullptr, nullptr, 0.0, 0, -1, 0, 0, 0};
    if (count_ > 0) {
        Clip &clip = clips_[0];
        if (!clip.begun) {
            clip.begun = true;
            clip.keeps = mode != AG_HOLD;
            clip.time_s = static_cast<double>(clip.first) / fps;
            fading_s_ = 0.0;
        }
        clip.shown = std::max(clip.first, std::min(position(clip), clip.arrived() - 1));
        if (!clip.keeps) {
            give_up(clip, clip.place());
        }
        if (fade_s <= 0.0 || fading_s_ >= fade_s) {
            give_up_under();
        }
        void *const picture = clip.pictures[clip.place()];
        shown.picture = under_ == nullptr ? picture : under_;
        shown.next = under_ == nullptr ? nullptr : picture;
        shown.blend = under_ == nullptr ? 0.0 : fading_s_ / fade_s;
        shown.turn = clip.turn;
        shown.index = clip.shown;
        shown.playing = count_ > 1 || !clip.ended ? 1 : 0;
    }
    shown.ended = std::exchange(ended_, 0);
    shown.changed = shown.turn != shown_.turn || shown.index != shown_.index || shown.picture != shown_.picture ||
                            shown.next != shown_.next || std::fabs(shown.blend - shown_.blend) > 0.0
                        ? 1
                        : 0;
    shown_ = shown;
    return shown_;
}

/// Let time pass for the clip that is shown; leave it if the next one begins.
void Display::play(Clip &clip, double passed_s) {
    clip.time_s += passed_s;
    if (clip.arrived() < clip.count) {
        clip.time_s = std::min(clip.time_s, static_cast<double>(clip.arrived()) / fps);
    } else if (clip.time_s >= static_cast<double>(clip.count) / fps && !clip.ended) {
        clip.ended = true;
        ended_ = clip.turn;
    }
    if (count_ > 1 && (clip.ended || at_once)) {
        leave();
    }
}

std::int64_t Display::position(const Clip &clip) const {
    const double once_s = static_cast<double>(clip.count) / fps;
    const std::int64_t last = clip.count - 1;
    if (clip.time_s >= once_s && (mode == AG_HOLD || !clip.keeps)) {
        return last;
    }
    const std::int64_t back = mode == AG_PING_PONG ? std::max(std::int64_t{0}, clip.count - 2) : 0;
    const double time_s = std::fmod(clip.time_s, once_s + rest_s + static_cast<double>(back) / fps);
    if (time_s < once_s) {
        return static_cast<std::int64_t>(time_s * fps);
    }
    return time_s < once_s + rest_s ? last : last - 1 - static_cast<std::int64_t>((time_s - once_s - rest_s) * fps);
}

/// Drop the first clip, except for the picture that is shown, which the next one is drawn over.
void Display::leave() {
    Clip &clip = clips_[0];
    if (clip.begun) {
        if (!clip.ended) {
            ended_ = clip.turn;
        }
        give_up_under();
        under_ = clip.pictures[clip.place()];
        give_up(clip, clip.place());
        ++clip.passed;
    }
    give_up(clip, clip.pictures.size());
    std::swap(clips_[0], clips_[1]);
    --count_;
}

void Display::give_up(Clip &clip, std::size_t before) {
    while (clip.passed < before) {
        release_(user_, clip.pictures[clip.passed++]);
    }
}

void Display::give_up_under() {
    if (under_ != nullptr) {
        release_(user_, std::exchange(under_, nullptr));
    }
}

} // namespace animegamer
