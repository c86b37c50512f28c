// What arrives about a session apart from its turn's events: how it was opened, what is offered, whose turn has a number.
#include <algorithm>
#include <cstring>

#include "channel.h"

namespace animegamer {

namespace {

void copy_text(char *to, std::size_t size, std::string_view text) {
    const auto length = std::min(size - 1, text.size());
    std::memcpy(to, text.data(), length);
    to[length] = '\0';
}

} // namespace

Request check_of(const Call &call) { return std::move(about(*call.game, "list").integer("before", call.turn + 1)); }

Fault Channel::process_offer(const Header &header, const Tree &tree) {
    const auto game = owner_.known(header.session);
    if (!game || header.turn == 0 || events_.full()) {
        return {};
    }
    Slot *slot = events_.take();
    if (Fault fault = fill_offer(header, tree, *slot)) {
        events_.drop(slot);
        return fault;
    }
    slot->event.game = game->number;
    slot->event.turn = header.turn;
    events_.push(slot);
    return {};
}

void Channel::process_session(const Header &header, const Tree &tree) {
    if (!is_attached(header.session)) {
        attached_.emplace_back(header.session);
    }
    Fields fields(tree, header.fields);
    const auto turns = fields.integer("turns", 0);
    const auto character = read_character(fields, "character");
    const auto game = owner_.known(header.session);
    if (game && !fields.fault) { // another client may have played since it was here
        const std::lock_guard<std::mutex> lock(game->mutex);
        game->info.turns = turns;
        game->info.character = character;
    }
    for (const auto &call : calls_) {
        if (call->is_turn() && call->game->id == header.session) {
            check_turn_id(*call, tree, tree.find(header.fields, "running"));
        }
    }
}

void Channel::process_check(Call &call, const Header &header, const Tree &tree) {
    const auto turns = header.fields == Tree::none ? Tree::none : tree.find(header.fields, "turns");
    if (header.type == "listed" && turns != Tree::none && tree.at(turns).kind == Kind::list) {
        for (std::uint32_t at = turns + 1; at < tree.at(turns).end; at = tree.at(at).end) {
            check_turn_id(call, tree, at);
        }
    }
}

/// The server was killed and has lost the call's turn, if `entry`, a map with `turn` and `turn_id`, gives its number another id.
void Channel::check_turn_id(Call &call, const Tree &tree, std::uint32_t entry) {
    if (entry == Tree::none || tree.at(entry).kind != Kind::map || call.turn_id.empty()) {
        return;
    }
    Fields fields(tree, entry);
    const auto turn = fields.integer("turn", 1);
    const auto turn_id = fields.text("turn_id");
    if (!fields.fault && turn == call.turn && turn_id != call.turn_id) {
        fail(call, {AG_REFUSED, "no_such_turn",
                    "the server lost turn " + std::to_string(turn) + ", and another client has since played a turn with that number",
                    "look at ag_list, and play the turn again if it still fits"});
    }
}

Fault Channel::read_opened(Call &call, const Header &header, const Tree &tree) {
    Fields fields(tree, header.fields);
    ag_game_info info{};
    const auto token = fields.text("token");
    info.seed = fields.integer("seed", 0);
    info.history_turns = fields.small("history_turns", 0, 16);
    info.turns = fields.integer("turns", 0);
    info.character = read_character(fields, "character");
    if (fields.has("running")) {
        Fields running = fields.map("running");
        info.running_turn = running.integer("turn", 1);
        fields.fault = running.fault;
    }
    if (!fields.fault && (header.session.empty() || token.empty() || token.size() >= sizeof info.token)) {
        return protocol_fault("missing_field", "received opened without session or token");
    }
    if (fields.fault) {
        return fields.fault;
    }
    copy_text(info.session, sizeof info.session, header.session);
    copy_text(info.token, sizeof info.token, token);
    call.game = owner_.opened(std::string(header.session), std::string(token));
    const std::lock_guard<std::mutex> lock(call.game->mutex);
    call.game->info = info;
    return {};
}

} // namespace animegamer
