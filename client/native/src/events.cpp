// Messages to events: reads the fields of each answer, and checks their kinds and bounds.
#include <cstring>
#include <iterator>

#include "call.h"

namespace animegamer {

namespace {

constexpr int most_pixels = 65535;

/// The most text that the event of a message, or of a part of it, needs: all of its text, and a zero byte for each.
std::size_t text_bytes(const Tree &tree, std::uint32_t part) {
    std::size_t bytes = 64;
    for (std::uint32_t at = part; part != Tree::none && at < tree.at(part).end; ++at) {
        bytes += tree.at(at).text.size() + 1;
    }
    return bytes;
}

Fault bad_picture(std::size_t bytes, const ag_frame &frame) {
    return protocol_fault("bad_field", "received " + std::to_string(bytes) + " bytes for a picture of " + std::to_string(frame.width) + " x " +
                                           std::to_string(frame.height) + ", stride " + std::to_string(frame.stride));
}

Fault read_frame(Fields &fields, std::size_t bytes, ag_frame &frame) {
    frame.index = fields.integer("index", 0);
    frame.count = fields.integer("count", 1);
    frame.width = fields.small("width", 1, most_pixels);
    frame.height = fields.small("height", 1, most_pixels);
    frame.stride = fields.small("stride", 0, INT32_MAX);
    const auto format = fields.text("pixel_format"), codec = fields.text("codec");
    if (fields.fault) {
        return fields.fault;
    }
    frame.pixel_format = format == "bgra32" ? AG_BGRA32 : format == "rgb24" ? AG_RGB24 : AG_RGBA32;
    frame.codec = codec == "jpeg" ? AG_JPEG : AG_RAW;
    if (codec != "raw" && codec != "jpeg") {
        return protocol_fault("bad_field", "received a picture of codec " + std::string(codec));
    }
    if (frame.codec == AG_RAW) {
        if (format != "bgra32" && format != "rgb24" && format != "rgba32") {
            return protocol_fault("bad_field", "received a picture of pixel format " + std::string(format));
        }
        const std::size_t row = static_cast<std::size_t>(frame.width) * (frame.pixel_format == AG_RGB24 ? 3 : 4);
        const auto stride = static_cast<std::size_t>(frame.stride);
        if (stride < row || bytes != stride * static_cast<std::size_t>(frame.height)) {
            return bad_picture(bytes, frame);
        }
    }
    return {};
}

struct Range {
    std::size_t at, count;
};

/// Add a list of text to the strings of a slot or of answers; a list that is absent has none.
template <typename Holder> Range add_strings(Fields &fields, std::string_view name, Holder &holder) {
    const std::size_t before = holder.strings.size();
    const auto list = fields.has(name) ? fields.list(name) : Tree::none;
    const Tree &tree = fields.tree();
    for (std::uint32_t at = list + 1; list != Tree::none && at < tree.at(list).end; at = tree.at(at).end) {
        if (tree.at(at).kind != Kind::text) {
            fields.fault = protocol_fault("bad_field", "received a message whose " + std::string(name) + " is not a list of text");
            break;
        }
        holder.strings.push_back(holder.texts.put(tree.at(at).text));
    }
    return {before, holder.strings.size() - before};
}

/// Once all strings of the holder are added: where these are.
template <typename Holder> ag_strings strings_of(const Holder &holder, Range range) {
    return {holder.strings.data() + range.at, range.count};
}

void read_listed(Fields &fields, Slot &slot) {
    const auto list = fields.list("turns");
    slot.event.of.listed.more = fields.flag("more");
    if (list == Tree::none) {
        return;
    }
    const Tree &tree = fields.tree();
    for (std::uint32_t at = list + 1; at < tree.at(list).end && !fields.fault; at = tree.at(at).end) {
        Fields entry(tree, at);
        ag_logged_turn turn{};
        turn.turn = entry.integer("turn", 1);
        turn.turn_id = slot.texts.put(entry.text("turn_id"));
        turn.instruction = slot.texts.put(entry.text("instruction"));
        turn.motion_level = entry.small("motion_level", -5, 5);
        turn.social = entry.small("social", -5, 5);
        turn.entertainment = entry.small("entertainment", -5, 5);
        turn.stamina = entry.small("stamina", -5, 5);
        slot.turns.push_back(turn);
        fields.fault = entry.fault;
    }
    slot.event.of.listed.turns = slot.turns.data();
    slot.event.of.listed.count = slot.turns.size();
}

void clear(ag_understood &understood) {
    understood = ag_understood{};
    for (const char **text : {&understood.motion, &understood.place, &understood.hour, &understood.position, &understood.caption,
                              &understood.text, &understood.notice}) {
        *text = "";
    }
}

void read_understood(Fields &fields, Slot &slot) {
    auto &understood = slot.event.of.understood;
    clear(understood);
    const auto list = fields.list("people");
    const Tree &tree = fields.tree();
    for (std::uint32_t at = list + 1; list != Tree::none && at < tree.at(list).end && !fields.fault; at = tree.at(at).end) {
        Fields person(tree, at);
        const char *const name = slot.texts.put(person.text("name"));
        slot.people.push_back({name, slot.texts.put(person.text("clothes"))});
        fields.fault = person.fault;
    }
    understood.people = slot.people.data();
    understood.count = slot.people.size();
    understood.motion = slot.texts.put(fields.text("motion"));
    understood.place = slot.texts.put(fields.text("place"));
    understood.hour = slot.texts.put(fields.text("hour"));
    understood.position = slot.texts.put(fields.text("position"));
    understood.level = fields.small("level", 1, 5);
    understood.caption = slot.texts.put(fields.text("caption"));
    understood.text = slot.texts.put(fields.text("text"));
    understood.notice = slot.texts.put(fields.text_or_empty("notice"));
    understood.unknown = strings_of(slot, add_strings(fields, "unknown", slot)); // not of a picture
    slot.answers = read_answers(fields);
    if (slot.answers) {
        understood.answers = slot.answers->items.data();
        understood.answer_count = slot.answers->items.size();
    }
}

void read_welcome(Fields &fields, Slot &slot) {
    auto &welcome = slot.event.of.welcome;
    welcome.server = slot.texts.put(fields.text("server"));
    welcome.protocol = slot.texts.put(fields.text("protocol"));
    welcome.state = slot.texts.put(fields.text("state"));
    Fields bundle = fields.map("bundle");
    welcome.bundle = slot.texts.put(bundle.text("name"));
    welcome.fingerprint = slot.texts.put(bundle.text("fingerprint"));
    welcome.plan = slot.texts.put(bundle.text("plan"));
    welcome.width = bundle.small("width", 1, most_pixels);
    welcome.height = bundle.small("height", 1, most_pixels);
    welcome.frames = bundle.small("frames", 1, most_pixels);
    welcome.fps = bundle.number("fps");
    welcome.random_weights = bundle.flag("random_weights");
    const std::pair<const char *, ag_strings *> words[] = {{"people", &welcome.people}, {"motions", &welcome.motions},
                                                           {"places", &welcome.places}, {"hours", &welcome.hours},
                                                           {"clothes", &welcome.clothes}, {"manners", &welcome.manners}};
    Range ranges[std::size(words)];
    for (std::size_t n = 0; n < std::size(words); ++n) {
        ranges[n] = add_strings(bundle, words[n].first, slot);
    }
    for (std::size_t n = 0; n < std::size(words); ++n) {
        *words[n].second = strings_of(slot, ranges[n]);
    }
    fields.fault = bundle.fault;
    const auto capabilities = fields.has("capabilities") ? fields.list("capabilities") : Tree::none;
    const Tree &tree = fields.tree();
    for (std::uint32_t at = capabilities + 1; capabilities != Tree::none && at < tree.at(capabilities).end; at = tree.at(at).end) {
        welcome.picture = welcome.picture != 0 || tree.at(at).text == "picture" ? 1 : 0;
    }
    Fields limits = fields.map("limits");
    welcome.text_characters = limits.integer("text_characters", 0);
    welcome.header_bytes = limits.integer("header_bytes", 0);
    welcome.turns_a_minute = limits.integer("turns_a_minute", 0);
    welcome.sessions = limits.integer("sessions", 0);
    welcome.queue = limits.integer("queue", 0);
    fields.fault = limits.fault;
    // A raw picture of four channels; a JPEG is smaller but for its overhead.
    const std::size_t raw = 4 * static_cast<std::size_t>(welcome.width) * static_cast<std::size_t>(welcome.height) + 262144;
    welcome.buffer_bytes = raw < max_buffer_bytes ? raw : max_buffer_bytes;
}

} // namespace

ag_character read_character(Fields &fields, const char *name) {
    Fields values = fields.map(name);
    ag_character character{};
    character.stamina = values.small("stamina", 0, 100);
    character.social = values.small("social", 0, 100);
    character.entertainment = values.small("entertainment", 0, 100);
    fields.fault = values.fault;
    return character;
}

std::shared_ptr<const Answers> read_answers(Fields &fields) {
    const auto list = fields.has("answer") ? fields.list("answer") : Tree::none;
    if (list == Tree::none) {
        return nullptr;
    }
    const Tree &tree = fields.tree();
    auto answers = std::make_shared<Answers>();
    answers->texts.reset(text_bytes(tree, list));
    for (std::uint32_t at = list + 1; at < tree.at(list).end && !fields.fault; at = tree.at(at).end) {
        Fields one(tree, at);
        const char *const code = answers->texts.put(one.text("code"));
        const char *const value = answers->texts.put(one.text_or_empty("value"));
        const auto people = add_strings(one, "people", *answers).count, words = add_strings(one, "words", *answers).count;
        answers->items.push_back({code, value, {nullptr, people}, {nullptr, words}});
        fields.fault = one.fault;
    }
    std::size_t next = 0; // the strings no longer move
    for (auto &answer : answers->items) {
        for (ag_strings *strings : {&answer.people, &answer.words}) {
            *strings = strings_of(*answers, {next, strings->count});
            next += strings->count;
        }
    }
    return answers;
}

ag_event_type turn_event_type(std::string_view type) {
    static constexpr std::pair<std::string_view, ag_event_type> types[] = {
        {"accepted", AG_EVENT_ACCEPTED}, {"understood", AG_EVENT_UNDERSTOOD}, {"state", AG_EVENT_STATE},
        {"progress", AG_EVENT_PROGRESS}, {"frame", AG_EVENT_FRAME},
        {"restarting", AG_EVENT_RESTARTING}, {"done", AG_EVENT_DONE}};
    for (const auto &[name, event] : types) {
        if (name == type) {
            return event;
        }
    }
    return static_cast<ag_event_type>(0);
}

Fault fill_turn_event(const Header &header, const Tree &tree, std::size_t buffer_bytes, Slot &slot) {
    const auto type = turn_event_type(header.type);
    slot.reset(type, text_bytes(tree, header.fields));
    Fields fields(tree, header.fields);
    auto &of = slot.event.of;
    switch (type) {
    case AG_EVENT_ACCEPTED:
        of.accepted.turn_id = slot.texts.put(fields.text("turn_id"));
        of.accepted.instruction = slot.texts.put(fields.text("instruction"));
        of.accepted.place = fields.integer("place", 0);
        of.accepted.estimate_s = fields.number("estimate_s");
        of.accepted.replayed = fields.flag("replayed");
        break;
    case AG_EVENT_UNDERSTOOD:
        read_understood(fields, slot);
        break;
    case AG_EVENT_STATE:
        of.state.motion_level = fields.small("motion_level", -5, 5);
        of.state.social = fields.small("social", -5, 5);
        of.state.entertainment = fields.small("entertainment", -5, 5);
        of.state.stamina = fields.small("stamina", -5, 5);
        of.state.character = read_character(fields, "character");
        of.state.shown = read_character(fields, "shown");
        of.state.motion_scope = fields.number("motion_scope");
        break;
    case AG_EVENT_PROGRESS:
        of.progress.step = fields.integer("step", 0);
        of.progress.steps = fields.integer("steps", 1);
        of.progress.seconds_left = fields.number("seconds_left");
        break;
    case AG_EVENT_FRAME:
        return read_frame(fields, buffer_bytes, of.frame);
    case AG_EVENT_RESTARTING:
        of.restarting.attempt = fields.integer("attempt", 1);
        of.restarting.retry_in_s = fields.number("retry_in_s");
        break;
    case AG_EVENT_DONE: {
        Fields seconds = fields.map("seconds");
        of.done.queue_s = seconds.number("queue");
        of.done.predictor_s = seconds.number("predictor");
        of.done.denoiser_s = seconds.number("denoiser");
        of.done.vae_s = seconds.number("vae");
        of.done.total_s = seconds.number("total");
        fields.fault = seconds.fault;
        of.done.turns = fields.integer("turns", 0);
        break;
    }
    default:
        break;
    }
    return fields.fault;
}

Fault fill_offer(const Header &header, const Tree &tree, Slot &slot) {
    slot.reset(AG_EVENT_OFFER, text_bytes(tree, header.fields));
    Fields fields(tree, header.fields);
    if (fields.list("instructions") != Tree::none) {
        slot.event.of.offer = strings_of(slot, add_strings(fields, "instructions", slot));
    }
    return fields.fault;
}

Fault fill_answer(const Header &header, const Tree &tree, Slot &slot) {
    const auto bytes = text_bytes(tree, header.fields);
    Fields fields(tree, header.fields);
    if (header.type == "welcome") {
        slot.reset(AG_EVENT_CONNECTED, bytes);
        read_welcome(fields, slot);
    } else if (header.type == "opened") {
        slot.reset(AG_EVENT_OPENED, bytes);
        clear(slot.event.of.understood);
        if (fields.has("understood")) {
            Fields seen = fields.map("understood");
            read_understood(seen, slot);
            fields.fault = seen.fault;
        }
    } else if (header.type == "rewound") {
        slot.reset(AG_EVENT_REWOUND, bytes);
    } else if (header.type == "closed") {
        slot.reset(AG_EVENT_GAME_CLOSED, bytes);
    } else if (header.type == "listed") {
        slot.reset(AG_EVENT_LISTED, bytes);
        read_listed(fields, slot);
    } else if (header.type == "wished") {
        slot.reset(AG_EVENT_WISHED, bytes);
        slot.event.of.offer = strings_of(slot, add_strings(fields, "instructions", slot));
    } else if (header.type == "cancelling") {
        slot.reset(AG_EVENT_CANCELLING, bytes);
        slot.event.of.cancelling = fields.flag("running");
    }
    return fields.fault;
}

} // namespace animegamer
