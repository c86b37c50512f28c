// The driver of the conformance suite: commands on standard input, one line of answer to each (client/conformance/README.md). It
// drives the part of the plugin that knows nothing of Unreal, in ticks, as the subsystem does.
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "../../native/tests/driver_turn.h"
#include "Core/Connection.h"

namespace {

namespace plugin = animegamer_unreal;

class Driver : public plugin::Listener {
public:
    std::string answer(const std::string &line) {
        std::istringstream words(line);
        std::string verb;
        words >> verb;
        said_.clear();
        run(verb, words);
        if (verb == "turn" || verb == "begin" || verb == "rest" || verb == "replay") {
            while (ended_.empty() && said_.empty() && (verb != "begin" || turn_.seqs.empty())) {
                tick();
            }
            return !said_.empty() ? said_ : ended_.empty() ? "ok" : ended_;
        }
        while (said_.empty()) {
            tick();
        }
        return said_;
    }

    void opened(const ag_game_info &info, const ag_understood &seen) override {
        token_ = info.token;
        said_ = "ok " + std::to_string(info.turns) + (seen.text[0] != '\0' ? std::string(" ") + seen.text : "");
    }
    void offered(const std::vector<std::string> &) override {}
    void rewound(const ag_game_info &info) override { said_ = "ok " + std::to_string(info.turns); }
    void branched(const ag_game_info &info) override { branch_ = info.token; }
    void frame(plugin::Picture &picture) override {
        turn_.add_picture(picture.turn, picture.index, picture.pixels.get(), picture.width, picture.height, picture.stride);
    }
    void failed(const ag_error &error) override {
        told_ = answers_of(error);
        const bool of_turn = game_ != nullptr && game_->ticket() == ticket_;
        (of_turn ? ended_ : said_) = error_line(error);
    }
    void heard(const ag_event &event) override {
        const bool is_numbered = event.type >= AG_EVENT_ACCEPTED && event.type <= AG_EVENT_DONE && event.type != AG_EVENT_RESTARTING;
        if (is_numbered && event.turn > 0) {
            turn_.seqs.push_back(event.seq);
        }
        if (event.type == AG_EVENT_ACCEPTED) {
            turn_.replayed = event.of.accepted.replayed != 0;
        } else if (event.type == AG_EVENT_UNDERSTOOD) {
            understood_ = line_of(event.of.understood);
            told_ = answers_of(event.of.understood);
        } else if (event.type == AG_EVENT_DONE) {
            turn_.turns = event.of.done.turns;
            ended_ = turn_.line();
        } else if (event.type == AG_EVENT_LISTED && asks_for_offers_) {
            const std::vector<std::string> offers = game_->offers();
            said_ = "ok " + std::to_string(offers.size()) + " " + (offers.empty() ? "" : offers[0]);
        } else if (event.type == AG_EVENT_GAME_CLOSED || event.type == AG_EVENT_LISTED || event.type == AG_EVENT_WISHED) {
            said_ = answer_of(event);
        }
    }

private:
    void run(const std::string &verb, std::istringstream &words) {
        std::string first;
        if (verb == "new") {
            words >> address_ >> timeout_s_;
            renew();
            const plugin::Refusal &refusal = connection_->refusal();
            said_ = connection_->working() ? "ok" : error_line(refusal.code, refusal.text, refusal.what_to_do);
        } else if (verb == "connect") {
            connection_->connect([this](const ag_event &event) { said_ = answer_of(event); });
        } else if (verb == "words" || verb == "understood" || verb == "answers") {
            said_ = "ok" + (verb == "words" ? words_ : verb == "understood" ? understood_ : told_);
        } else if (verb == "open") {
            add();
            game_->open("", number(words));
        } else if (verb == "open-picture") {
            const auto seed = number(words);
            words >> first;
            const auto picture = bytes_of(first);
            if (game_ == nullptr) {
                add();
            }
            game_->open_picture(picture.data(), picture.size(), rest_of(words), seed);
        } else if (verb == "resume") {
            renew();
            add();
            game_->open(words >> first ? first : token_);
        } else if (verb == "turn" || verb == "begin") {
            words >> first;
            if (!game_->busy()) {
                begin();
            }
            game_->say(rest_of(words), first);
        } else if (verb == "replay") {
            const auto turn = number(words);
            begin();
            game_->replay(turn, number(words));
        } else if (verb == "cancel") {
            said_ = game_->busy() ? "ok 1" : "ok 0";
            game_->cancel();
        } else if (verb == "wish") {
            game_->wish(texts_of(words));
        } else if (verb == "rewind") {
            game_->rewind(number(words));
        } else if (verb == "branch") {
            branch_.clear();
            game_->branch(number(words));
            while (branch_.empty() && said_.empty()) {
                tick();
            }
            if (said_.empty()) {
                add();
                game_->open(branch_);
            }
        } else if (verb == "list" || verb == "offers") {
            asks_for_offers_ = verb == "offers"; // what the server sent before it lists has arrived then
            game_->list();
        } else if (verb == "end") {
            game_->close();
        } else if (verb == "close") {
            if (connection_) {
                connection_->close();
            }
            said_ = "ok";
        } else if (verb != "rest") {
            said_ = "error unknown " + verb;
        }
    }

    void renew() {
        game_ = nullptr;
        connection_.reset();
        connection_ = std::make_unique<plugin::Connection>(address_, timeout_s_);
        connection_->welcomed = [this](const ag_welcome &welcome) { words_ = words_of(welcome); };
    }

    void add() {
        if (game_ != nullptr) {
            connection_->leave(game_);
        }
        ticket_ = -1;
        game_ = connection_->add(*this);
    }

    void begin() {
        ticket_ = game_->next_ticket();
        turn_ = Turn();
        ended_.clear();
        understood_.clear();
    }

    void tick() {
        connection_->tick();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }

    std::string address_, token_, branch_, words_, understood_, told_;
    double timeout_s_ = 30.0;
    std::unique_ptr<plugin::Connection> connection_;
    plugin::Game *game_ = nullptr;
    std::int64_t ticket_ = -1; // of the turn that was begun
    Turn turn_; // that was begun
    std::string said_, ended_; // the answer; how the turn ended
    bool asks_for_offers_ = false;
};

} // namespace

int main() { return run_driver<Driver>(); }
