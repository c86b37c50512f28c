// The namespace is not the native client's: both have a Game, and a program holds both.
// Memory for pictures, which the client's thread fills, the game's thread hands on and the render thread reads.
// It knows nothing of Unreal. No thread waits for another: a picture that is used up only sets a flag.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "animegamer.h"

namespace animegamer_unreal {

class PicturePool {
public:
    /// Allocate buffers and give them to the client. Game thread.
    void grow(ag_client *client, std::size_t count, std::size_t bytes) {
        for (std::size_t n = 0; n < count; ++n) {
            buffers_.push_back(std::make_unique<Buffer>(bytes));
            ag_give_buffer(client, buffers_.back()->memory.get(), bytes);
        }
    }
    /// Give the buffers that are free again back to the client. Game thread, in each tick.
    void collect(ag_client *client) {
        for (auto &buffer : buffers_) {
            if (buffer->used_up.exchange(false, std::memory_order_acquire)) {
                ag_give_buffer(client, buffer->memory.get(), buffer->bytes);
            }
        }
    }
    std::size_t buffer_bytes() const { return buffers_.empty() ? 0 : buffers_.back()->bytes; }

private:
    friend class Picture;
    struct Buffer {
        explicit Buffer(std::size_t size) : memory(new std::uint8_t[size]), bytes(size) {}
        std::unique_ptr<std::uint8_t[]> memory;
        std::size_t bytes;
        std::atomic<bool> used_up{false};
    };
    Buffer *find(const void *memory) const {
        for (auto &buffer : buffers_) {
            if (buffer->memory.get() == memory) {
                return buffer.get();
            }
        }
        return nullptr;
    }
    std::vector<std::unique_ptr<Buffer>> buffers_;
};

/// One BGRA picture, first row on top. Its memory is free again when it is destroyed, on whatever thread.
class Picture {
public:
    Picture() = default;
    Picture(std::shared_ptr<PicturePool> pool, const ag_event &event)
        : width(event.of.frame.width), height(event.of.frame.height), stride(event.of.frame.stride),
          turn(event.turn), index(event.of.frame.index), pool_(std::move(pool)),
          buffer_(pool_->find(event.buffer)) {}
    Picture(Picture &&other) noexcept { *this = std::move(other); }
    Picture &operator=(Picture &&other) noexcept {
        std::swap(width, other.width);
        std::swap(height, other.height);
        std::swap(stride, other.stride);
        std::swap(turn, other.turn);
        std::swap(index, other.index);
        std::swap(pool_, other.pool_);
        std::swap(buffer_, other.buffer_);
        return *this;
    }
    ~Picture() {
        if (buffer_ != nullptr) {
            buffer_->used_up.store(true, std::memory_order_release);
        }
    }
    const std::uint8_t *pixels() const { return buffer_ != nullptr ? buffer_->memory.get() : nullptr; }

    int width = 0, height = 0, stride = 0;
    std::int64_t turn = 0, index = 0; // that it is of, from 1; its number in it, from 0

private:
    std::shared_ptr<PicturePool> pool_; // keeps the memory, also after the connection is gone
    PicturePool::Buffer *buffer_ = nullptr;
};

} // namespace animegamer_unreal
