// The namespace is not the native client's: both have a Game, and a program holds both.
// Memory for pictures, which the client's thread fills, the game's thread shows and the render thread reads.
// It knows nothing of Unreal. No thread waits for another: whoever has used a picture counts one down.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "animegamer.h"

namespace animegamer_unreal {

/// One BGRA picture, first row on top, in the pool's memory. Whoever keeps it adds one to `holders`, on the game thread.
struct Picture {
    explicit Picture(std::size_t size) : pixels(new std::uint8_t[size]), bytes(size) {}

    const std::unique_ptr<std::uint8_t[]> pixels;
    const std::size_t bytes;
    int width = 0, height = 0, stride = 0;
    std::int64_t turn = 0, index = 0, count = 0; // of the turn, from 1; its number in it, from 0; pictures in all
    std::atomic<int> holders{0};
    bool arrived = false; // false: the client has it
};

class PicturePool {
public:
    /// Allocate buffers and give them to the client, until there are so many of at least this size. Game thread.
    void grow(ag_client *client, std::size_t count, std::size_t bytes) {
        std::size_t have = 0;
        for (const auto &picture : pictures_) {
            have += picture->bytes >= bytes ? 1 : 0;
        }
        for (; have < count; ++have) {
            pictures_.push_back(std::make_unique<Picture>(bytes));
            ag_give_buffer(client, pictures_.back()->pixels.get(), bytes);
        }
    }
    /// Give back to the client what nobody holds any more. Game thread, in each tick.
    void collect(ag_client *client) {
        for (const auto &picture : pictures_) {
            if (picture->arrived && picture->holders.load(std::memory_order_acquire) == 0) {
                picture->arrived = false;
                ag_give_buffer(client, picture->pixels.get(), picture->bytes);
            }
        }
    }
    /// The picture of an AG_EVENT_FRAME; none: its buffer is not of this pool. Game thread.
    Picture *arrived(const ag_event &event) const {
        for (const auto &picture : pictures_) {
            if (picture->pixels.get() == event.buffer) {
                const ag_frame &frame = event.of.frame;
                picture->width = frame.width;
                picture->height = frame.height;
                picture->stride = frame.stride;
                picture->turn = event.turn;
                picture->index = frame.index;
                picture->count = frame.count;
                picture->arrived = true;
                return picture.get();
            }
        }
        return nullptr;
    }

private:
    std::vector<std::unique_ptr<Picture>> pictures_;
};

/// Hold a picture, and the pool that it is in, until the last copy of the answer has gone, on whatever thread.
inline std::shared_ptr<const Picture> hold(std::shared_ptr<PicturePool> pool, Picture &picture) {
    picture.holders.fetch_add(1, std::memory_order_relaxed);
    return {&picture, [pool](Picture *used) { used->holders.fetch_sub(1, std::memory_order_release); }};
}

} // namespace animegamer_unreal
