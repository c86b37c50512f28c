// One connection to a server and the games on it, over the native client. It knows nothing of Unreal. Game thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "Picture.h"
#include "animegamer.h"

namespace animegamer_unreal {

/// What a game hears, within Connection::tick, or at once of a call that is refused. It may call its Game and Connection::leave.
class Listener {
public:
    virtual ~Listener() = default;
    /// Keep info.token with a saved game. seen: in the picture that the game starts from; its text is "" if there is none.
    virtual void opened(const ag_game_info &info, const ag_understood &seen) = 0;
    /// Instructions for the next turn that the server answers at once, in place of those before; none: they hold no longer.
    virtual void offered(const std::vector<std::string> &instructions) = 0;
    /// Of the game's ticket(). Hold it, or it is used for another picture after the tick.
    virtual void frame(Picture &picture) = 0;
    virtual void rewound(const ag_game_info &info) = 0;
    virtual void branched(const ag_game_info &info) = 0; // a second game: open info.token to play it
    virtual void failed(const ag_error &error) = 0;
    /// Every event of the game; those that the functions above tell more of come here first.
    virtual void heard(const ag_event &event) = 0;
};

/// One game. What is asked for before it is open waits until then.
class Game {
public:
    /// Ask for a new game, or for the one of this token. The listener's `opened` or `failed` ends it.
    void open(const std::string &token = "", std::int64_t seed = -1);
    /// Ask for a new game in place of this one, which goes on from a picture: a PNG, JPEG or WebP file in memory, at most 8 MiB,
    /// which is copied. motion: what happens in it ("gently wave"). Until `opened` the game is the one before, also if it fails; one
    /// that nobody has played is closed then. False: refused, as a turn runs; `failed` says so.
    bool open_picture(const void *picture, std::size_t bytes, const std::string &motion, std::int64_t seed = -1);
    /// Play a turn; false: one runs that was not cancelled, or a text that is refused: the listener's `failed` says so.
    /// turn_id: the same one twice is one turn; "": a new one.
    bool say(const std::string &instruction, const std::string &turn_id = "");
    /// The events of a finished turn again, those after after_seq.
    bool replay(std::int64_t turn, std::int64_t after_seq = -1);
    /// What the next turn may be; while one runs, what the one after it may be. A server that plays ahead makes these ready.
    void wish(const std::vector<std::string> &instructions);
    /// Stop the running turn: it fails with `cancelled`. "Say this instead": cancel, then say.
    void cancel();
    /// The same, of the turn with this ticket only; false: that turn has ended.
    bool cancel(std::int64_t ticket);
    /// Delete the turns after this one.
    void rewind(std::int64_t turn);
    /// A second game that shares the turns up to this one; this one stays as it is.
    void branch(std::int64_t turn);
    /// Up to 100 turns before this one; 0: the newest.
    void list(std::int64_t before = 0);
    /// End the game for good.
    void close();
    /// Each `say` and `replay` has a ticket, refused or not, which no other has in any game: that of the next one, and that of what the
    /// listener hears now (0: none), with its turn (0: none yet).
    std::int64_t next_ticket() const { return last_ticket_ + 1; }
    std::int64_t ticket() const { return heard_ticket_; }
    std::int64_t turn() const { return heard_turn_; }
    /// What the listener tells next is about this.
    void hear(std::int64_t ticket, std::int64_t turn) {
        heard_ticket_ = ticket;
        heard_turn_ = turn;
    }
    bool busy() const { return turn_ != 0 || !waiting_.empty(); }
    /// The last instructions that were offered, if they hold.
    std::vector<std::string> offers() const;

private:
    friend class Connection;
    void refuse();
    void fail(const char *code, const char *text, const char *what_to_do);
    void check(ag_result result);
    bool may_play(std::int64_t ticket);
    bool send(const std::string &instruction, const std::string &turn_id, std::int64_t ticket);
    bool started(ag_result result, ag_request request, std::int64_t ticket);
    bool is_open();
    void advance();
    void drop_offers();
    ag_client *client_ = nullptr;
    Listener *listener_ = nullptr;
    ag_game game_ = 0;
    ag_request opening_ = 0, branching_ = 0, turn_ = 0, next_turn_ = 0;
    ag_request abandoned_ = 0; // a new game that a picture has replaced before it was open
    static inline std::int64_t last_ticket_ = 0;
    std::int64_t heard_ticket_ = 0, heard_turn_ = 0, waiting_ticket_ = 0, turn_ticket_ = 0, next_turn_ticket_ = 0;
    bool cancelled_ = false;
    std::string token_, waiting_, waiting_id_;
    std::vector<std::string> offers_;
    std::int64_t offers_turn_ = 0; // that they are for
};

/// Why a call was refused: for programs, for people, and what to do.
struct Refusal {
    std::string code, text, what_to_do;
};

class Connection {
public:
    /// address: tcp://HOST:PORT; nothing is sent before the first game. `refusal()` says why `working()` is false.
    Connection(const std::string &address, double timeout_s);
    ~Connection();
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;

    bool working() const { return client_ != nullptr; }
    const Refusal &refusal() const { return refusal_; }
    /// A game that is yet to be opened. It is the connection's; the listener must stay until `leave`.
    Game *add(Listener &listener);
    /// Hear no more of a game. It stays on the server.
    void leave(Game *game);
    /// Connect now. `answer` gets the event that ends it, within `tick`; an error of asking at once.
    using Answer = std::function<void(const ag_event &)>;
    void connect(Answer answer);
    /// Hand out what has come. Never waits.
    void tick();
    /// Disconnect for good, also within `tick`; calls of its games fail with `closed`. The games stay on the server.
    void close();
    double fps() const { return fps_; }
    const std::shared_ptr<PicturePool> &pool() const { return pool_; }

    /// What the server says of itself, within `tick`, each time that it is connected.
    std::function<void(const ag_welcome &)> welcomed;

private:
    void hand_out(const ag_event &event);
    void opened(Game &game, const ag_event &event);
    void lost();
    void counted(Game *game);
    void grow_pool();
    Game *game_of(const ag_event &event) const;
    ag_client *client_ = nullptr;
    std::shared_ptr<PicturePool> pool_ = std::make_shared<PicturePool>();
    std::map<Game *, std::unique_ptr<Game>> games_;
    std::map<ag_request, Answer> answers_;
    Refusal refusal_;
    double fps_ = 8.0;
    std::size_t clip_frames_ = 0, buffer_bytes_ = 0; // of the server's welcome
};

} // namespace animegamer_unreal
