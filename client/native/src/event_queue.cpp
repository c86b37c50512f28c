#include "event_queue.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace animegamer {

namespace {

constexpr std::size_t slot_text_bytes = 512; // more than a picture's fields have

} // namespace

void Texts::reset(std::size_t most) {
    bytes_.clear();
    bytes_.reserve(most < 64 ? 64 : most); // longer than what a string holds inside: its address stays when slots are swapped
}

const char *Texts::put(std::string_view text) {
    if (bytes_.capacity() - bytes_.size() < text.size() + 1) {
        return "";
    }
    const auto at = bytes_.size();
    bytes_.append(text);
    bytes_.push_back('\0');
    return bytes_.data() + at;
}

void Slot::reset(ag_event_type type, std::size_t text_bytes) {
    event = ag_event{};
    event.type = type;
    event.seq = -1;
    texts.reset(text_bytes);
    turns.clear();
    strings.clear();
    people.clear();
    answers.reset();
}

void Slot::set_error(const Fault &fault) {
    texts.reset(fault.code.size() + fault.text.size() + fault.what_to_do.size() + 3);
    answers = fault.answers;
    event.of.error = ag_error{fault.kind, texts.put(fault.code), texts.put(fault.text), texts.put(fault.what_to_do),
                              answers ? answers->items.data() : nullptr, answers ? answers->items.size() : 0};
}

EventQueue::EventQueue() {
    for (std::size_t n = 0; n < spare_slots; ++n) {
        add_slot();
    }
}

EventQueue::~EventQueue() {
    for (Slot *list : {first_, free_}) {
        while (list != nullptr) {
            Slot *next = list->next;
            delete list;
            list = next;
        }
    }
}

Slot *EventQueue::take() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (free_ != nullptr) {
            Slot *slot = free_;
            free_ = slot->next;
            slot->next = nullptr;
            return slot;
        }
    }
    return new Slot;
}

void EventQueue::add_slot() {
    auto slot = std::make_unique<Slot>();
    slot->texts.reset(slot_text_bytes);
    release(slot.release());
}

void EventQueue::append(Slot *slot) {
    slot->next = nullptr;
    (last_ != nullptr ? last_->next : first_) = slot;
    last_ = slot;
    ++events_;
}

void EventQueue::push(Slot *slot) {
    const std::lock_guard<std::mutex> lock(mutex_);
    append(slot);
}

void EventQueue::push_connection(Slot *slot) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto only_tells = [](const Slot &other) {
        return other.event.request == 0 &&
               (other.event.type == AG_EVENT_CONNECTED || other.event.type == AG_EVENT_DISCONNECTED);
    };
    if (last_ != nullptr && only_tells(*last_)) {
        std::swap(last_->event, slot->event);
        std::swap(last_->texts, slot->texts);
        std::swap(last_->strings, slot->strings);
        release(slot);
    } else {
        append(slot);
    }
}

void EventQueue::release(Slot *slot) {
    slot->next = free_;
    free_ = slot;
}

void EventQueue::drop(Slot *slot) {
    const std::lock_guard<std::mutex> lock(mutex_);
    release(slot);
}

bool EventQueue::full() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return events_ >= enough_events;
}

Buffer EventQueue::take_buffer(std::size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto at = buffers_.begin(); at != buffers_.end(); ++at) {
        if (at->bytes >= bytes) {
            const Buffer buffer = *at;
            *at = buffers_.back();
            buffers_.pop_back();
            return buffer;
        }
    }
    return {};
}

void EventQueue::put_back(Buffer buffer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    buffers_.push_back(buffer);
}

std::size_t EventQueue::largest_buffer() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return largest_;
}

bool EventQueue::has_room() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return !buffers_.empty() && events_ < enough_events / 2;
}

Slot *EventQueue::poll(Slot *&held) {
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) {
        return nullptr;
    }
    if (held != nullptr) {
        release(held);
    }
    held = first_;
    if (held != nullptr) {
        first_ = held->next;
        last_ = first_ == nullptr ? nullptr : last_;
        --events_;
    }
    return held;
}

bool EventQueue::give(Buffer buffer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    buffers_.push_back(buffer);
    if (buffers_.size() > most_buffers_) {
        most_buffers_ = buffers_.size();
        add_slot();
    }
    largest_ = std::max(largest_, buffer.bytes);
    return starved.load();
}

} // namespace animegamer
