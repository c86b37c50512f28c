// The driver of the conformance suite: commands on standard input, one line of answer to each
// (client/conformance/README.md). It plays as a game does: it polls, and waits for the next tick.
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <sstream>
#include <thread>

#include "driver_display.h"
#include "driver_turn.h"

namespace {

class Driver {
public:
    std::string answer(const std::string &line) {
        std::istringstream words(line);
        std::string verb;
        words >> verb;
        try {
            return run(verb, words);
        } catch (const ag::Error &error) {
            return error_line(error.code, error.text, error.what_to_do);
        }
    }

private:
    std::string run(const std::string &verb, std::istringstream &words) {
        if (verb == "new") {
            words >> address_ >> timeout_s_;
            renew();
            return "ok";
        }
        if (verb == "resume") {
            std::string token;
            renew();
            return wait(client_->resume(words >> token ? token : token_));
        }
        if (verb == "close") {
            if (client_) {
                client_->close();
            }
            return "ok";
        }
        if (verb == "connect") {
            return wait(client_->connect());
        }
        if (verb == "words" || verb == "understood" || verb == "answers") {
            return "ok" + (verb == "words" ? words_ : verb == "understood" ? understood_ : told_);
        }
        if (verb == "open") {
            return wait(client_->open(number(words)));
        }
        if (verb == "open-picture") {
            const auto seed = number(words);
            std::string path;
            words >> path;
            const auto answer = wait(client_->open_picture(bytes_of(path), rest_of(words), seed));
            return answer.substr(0, 2) == "ok" ? answer + " " + seen_ : answer;
        }
        if (verb == "offers") {
            wait(client_->list(game_)); // what the server sent before its answer has arrived then
            const auto &offer = offers_[game_];
            const bool holds = offer.first == client_->info(game_).turns + 1 && !offer.second.empty();
            return "ok " + (holds ? std::to_string(offer.second.size()) + " " + offer.second[0] : "0");
        }
        if (verb == "wish") {
            return wait(client_->wish(game_, texts_of(words)));
        }
        if (verb == "display") {
            return display_.answer(words);
        }
        if (verb == "turn" || verb == "begin") {
            const auto request = ask_turn(words);
            if (verb == "turn") {
                return end(request);
            }
            begun_ = request;
            while (turns_[request].seqs.empty() && !turns_[request].ended) {
                tick();
            }
            return turns_[request].ended ? turns_[request].line() : "ok";
        }
        if (verb == "rest") {
            return end(begun_);
        }
        if (verb == "replay") {
            const auto turn = number(words);
            const auto request = client_->replay(game_, turn, number(words));
            turns_[request];
            return end(request);
        }
        if (verb == "cancel" || verb == "list" || verb == "end") {
            return wait(verb == "cancel" ? client_->cancel(game_) : verb == "list" ? client_->list(game_) : client_->close_game(game_));
        }
        if (verb == "rewind" || verb == "branch") {
            const auto turn = number(words);
            return wait(verb == "rewind" ? client_->rewind(game_, turn) : client_->branch(game_, turn));
        }
        return "error unknown " + verb;
    }

    void renew() {
        client_.reset();
        ag::Options options(address_.c_str());
        options.timeout_s = timeout_s_;
        client_ = std::make_unique<ag::Client>(options);
        turns_.clear();
        answers_.clear();
        offers_.clear();
        has_buffers_ = false;
    }

    ag_request ask_turn(std::istringstream &words) {
        std::string turn_id;
        words >> turn_id;
        const auto request = client_->turn(game_, rest_of(words), turn_id.c_str());
        turns_[request];
        return request;
    }

    std::string wait(ag_request request) {
        while (answers_.find(request) == answers_.end()) {
            tick();
        }
        return answers_[request];
    }

    std::string end(ag_request request) {
        while (!turns_[request].ended) {
            tick();
        }
        const std::string line = turns_[request].line();
        turns_.erase(request);
        return line;
    }

    void tick() {
        client_->poll([this](const ag_event &event) { take(event); });
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }

    void take(const ag_event &event) {
        const auto turn = turns_.find(event.request);
        if (event.type == AG_EVENT_CONNECTED) {
            words_ = words_of(event.of.welcome);
        }
        if (event.type == AG_EVENT_CONNECTED && !has_buffers_) {
            has_buffers_ = true;
            client_->add_buffers(std::size_t(event.of.welcome.frames), std::max<std::size_t>(event.of.welcome.buffer_bytes, 4096));
        }
        if (event.type == AG_EVENT_OFFER) {
            auto &offer = offers_[event.game];
            offer.first = event.turn;
            offer.second.assign(event.of.offer.items, event.of.offer.items + event.of.offer.count);
        }
        if (event.type == AG_EVENT_PROGRESS && closes_at_progress_) {
            closes_at_progress_ = false;
            client_->close();
        } else if (turn != turns_.end()) {
            take(turn->second, event);
        } else if (event.request != 0 && event.type != AG_EVENT_PROGRESS) {
            answers_[event.request] = answer(event);
        }
    }

    void take(Turn &turn, const ag_event &event) {
        if (event.type == AG_EVENT_ERROR) {
            turn.error = error_line(event.of.error);
            told_ = answers_of(event.of.error);
            turn.ended = true;
        } else if (event.type != AG_EVENT_RESTARTING && event.type != AG_EVENT_UNDERSTOOD) {
            turn.seqs.push_back(event.seq);
        }
        if (event.type == AG_EVENT_ACCEPTED) {
            turn.replayed = event.of.accepted.replayed != 0;
        } else if (event.type == AG_EVENT_UNDERSTOOD) {
            turn.understood = line_of(event.of.understood);
            told_ = answers_of(event.of.understood);
        } else if (event.type == AG_EVENT_FRAME) {
            const auto &frame = event.of.frame;
            turn.add_picture(event.turn, frame.index, static_cast<const std::uint8_t *>(event.buffer), frame.width, frame.height, frame.stride);
        } else if (event.type == AG_EVENT_DONE) {
            understood_ = turn.understood;
            turn.turns = event.of.done.turns;
            turn.ended = true;
        }
    }

    std::string answer(const ag_event &event) {
        if (event.type == AG_EVENT_OPENED) {
            game_ = event.game;
            seen_ = event.of.understood.text;
            token_ = client_->info(game_).token;
        }
        const bool changes = event.type == AG_EVENT_OPENED || event.type == AG_EVENT_REWOUND;
        return changes ? "ok " + std::to_string(client_->info(game_).turns) : answer_of(event);
    }

    ShownClips display_;
    std::string address_, token_, seen_, words_, understood_, told_;
    std::map<ag_game, std::pair<std::int64_t, std::vector<std::string>>> offers_;
    double timeout_s_ = 30.0;
    std::unique_ptr<ag::Client> client_;
    ag_game game_ = 0;
    ag_request begun_ = 0;
    std::map<ag_request, Turn> turns_;
    std::map<ag_request, std::string> answers_;
    bool has_buffers_ = false, closes_at_progress_ = false;
};

} // namespace

int main() { return run_driver<Driver>(); }
