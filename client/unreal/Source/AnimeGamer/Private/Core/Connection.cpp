#include "Connection.h"

namespace animegamer_unreal {

void Game::open(const std::string &token, std::int64_t seed) {
    token_ = token;
    check(token.empty() ? ag_open(client_, seed, -1, &opening_) : ag_resume(client_, token.c_str(), &opening_));
}

bool Game::open_picture(const void *picture, std::size_t bytes, const std::string &motion, std::int64_t seed) {
    hear(0, 0);
    if (busy()) {
        fail("turn_running", "a turn is running", "wait for its end, or cancel it first");
        return false;
    }
    ag_request request = 0;
    if (ag_open_picture(client_, picture, bytes, motion.c_str(), seed, -1, &request) != AG_OK) {
        refuse();
        return false;
    }
    abandoned_ = token_.empty() ? opening_ : 0;
    opening_ = request;
    return true;
}

std::vector<std::string> Game::offers() const {
    ag_game_info info;
    const bool hold = !offers_.empty() && ag_game_get(client_, game_, &info) == AG_OK && offers_turn_ == info.turns + 1;
    return hold ? offers_ : std::vector<std::string>();
}

// Call it last: the listener may leave the game.
void Game::drop_offers() {
    if (!offers_.empty()) {
        offers_.clear();
        listener_->offered({});
    }
}

bool Game::may_play(std::int64_t ticket) {
    hear(ticket, 0);
    if ((busy() && !cancelled_) || next_turn_ != 0) {
        fail("turn_running", "a turn is running", "wait for its end, or cancel it first");
        return false;
    }
    return true;
}

bool Game::started(ag_result result, ag_request request, std::int64_t ticket) {
    if (result != AG_OK) {
        refuse();
        return false;
    }
    (turn_ == 0 ? turn_ticket_ : next_turn_ticket_) = ticket;
    (turn_ == 0 ? turn_ : next_turn_) = request;
    cancelled_ = false;
    return true;
}

bool Game::say(const std::string &instruction, const std::string &turn_id) {
    const std::int64_t ticket = ++last_ticket_;
    if (!may_play(ticket)) {
        return false;
    }
    if (game_ == 0 || opening_ != 0) {
        if (instruction.empty()) {
            fail("invalid", "the instruction is empty", "write a sentence");
            return false;
        }
        waiting_ = instruction;
        waiting_id_ = turn_id;
        waiting_ticket_ = ticket;
        if (opening_ == 0) { // the last attempt failed
            open(token_);
        }
        return true;
    }
    return send(instruction, turn_id, ticket);
}

bool Game::send(const std::string &instruction, const std::string &turn_id, std::int64_t ticket) {
    ag_request request = 0;
    const char *const id = turn_id.empty() ? nullptr : turn_id.c_str();
    const ag_result result = ag_turn(client_, game_, instruction.c_str(), id, 0.0, &request);
    return started(result, request, ticket);
}

bool Game::replay(std::int64_t turn, std::int64_t after_seq) {
    const std::int64_t ticket = ++last_ticket_;
    if (!is_open() || !may_play(ticket)) {
        return false;
    }
    ag_request request = 0;
    const ag_result result = ag_replay(client_, game_, turn, after_seq, &request);
    return started(result, request, ticket);
}

void Game::advance() {
    turn_ = next_turn_;
    turn_ticket_ = next_turn_ticket_;
    next_turn_ = next_turn_ticket_ = 0;
}

void Game::cancel() {
    if (turn_ != 0) {
        cancelled_ = true;
        ag_cancel(client_, game_, nullptr);
    } else if (!waiting_.empty()) {
        waiting_.clear();
        hear(waiting_ticket_, 0);
        fail("cancelled", "the turn was cancelled before it was sent", "");
    }
}

bool Game::cancel(std::int64_t ticket) {
    const bool runs = turn_ != 0 && ticket == turn_ticket_;
    const bool waits = (next_turn_ != 0 && ticket == next_turn_ticket_) || (!waiting_.empty() && ticket == waiting_ticket_);
    if (waits || (runs && next_turn_ == 0)) { // else it was cancelled before, and the next turn waits for its end
        cancel();
    }
    return waits || runs;
}

bool Game::is_open() {
    hear(0, 0);
    if (game_ == 0 || opening_ != 0) {
        fail("not_open", "the game is not open yet", "wait until it is open");
        return false;
    }
    return true;
}

void Game::wish(const std::vector<std::string> &instructions) {
    if (is_open()) {
        std::vector<const char *> texts;
        for (const std::string &text : instructions) {
            texts.push_back(text.c_str());
        }
        check(ag_wish(client_, game_, texts.data(), texts.size(), nullptr));
    }
}

void Game::rewind(std::int64_t turn) {
    if (is_open()) {
        check(ag_rewind(client_, game_, turn, nullptr));
    }
}

void Game::branch(std::int64_t turn) {
    if (is_open()) {
        check(ag_branch(client_, game_, turn, -1, &branching_));
    }
}

void Game::list(std::int64_t before) {
    if (is_open()) {
        check(ag_list(client_, game_, before, nullptr));
    }
}

void Game::close() {
    if (is_open()) {
        check(ag_close_game(client_, game_, nullptr));
    }
}

void Game::check(ag_result result) {
    if (result != AG_OK) {
        refuse();
    }
}

void Game::refuse() {
    waiting_.clear();
    listener_->failed(*ag_last_error());
}

void Game::fail(const char *code, const char *text, const char *what_to_do) {
    listener_->failed({AG_INVALID, code, text, what_to_do, nullptr, 0});
}

Connection::Connection(const std::string &address, double timeout_s) {
    ag_options options;
    ag_options_init(&options);
    options.address = address.c_str();
    options.timeout_s = timeout_s;
    options.pixel_format = AG_BGRA32;
    client_ = ag_client_new(&options);
    if (client_ == nullptr) {
        const ag_error *error = ag_last_error();
        refusal_ = {error->code, error->text, error->what_to_do};
    }
}

Connection::~Connection() { ag_client_free(client_); } // its thread has ended then; pictures in use keep the pool

Game *Connection::add(Listener &listener) {
    auto game = std::make_unique<Game>();
    game->client_ = client_;
    game->listener_ = &listener;
    Game *const added = game.get();
    games_.emplace(added, std::move(game));
    grow_pool();
    return added;
}

// Two clips a game: one that it shows, and keeps if it loops, while the next arrives.
void Connection::grow_pool() { pool_->grow(client_, 2 * clip_frames_ * games_.size(), buffer_bytes_); }

void Connection::leave(Game *game) { games_.erase(game); }

void Connection::connect(Answer answer) {
    ag_request number = 0;
    if (ag_connect(client_, &number) == AG_OK) {
        answers_[number] = std::move(answer);
        return;
    }
    ag_event refused{};
    refused.type = AG_EVENT_ERROR;
    refused.of.error = *ag_last_error();
    answer(refused);
}

void Connection::close() { ag_client_close(client_); }

void Connection::tick() {
    if (client_ == nullptr) {
        return;
    }
    pool_->collect(client_);
    while (const ag_event *event = ag_poll(client_)) {
        hand_out(*event);
    }
}

Game *Connection::game_of(const ag_event &event) const {
    for (const auto &entry : games_) {
        Game *const game = entry.first;
        const bool opens = event.request == game->opening_ || event.request == game->branching_ || event.request == game->abandoned_;
        if (event.request != 0 && opens) {
            return game;
        }
        if (event.game != 0 && event.game == game->game_) {
            return game;
        }
    }
    return nullptr;
}

void Connection::opened(Game &game, const ag_event &event) {
    ag_game_info info;
    if (game.game_ != 0 && ag_game_get(client_, game.game_, &info) == AG_OK && info.turns == 0) {
        ag_close_game(client_, game.game_, nullptr); // nobody has played it
    }
    ag_game_get(client_, event.game, &info);
    game.game_ = event.game;
    game.opening_ = 0;
    game.token_ = info.token;
    game.offers_.clear();
    if (info.running_turn > 0 && ag_replay(client_, event.game, info.running_turn, -1, &game.turn_) == AG_OK) {
        game.turn_ticket_ = ++game.last_ticket_;
    }
    game.listener_->opened(info, event.of.understood);
    if (games_.count(&game) != 0 && !game.waiting_.empty()) {
        const std::string instruction = std::move(game.waiting_);
        game.waiting_.clear();
        if (game.may_play(game.waiting_ticket_)) {
            game.send(instruction, game.waiting_id_, game.waiting_ticket_);
        }
    }
}

// What the server has ready is not known any more.
void Connection::lost() {
    std::vector<Game *> games;
    for (const auto &entry : games_) {
        games.push_back(entry.first);
    }
    for (Game *const game : games) {
        if (games_.count(game) != 0) {
            game->drop_offers();
        }
    }
}

// The game has another number of turns: what was offered for the next one may not hold. Its listener may have left it.
void Connection::counted(Game *game) {
    if (games_.count(game) != 0 && game->offers().empty()) {
        game->drop_offers();
    }
}

void Connection::hand_out(const ag_event &event) {
    if (event.type == AG_EVENT_CONNECTED) {
        fps_ = event.of.welcome.fps > 0.0 ? event.of.welcome.fps : fps_;
        clip_frames_ = static_cast<std::size_t>(event.of.welcome.frames);
        buffer_bytes_ = event.of.welcome.buffer_bytes;
        grow_pool();
        if (welcomed) {
            welcomed(event.of.welcome);
        }
    } else if (event.type == AG_EVENT_DISCONNECTED) {
        lost();
    }
    const auto asked = answers_.find(event.request);
    if (asked != answers_.end()) {
        const Answer answer = std::move(asked->second);
        answers_.erase(asked);
        answer(event);
        return;
    }
    Picture *const picture = event.type == AG_EVENT_FRAME ? pool_->arrived(event) : nullptr;
    Game *const game = game_of(event);
    if (game == nullptr) {
        return;
    }
    Listener &listener = *game->listener_;
    ag_game_info info;
    const bool ends_opening = event.request == game->opening_ && !game->waiting_.empty();
    game->hear(event.request == game->turn_        ? game->turn_ticket_
               : event.request == game->next_turn_ ? game->next_turn_ticket_
               : ends_opening                      ? game->waiting_ticket_
                                                   : 0,
               event.turn);
    if (event.type == AG_EVENT_DONE) {
        game->advance();
    }
    listener.heard(event); // it may leave the game
    switch (event.type) {
    case AG_EVENT_OPENED:
        if (event.request == game->branching_) {
            game->branching_ = 0;
            ag_game_get(client_, event.game, &info);
            listener.branched(info);
        } else if (event.request == game->abandoned_) {
            game->abandoned_ = 0;
            ag_close_game(client_, event.game, nullptr);
        } else {
            opened(*game, event);
        }
        break;
    case AG_EVENT_OFFER:
        game->offers_.assign(event.of.offer.items, event.of.offer.items + event.of.offer.count);
        game->offers_turn_ = event.turn;
        listener.offered(game->offers());
        break;
    case AG_EVENT_FRAME:
        if (picture != nullptr) {
            listener.frame(*picture);
        }
        break;
    case AG_EVENT_DONE:
        counted(game);
        break;
    case AG_EVENT_REWOUND:
        ag_game_get(client_, event.game, &info);
        listener.rewound(info);
        counted(game);
        break;
    case AG_EVENT_ERROR:
        if (event.request != 0 && event.request == game->opening_) {
            game->opening_ = 0;
            game->waiting_.clear();
        } else if (event.request != 0 && event.request == game->turn_) {
            game->advance();
        }
        listener.failed(event.of.error);
        break;
    default:
        break;
    }
}

} // namespace animegamer_unreal
