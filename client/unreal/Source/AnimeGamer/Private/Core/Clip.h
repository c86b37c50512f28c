// Pictures that came in a burst, each due at its time. It knows nothing of Unreal. Game thread.
#pragma once

#include <deque>
#include <utility>

#include "Picture.h"

namespace animegamer_unreal {

class Clip {
public:
    double fps = 8.0;

    void add(Picture picture) { pictures_.push_back(std::move(picture)); }
    std::size_t waiting() const { return pictures_.size(); }

    /// True: the first picture is due. A clip begins when the one before has had its time.
    bool is_due(double now_s) {
        if (now_s < due_s_) {
            return false;
        }
        if (pictures_.empty()) {
            idle_ = true;
            return false;
        }
        if (idle_) {
            due_s_ = now_s;
            idle_ = false;
        }
        while (pictures_.size() > 1 && now_s >= due_s_ + 1.0 / fps) { // a slow game skips pictures and loses no time
            pictures_.pop_front();
            due_s_ += 1.0 / fps;
        }
        return true;
    }
    /// Columns and rows of the picture that is due.
    std::pair<int, int> size() const { return {pictures_.front().width, pictures_.front().height}; }
    /// The picture that is due.
    Picture take() {
        Picture picture = std::move(pictures_.front());
        pictures_.pop_front();
        due_s_ += 1.0 / fps;
        return picture;
    }

private:
    std::deque<Picture> pictures_;
    double due_s_ = 0.0;
    bool idle_ = true;
};

} // namespace animegamer_unreal
