// Which texture is written and which is shown: a ring without locks. It knows nothing of Unreal.
//
// The game thread takes a free texture and asks the render thread to write it; when it is written, a later tick shows it. A
// texture that is shown, or was within the last ticks (a widget may hold it for that long), is never written.
#pragma once

#include <atomic>
#include <cstdint>

namespace animegamer_unreal {

class TextureRing {
public:
    static constexpr int size = 4;          // one shown, one just hidden, one being written, one ready
    static constexpr std::uint64_t rest = 2; // ticks that a hidden texture is left alone

    /// Begin to write the next texture; -1: none is free, try again in the next tick. Game thread.
    int begin_write(std::uint64_t tick) {
        Slot &slot = slots_[next_write_];
        if (slot.state.load(std::memory_order_acquire) != free_ || next_write_ == shown_ || tick < slot.free_from) {
            return -1;
        }
        slot.state.store(writing, std::memory_order_relaxed);
        const int number = next_write_;
        next_write_ = (next_write_ + 1) % size;
        return number;
    }
    /// The texture is written. Render thread.
    void end_write(int number) { slots_[number].state.store(ready, std::memory_order_release); }
    /// Show the next texture that is written; -1: there is none, the shown one stays. Game thread.
    int show(std::uint64_t tick) {
        Slot &slot = slots_[next_show_];
        if (slot.state.load(std::memory_order_acquire) != ready) {
            return -1;
        }
        if (shown_ >= 0) {
            slots_[shown_].free_from = tick + rest;
        }
        slot.state.store(free_, std::memory_order_relaxed);
        shown_ = next_show_;
        next_show_ = (next_show_ + 1) % size;
        return shown_;
    }
    /// The texture that is shown; -1: none yet. Game thread.
    int shown() const { return shown_; }

private:
    enum State { free_, writing, ready };
    struct Slot {
        std::atomic<int> state{free_};
        std::uint64_t free_from = 0;
    };
    Slot slots_[size];
    int next_write_ = 0, next_show_ = 0, shown_ = -1;
};

} // namespace animegamer_unreal
