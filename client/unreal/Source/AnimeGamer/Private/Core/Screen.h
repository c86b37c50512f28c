// What a game shows, by the native client's display. It knows nothing of Unreal. Game thread only.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "Picture.h"

namespace animegamer_unreal {

class Screen {
public:
    Screen() = default;
    Screen(const Screen &) = delete;
    Screen &operator=(const Screen &) = delete;
    ~Screen() {
        for (const auto &each : waiting_) {
            if (each.first != nullptr) {
                release(nullptr, each.first);
            }
        }
    }
    /// How clips that begin from now on are played: see ag_display_play.
    void play(ag_play_mode mode, double rest_s, double fade_s, bool at_once) {
        how_ = {mode, rest_s, fade_s, at_once};
        set_up();
    }
    void pause(bool paused) {
        paused_ = paused;
        set_up();
    }
    /// Take a picture. Each request for a turn or a replay has a ticket of its own, so that two of one turn are two clips.
    void add(const std::shared_ptr<PicturePool> &pool, Picture &picture, std::int64_t ticket, double fps) {
        if (display_ == nullptr) {
            pool_ = pool;
            display_.reset(ag_display_new(fps, &Screen::release, nullptr));
            set_up();
        }
        picture.holders.fetch_add(1, std::memory_order_relaxed);
        waiting_.push_back({&picture, ticket});
        newest_ = ticket;
        show_waiting();
    }
    /// No more pictures come of this ticket. False: none has come.
    bool end(std::int64_t ticket) {
        if (ticket == newest_) {
            waiting_.push_back({nullptr, ticket});
            show_waiting();
        }
        return ticket == newest_;
    }

    /// What to draw now. picture: the newest; under: the one that it is drawn over with the weight `blend`, or none.
    struct Shown {
        Picture *picture, *under;
        double blend;
        std::int64_t ticket, ended, ended_turn; // ended: a ticket whose clip has been shown, and its turn; 0: none
    };
    Shown advance(double now_s) {
        const ag_shown *const shown = ag_display_advance(display_.get(), now_s);
        if (shown == nullptr) {
            return {nullptr, nullptr, 1.0, 0, 0, 0};
        }
        auto *const picture = static_cast<Picture *>(shown->picture), *const next = static_cast<Picture *>(shown->next);
        std::int64_t ended_turn = 0;
        if (shown->ended != 0) {
            ended_turn = turns_[shown->ended];
            turns_.erase(turns_.begin(), turns_.upper_bound(shown->ended));
            show_waiting();
        }
        return next == nullptr ? Shown{picture, nullptr, 1.0, shown->turn, shown->ended, ended_turn}
                               : Shown{next, picture, shown->blend, shown->turn, shown->ended, ended_turn};
    }
    /// For the render thread.
    std::shared_ptr<const Picture> hold(Picture &picture) const { return animegamer_unreal::hold(pool_, picture); }

private:
    struct How {
        ag_play_mode mode = AG_HOLD;
        double rest_s = 0.0, fade_s = 0.0;
        bool at_once = false;
    };
    struct Free {
        void operator()(ag_display *display) const { ag_display_free(display); }
    };
    static void release(void *, void *picture) {
        static_cast<Picture *>(picture)->holders.fetch_sub(1, std::memory_order_release);
    }
    // The display holds two clips, and a third cuts the first short: unless that is wanted, it waits for the first one's end.
    void show_waiting() {
        for (; !waiting_.empty(); waiting_.pop_front()) {
            Picture *const picture = waiting_.front().first;
            const std::int64_t ticket = waiting_.front().second;
            if (!how_.at_once && turns_.size() == 2 && turns_.count(ticket) == 0) {
                return;
            }
            if (picture == nullptr) {
                ag_display_end(display_.get());
            } else {
                turns_[ticket] = picture->turn;
                ag_display_add(display_.get(), picture, ticket, picture->index, picture->count);
            }
        }
    }
    void set_up() {
        if (display_ != nullptr) {
            ag_display_play(display_.get(), how_.mode, how_.rest_s, how_.fade_s, how_.at_once ? 1 : 0);
            ag_display_pause(display_.get(), paused_ ? 1 : 0);
        }
    }

    std::shared_ptr<PicturePool> pool_; // outlives the display
    std::unique_ptr<ag_display, Free> display_;
    How how_;
    bool paused_ = false;
    std::deque<std::pair<Picture *, std::int64_t>> waiting_; // pictures and their tickets; no picture: its clip is whole
    std::int64_t newest_ = 0;
    std::map<std::int64_t, std::int64_t> turns_; // of the tickets whose clips have not ended
};

} // namespace animegamer_unreal
