// What the I/O thread hands to the game's thread: events in order, and the caller's buffers on their way in and out.
//
// There is a slot for each buffer and some more, and they are used again: nothing is allocated for a picture.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "animegamer.h"
#include "fault.h"

namespace animegamer {

/// Text with stable addresses: reserve the most it may hold, then put strings into it.
class Texts {
public:
    void reset(std::size_t most);
    const char *put(std::string_view text);

private:
    std::string bytes_;
};

/// What is said to the player in codes, and the memory of it.
struct Answers {
    Texts texts;
    std::vector<const char *> strings;
    std::vector<ag_answer> items;
};

struct Slot {
    ag_event event{};
    Texts texts;
    std::vector<ag_logged_turn> turns;
    std::vector<const char *> strings;
    std::vector<ag_person> people;
    std::shared_ptr<const Answers> answers;
    Slot *next = nullptr;

    /// Make it an event that holds nothing yet. text_bytes: the most that its texts need, a zero byte for each included.
    void reset(ag_event_type type, std::size_t text_bytes);
    void set_error(const Fault &fault);
};

struct Buffer {
    std::uint8_t *data = nullptr;
    std::size_t bytes = 0;
};

class EventQueue {
public:
    static constexpr std::size_t enough_events = 1024; // unread ones, before a turn's events are held back

    static constexpr std::size_t spare_slots = 64;     // for the events between two pictures

    EventQueue(); // throws std::bad_alloc
    ~EventQueue();
    EventQueue(const EventQueue &) = delete;
    EventQueue &operator=(const EventQueue &) = delete;

    // -- the I/O thread's side

    /// An unused slot: push it, or give it back by `drop`. Throws std::bad_alloc.
    Slot *take();
    void push(Slot *slot);
    /// The same for an event that only tells the connection's state: it takes the place of an unread one before it.
    void push_connection(Slot *slot);
    void drop(Slot *slot);
    bool full();
    /// A free buffer of so many bytes or more; without data if there is none.
    Buffer take_buffer(std::size_t bytes);
    /// It was not used after all.
    void put_back(Buffer buffer);
    /// The most bytes that a buffer of the caller has; 0: none was ever given.
    std::size_t largest_buffer();
    /// Whether a turn that waited for a buffer, or for events to be read, should go on.
    bool has_room();

    // -- the game's side

    /// The next event, or nullptr, also while the I/O thread is just adding one. `held` is the one returned before, and
    /// becomes the one returned now.
    Slot *poll(Slot *&held);
    /// A buffer that is free (again). Returns whether the I/O thread waits for one.
    bool give(Buffer buffer);

    /// Set by the I/O thread when it found no buffer or no room.
    std::atomic<bool> starved{false};

private:
    void add_slot();
    void release(Slot *slot);
    void append(Slot *slot);

    std::mutex mutex_;
    Slot *first_ = nullptr, *last_ = nullptr, *free_ = nullptr;
    std::size_t events_ = 0;
    std::vector<Buffer> buffers_;
    std::size_t largest_ = 0, most_buffers_ = 0;
};

} // namespace animegamer
